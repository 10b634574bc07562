package report

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"

	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// The fonts of a report are the Go fonts (BSD licence). They have the Latin, Greek and Cyrillic
// scripts; fonts.go has fonts for other characters. A report contains only the glyphs that it uses.
const (
	sans = "sans"
	mono = "mono"
)

// The page, in millimetres: A4 with its margins.
const (
	pageWidth  = 210.0
	margin     = 18.0
	contentMM  = pageWidth - 2*margin
	footerMM   = 18.0
	pageBottom = 297.0 - footerMM
)

// The limits of a report. It says what is left out, and the JSON export has everything.
const (
	maxInputRows = 150
	maxTraceRows = 80
)

type colour [3]int

var (
	ink     = colour{28, 34, 40}
	grey    = colour{96, 106, 116}
	rule    = colour{214, 219, 224}
	paper   = colour{245, 247, 248}
	pine    = colour{0, 102, 108}
	red     = colour{176, 38, 30}
	green   = colour{22, 112, 68}
	amber   = colour{146, 94, 0}
	slate   = colour{84, 94, 106}
	cream   = colour{253, 246, 230}
	colours = map[string]colour{"ALLOW": green, "DENY": red, "MASK": amber, "NO_MATCH": slate}
)

// meaning explains the decisions.
var meaning = map[string]string{
	"ALLOW":    "Access is granted.",
	"DENY":     "Access is denied.",
	"MASK":     "Access is granted; parts of the answer are hidden.",
	"NO_MATCH": "The control says nothing about this request: the default action applies.",
}

// report is a PDF that is being written.
type report struct {
	*fpdf.Fpdf
	kept    record.StoredRun
	tenant  string
	made    time.Time
	pages   int  // number of pages; 0 while they are counted
	strange bool // a character was written as its code point
	// family, style and size are the current font. added are the fonts of fonts.go that the
	// report contains.
	family, style string
	size          float64
	added         map[string]bool
	widths        map[rune]float64 // widths of characters in those fonts at size 1, in mm
}

// exportPDF returns the run as a PDF report, for readers who do not know the run. It writes the
// report twice, because the footers have the number of pages.
func exportPDF(k record.StoredRun, tenant string, now time.Time) ([]byte, error) {
	counted := newReport(k, tenant, now, 0)
	counted.write()
	final := newReport(k, tenant, now, counted.PageCount())
	final.write()
	var out bytes.Buffer
	if err := final.Output(&out); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return out.Bytes(), nil
}

func newReport(k record.StoredRun, tenant string, now time.Time, pages int) *report {
	r := &report{Fpdf: fpdf.New("P", "mm", "A4", ""), kept: k, tenant: tenant, made: now.UTC(), pages: pages, added: map[string]bool{}, widths: map[rune]float64{}}
	r.AddUTF8FontFromBytes(sans, "", goregular.TTF)
	r.AddUTF8FontFromBytes(sans, "B", gobold.TTF)
	r.AddUTF8FontFromBytes(mono, "", gomono.TTF)
	r.SetMargins(margin, margin, margin)
	r.SetAutoPageBreak(false, 0)
	r.SetCellMargin(0)
	r.SetCreationDate(r.made)
	r.SetModificationDate(r.made)
	r.SetCatalogSort(true)
	r.SetProducer("gatehouse", true)
	r.SetTitle(fmt.Sprintf("Simulation %d: %s, %s", k.ID, k.Record.Policy.Name, k.Record.Decision), true)
	r.SetLang("en")
	r.SetFooterFunc(r.footer)
	r.AddPage()
	return r
}

func (r *report) write() {
	r.head()
	r.verdict()
	r.about()
	r.notes()
	r.masks()
	r.inputs()
	r.conditions()
	r.source()
	r.trace()
	r.proof()
}

// head writes the name of the control, its version, environment and status.
func (r *report) head() {
	rec := r.kept.Record
	r.SetXY(margin, margin)
	r.text(sans, "B", 10, pine, "gatehouse")
	r.SetXY(margin, margin)
	r.right(sans, "", 10, grey, fmt.Sprintf("Control simulation report  ·  run %d", r.kept.ID))
	r.line(margin+6.5, pine)
	r.SetXY(margin, margin+11)
	r.paragraph(sans, "B", 19, ink, rec.Policy.Name, 8)
	r.gap(1)
	r.paragraph(sans, "", 10, grey, fmt.Sprintf("Control %d  ·  version %d  ·  environment %s  ·  status %s when it was run",
		rec.Policy.ID, rec.Policy.Version, rec.Environment, rec.Policy.Status), 5)
	r.gap(4)
}

// verdict writes the decision in large letters, with its reason and explanation.
func (r *report) verdict() {
	rec := r.kept.Record
	c := colours[rec.Decision]
	const badge = 52.0
	r.font(sans, "", 11)
	reason := clipped(r.wrap(rec.Reason, contentMM-badge-12))
	r.font(sans, "", 9.5)
	why := clipped(r.wrap(rec.Explanation.Text, contentMM-badge-12))
	if rec.Explanation.Text == "" || rec.Explanation.Text == rec.Reason {
		why = nil
	}
	height := max(30, float64(len(reason))*5.4+21)
	if len(why) > 0 {
		height += float64(len(why))*4.8 + 7
	}
	top := r.room(height)
	r.fill(paper)
	r.RoundedRect(margin, top, contentMM, height, 2, "1234", "F")
	r.fill(c)
	r.RoundedRect(margin, top, badge, height, 2, "14", "F")
	size := 25.0
	if len(rec.Decision) > 5 {
		size = 19
	}
	r.font(sans, "B", size)
	r.ink(colour{255, 255, 255})
	r.SetXY(margin, top+height/2-6)
	r.CellFormat(badge, 12, rec.Decision, "", 0, "CM", false, 0, "")
	r.SetXY(margin+badge+6, top+5)
	r.text(sans, "B", 11, c, meaning[rec.Decision])
	r.SetXY(margin+badge+6, top+12)
	r.text(sans, "", 8.5, grey, "REASON")
	y := top + 16.5
	for _, l := range reason {
		r.SetXY(margin+badge+6, y)
		r.text(sans, "", 11, ink, l)
		y += 5.4
	}
	for i, l := range why {
		if i == 0 {
			r.SetXY(margin+badge+6, y+2.2)
			r.text(sans, "", 8.5, grey, "EXPLANATION")
			y += 6.7
		}
		r.SetXY(margin+badge+6, y)
		r.text(sans, "", 9.5, ink, l)
		y += 4.8
	}
	r.SetY(top + height)
	r.gap(4)
	if rec.Error != "" {
		r.boxed("The evaluation did not finish", []string{rec.Error}, red)
	}
}

// clipped returns the first twelve lines, and "…" if there are more. The JSON and CSV exports have
// all.
func clipped(lines []string) []string {
	if len(lines) > 12 {
		return append(lines[:12:12], "…")
	}
	return lines
}

// about writes who ran the simulation and when, and its other properties.
func (r *report) about() {
	rec := r.kept.Record
	who := rec.User.Name
	if kind := map[string]string{"user": "person", "api_key": "API key"}[string(rec.User.Kind)]; kind != "" {
		who += " (" + kind + ")"
	}
	list := []fact{
		{"Run by", who},
		{"Run at", rec.Timestamp.UTC().Format("2006-01-02 15:04:05.000 UTC")},
		{"Tenant", r.tenant},
		{"Kind of run", rec.TestType},
		{"Evaluation time", strconv.FormatFloat(rec.ExecutionTimeMS, 'f', -1, 64) + " ms"},
		{"Run id", strconv.FormatInt(r.kept.ID, 10)},
	}
	if rec.Resource != nil {
		list = append(list, fact{"Resource", fmt.Sprintf("%s (id %d)", rec.Resource.Name, rec.Resource.ID)})
	}
	if rec.Scenario != nil {
		list = append(list, fact{"Scenario", fmt.Sprintf("%s (id %d)", rec.Scenario.Name, rec.Scenario.ID)})
	}
	const label = 29.0
	half := contentMM / 2
	for i := 0; i < len(list); i += 2 {
		r.font(sans, "", 9.5)
		lines := 1
		for j := i; j < min(i+2, len(list)); j++ {
			lines = max(lines, len(r.wrap(list[j].text, half-label-3)))
		}
		top := r.room(float64(lines)*4.8 + 1)
		for j := i; j < min(i+2, len(list)); j++ {
			x := margin + float64(j-i)*half
			r.SetXY(x, top)
			r.text(sans, "", 9.5, grey, list[j].name)
			r.font(sans, "", 9.5)
			for n, l := range r.wrap(list[j].text, half-label-3) {
				r.SetXY(x+label, top+float64(n)*4.8)
				r.text(sans, "", 9.5, ink, l)
			}
		}
		r.SetY(top + float64(lines)*4.8 + 1)
	}
	r.gap(3)
}

func (r *report) notes() {
	if notes := r.kept.Record.Notes; len(notes) > 0 {
		r.boxed("How a live decision would differ", notes, amber)
	}
}

// masks lists the parts of the answer that would be masked.
func (r *report) masks() {
	list := r.kept.Record.Output.Get("mask").Elems()
	if len(list) == 0 {
		return
	}
	r.section("Hidden in the answer", "")
	t := r.table([]column{{"Path", 110, mono}, {"How", 64, sans}})
	for _, m := range list {
		path, _ := m.Get("path").Str()
		strategy, _ := m.Get("strategy").Str()
		t.row(path, strategy)
	}
	r.gap(5)
}

// inputs lists the input that the control read, with the origin of each value.
func (r *report) inputs() {
	rec := r.kept.Record
	sent := map[string]string{}
	rec.Input.Leaves(func(path, text string) bool { sent[path] = text; return true })
	shown := rec.EvaluatedInput
	if !shown.Defined() || shown.IsNull() {
		shown = rec.Input
	}
	r.section("Input", "What the control read. Missing values were filled in as in a live decision.")
	t := r.table([]column{{"Attribute", 62, mono}, {"Value", 84, sans}, {"Origin", 28, sans}})
	rows, cut := 0, false
	shown.Ordered().Leaves(func(path, text string) bool {
		if cut = rows == maxInputRows; cut {
			return false
		}
		origin := "sent"
		if was, ok := sent[path]; !ok || was != text {
			origin = "filled in"
			if strings.HasPrefix(path, "resource.") {
				origin = "resource"
			} else if strings.HasPrefix(path, "user.") {
				origin = "stored user"
			}
		}
		t.row(path, text, origin)
		rows++
		return true
	})
	if rows == 0 {
		t.row("(an empty input)", "", "")
	}
	if cut {
		r.small("The input is cut here; the JSON and CSV exports contain all of it.")
	}
	r.gap(5)
}

// conditions writes the rule that decided and its conditions and, for a denial, the nearest rule
// that would have allowed the request.
func (r *report) conditions() {
	why := r.kept.Record.Explanation
	switch {
	case len(why.Conditions) > 0:
		r.section("Why", fmt.Sprintf("The rule %s on line %d decided.", why.Rule, why.Line))
		r.conditionTable(outcomes(why.Conditions, false))
	case r.byDefault(why.Line):
		r.section("Why", fmt.Sprintf("No rule held; %s is the default in line %d.", why.Rule, why.Line))
	case why.Rule != "":
		r.section("Why", fmt.Sprintf("The rule %s on line %d decided; it has no conditions.", why.Rule, why.Line))
	}
	if near := why.Nearest; near != nil && len(near.Missing) > 0 {
		r.section("What was missing", fmt.Sprintf("The rule %s on line %d came nearest to allowing the request.", near.Rule, near.Line))
		all := append(outcomes(near.Missing, true), outcomes(near.Held, false)...)
		slices.SortStableFunc(all, func(a, b outcome) int { return cmp.Compare(a.Line, b.Line) })
		r.conditionTable(all)
	} else if near != nil {
		r.section("What would have allowed", fmt.Sprintf("Without the rule above, the rule %s on line %d would have allowed the request.", near.Rule, near.Line))
		r.conditionTable(outcomes(near.Held, false))
	}
	if why.Partial {
		r.small("Not everything about this decision could be explained.")
		r.gap(4)
	}
}

// byDefault reports whether a line of the control is a default rule.
func (r *report) byDefault(line int) bool {
	for _, l := range r.kept.Record.SourceLines {
		if l.Line == line {
			return strings.HasPrefix(strings.TrimSpace(l.Text), "default ")
		}
	}
	return false
}

// outcome is a condition, with its result in words and the colour for it.
type outcome struct {
	reason.Condition
	said string
	ink  colour
}

// outcomes returns the results of conditions. missing means that each of them would have to change.
// One that holds must then not hold.
func outcomes(list []reason.Condition, missing bool) []outcome {
	out := make([]outcome, 0, len(list))
	for _, c := range list {
		o := outcome{c, conditionResult(c), map[string]colour{"holds": green, "does not hold": red, "not reached": grey}[conditionResult(c)]}
		if missing && c.Holds {
			o.said, o.ink = "holds, must not", red
		}
		out = append(out, o)
	}
	return out
}

func (r *report) conditionTable(list []outcome) {
	if len(list) == 0 {
		return
	}
	t := r.table([]column{{"Line", 11, sans}, {"Condition", 70, mono}, {"Result", 28, sans}, {"Values it saw", 65, sans}})
	for _, c := range list {
		var values []string
		for _, b := range c.Values {
			values = append(values, binding(b))
		}
		t.colour(2, c.ink)
		t.row(strconv.Itoa(c.Line), c.Source, c.said, strings.Join(values, "\n"))
	}
	r.gap(5)
}

// source writes the lines of the control that the decision depended on.
func (r *report) source() {
	lines := r.kept.Record.SourceLines
	if len(lines) == 0 {
		return
	}
	r.section("In the control's source", fmt.Sprintf("Version %d; lines marked + held, lines marked - did not.", r.kept.Record.Policy.Version))
	last := 0
	for _, l := range lines {
		if last != 0 && l.Line != last+1 {
			r.gap(1.5)
		}
		last = l.Line
		mark, c := " ", ink
		switch l.Outcome {
		case "held":
			mark, c = "+", green
		case "failed":
			mark, c = "-", red
		}
		r.font(mono, "", 8.5)
		for n, part := range r.wrap(strings.ReplaceAll(l.Text, "\t", "    "), contentMM-20) {
			top := r.room(4.6)
			r.fill(paper)
			r.Rect(margin, top, contentMM, 4.6, "F")
			if n == 0 {
				r.SetXY(margin+1, top)
				r.text(mono, "", 8.5, grey, fmt.Sprintf("%4d", l.Line))
				r.SetXY(margin+12, top)
				r.text(mono, "", 8.5, c, mark)
			}
			r.SetXY(margin+17, top)
			r.text(mono, "", 8.5, c, part)
			r.SetY(top + 4.6)
		}
	}
	r.gap(5)
}

// trace lists the steps of the evaluation.
func (r *report) trace() {
	steps := r.kept.Record.Trace
	if len(steps) == 0 {
		return
	}
	r.section("Trace", "Every step of the evaluation, in order.")
	t := r.table([]column{{"No.", 11, sans}, {"Step", 34, sans}, {"What happened", 102, sans}, {"Result", 27, sans}})
	words := map[string]string{"policy_matched": "control matched", "condition_eval": "condition", "final_decision": "decision"}
	for i, s := range steps {
		if i == maxTraceRows {
			r.small(fmt.Sprintf("%d more steps are in the JSON and CSV exports.", len(steps)-i))
			break
		}
		name := cmp.Or(words[s.Type], s.Type)
		says := s.Description
		if v := s.Details.Get("line"); v.Kind() == value.NumberKind {
			name += ", line " + v.NumberText()
			says = strings.TrimPrefix(says, "Line "+v.NumberText()+": ")
		}
		result := strconv.FormatBool(s.Result)
		t.colour(3, map[bool]colour{true: green, false: red}[s.Result])
		t.row(strconv.Itoa(s.Number), name, says, result)
	}
	r.gap(5)
}

// proof writes the checksum of the record, and whether the record still has it.
func (r *report) proof() {
	r.section("Record", "")
	says := "The record still has this checksum, which the audit entry POLICY_SIMULATION_RUN of the run names too."
	c := ink
	if !r.kept.Intact {
		says, c = "THE RECORD NO LONGER HAS THIS CHECKSUM: it was changed after the run. The audit entry POLICY_SIMULATION_RUN names the one it had.", red
	}
	r.paragraph(mono, "", 8.5, ink, r.kept.Checksum, 4.3)
	r.paragraph(sans, "", 9, c, says, 4.3)
	r.paragraph(sans, "", 9, grey, "A simulation evaluates one control on an invented input. It is not an access decision.", 4.3)
	if r.strange {
		r.paragraph(sans, "", 9, grey, "Characters that this report's fonts do not have are written as their code points and names, such as [U+1F600 GRINNING FACE]. The JSON export has the text itself.", 4.6)
	}
}

func (r *report) footer() {
	r.line(pageBottom+4, rule)
	r.SetXY(margin, pageBottom+6)
	r.text(sans, "", 8, grey, fmt.Sprintf("Simulation %d  ·  %s", r.kept.ID, short(r.kept.Checksum)))
	r.SetXY(margin, pageBottom+6)
	r.right(sans, "", 8, grey, fmt.Sprintf("Printed %s  ·  page %d of %d", r.made.Format("2006-01-02 15:04 UTC"), r.PageNo(), r.pages))
}

// short returns the beginning of a checksum, which is enough to distinguish the pages of two
// reports.
func short(checksum string) string {
	if len(checksum) > 23 {
		return checksum[:23] + "…"
	}
	return checksum
}
