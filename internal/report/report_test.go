package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/sfnt"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

var ran = time.Date(2026, 11, 21, 9, 30, 15, 123_000_000, time.UTC)

// doc decodes a JSON document.
func doc(t testing.TB, text string) record.Object {
	t.Helper()
	return record.Object{Value: valuetest.Decode(t, text)}
}

var sourceLines = []record.SourceLine{
	{Line: 3, Text: "default allow := false", Outcome: "decided"},
	{Line: 10, Text: "allow if {"},
	{Line: 11, Text: `	input.user.role in {"manager", "auditor"}`, Outcome: "held"},
	{Line: 12, Text: "	input.user.clearance >= 3", Outcome: "failed"},
	{Line: 13, Text: `	input.action.method == "GET"`, Outcome: "held"},
}

// sample returns a denied run with names in several scripts.
func sample(t testing.TB) record.Record {
	t.Helper()
	bind := func(path, v string) reason.Binding {
		return reason.Binding{Path: path, Value: doc(t, `{"v":`+v+`}`).Get("v")}
	}
	why := reason.Explanation{
		PolicyID: 12, PolicyName: "Nómina", PolicyVersion: 3, Effect: "DENY", Rule: "allow", Line: 3,
		Text: `Denied: no rule of the control allowed the request, and allow is false by default (line 3).`,
		Nearest: &reason.Alternative{
			Rule: "allow", Line: 10,
			Missing: []reason.Condition{{Line: 12, Source: "input.user.clearance >= 3", Values: []reason.Binding{bind("input.user.clearance", "2")}}},
			Held: []reason.Condition{
				{Line: 11, Source: `input.user.role in {"manager", "auditor"}`, Holds: true, Values: []reason.Binding{bind("input.user.role", `"manager"`)}},
				{Line: 13, Source: `input.action.method == "GET"`, Holds: true, Values: []reason.Binding{bind("input.action.method", `"GET"`)}},
			},
		},
	}
	detail := func(line int) value.Value { return doc(t, fmt.Sprintf(`{"line":%d}`, line)).Value }
	return record.Record{
		Decision: "DENY", Reason: "only HR and cleared managers may read payroll", Explanation: why, Timestamp: ran, ExecutionTimeMS: 0.214,
		Input:          doc(t, `{"user":{"id":"jose","name":"José Núñez 张三 Ωμέγα","role":"manager","clearance":2},"action":{"method":"GET"},"resource":{"path":"/employees/1"},"note":"=HYPERLINK(\"http://x\")"}`),
		EvaluatedInput: doc(t, `{"user":{"id":"jose","name":"José Núñez 张三 Ωμέγα","role":"manager","clearance":2,"department":"Contabilidad"},"action":{"method":"GET"},"resource":{"path":"/employees/1","data_classification":"confidential","compliance_tags":["GDPR","SOX"]},"note":"=HYPERLINK(\"http://x\")"}`),
		Output:         doc(t, `{"decision":"DENY","allow":false,"effect":"DENY","reason":"only HR and cleared managers may read payroll","mask":[],"policy_id":12}`),
		Notes:          []string{"The control is draft: live decisions do not use it.", `input.resource.data_classification was used as sent; a live decision uses the registered resource, with "restricted".`},
		Policy:         record.Subject{ID: 12, Name: "Nómina: sólo RR. HH. y gerentes (paie, 給与)", Version: 3, Status: "draft"}, Environment: "sandbox",
		Resource: &record.Named{ID: 4, Name: "Payroll API"}, TestType: "scenario", Scenario: &record.Named{ID: 9, Name: "Manager without clearance"},
		User: record.Actor{Kind: "user", ID: "0193-77", Name: "zoë.müller"}, SourceLines: sourceLines,
		Trace: []reason.Step{
			{Number: 1, Type: "policy_matched", Description: `The control "Nómina" is evaluated`, Result: true, Details: value.Object()},
			{Number: 2, Type: "condition_eval", Description: `input.user.role == "hr"  (input.user.role is "manager")`, Details: detail(6)},
			{Number: 3, Type: "condition_eval", Description: `input.user.role in {"manager", "auditor"}`, Result: true, Details: detail(11)},
			{Number: 4, Type: "condition_eval", Description: `input.user.clearance >= 3  (input.user.clearance is 2)`, Details: detail(12)},
			{Number: 5, Type: "final_decision", Description: "DENY: only HR and cleared managers may read payroll", Details: value.Object()},
		},
	}
}

// keptSample returns a record as it is stored.
func keptSample(t testing.TB, rec record.Record) record.StoredRun {
	t.Helper()
	text, err := json.Marshal(rec)
	errtest.Must(t, err)
	k := record.StoredRun{ID: 41, Checksum: digest(text), Intact: true, Text: text}
	errtest.Must(t, json.Unmarshal(text, &k.Record))
	return k
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestPDF checks that the report contains everything, in several scripts, and its pages are numbered.
func TestPDF(t *testing.T) {
	k := keptSample(t, sample(t))
	file, err := exportPDF(k, "default", ran.Add(time.Hour))
	errtest.Must(t, err)
	if !bytes.HasPrefix(file, []byte("%PDF-")) || len(file) > 200<<10 {
		t.Fatalf("the file has %d bytes and begins with %q, want a PDF of at most 200 KiB", len(file), file[:8])
	}
	text := textOf(t, file, "denied")
	for _, want := range []string{
		"DENY", "Access is denied", "only HR and cleared managers may read payroll", "Nómina: sólo RR. HH. y gerentes (paie,", "給与)", "EXPLANATION",
		"version 3", "sandbox", "zoë.müller", "2026-11-21 09:30:15.123 UTC", "José Núñez 张三 Ωμέγα", "stored user", "Contabilidad",
		"input.user.clearance >= 3", "does not hold", "What was missing", "The control is draft", k.Checksum, "page 1 of 2", "page 2 of 2",
		"still has this checksum", "Manager without clearance",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report is\n%s\nwant %q in it", text, want)
		}
	}
	k.Intact = false
	if file, err = exportPDF(k, "default", ran); err != nil || !strings.Contains(textOf(t, file, "altered"), "NO LONGER HAS THIS CHECKSUM") {
		t.Errorf("the report of an altered record does not say so: %v", err)
	}
}

// TestPDFOfLittle checks that the report of a run with one rule and one condition has one page.
func TestPDFOfLittle(t *testing.T) {
	rec := record.Record{
		Decision: "ALLOW", Reason: "Allowed by control pdf", Policy: record.Subject{ID: 34, Name: "pdf", Version: 1, Status: "draft"}, Environment: "sandbox",
		User: record.Actor{Kind: "user", ID: "1", Name: "admin"}, TestType: "manual", Timestamp: ran, ExecutionTimeMS: 0.014,
		Explanation: reason.Explanation{
			PolicyID: 34, PolicyName: "pdf", PolicyVersion: 1, Effect: "ALLOW", Rule: "allow", Line: 3,
			Text: "Control \"pdf\" (version 1) allowed: rule allow in line 3 holds.\n  line 3: input.user.id == \"a\"  (input.user.id = \"a\")",
			Conditions: []reason.Condition{{
				Rule: "allow", Line: 3, Source: `input.user.id == "a"`, Holds: true,
				Values: []reason.Binding{{Path: "input.user.id", Value: value.String("a")}},
			}},
		},
		Notes: []string{"The control is draft: live decisions do not use it."},
		Input: doc(t, `{"user":{"id":"a"}}`), EvaluatedInput: doc(t, `{"user":{"id":"a"}}`),
		SourceLines: []record.SourceLine{{Line: 3, Text: "allow if input.user.id == \"a\"", Outcome: "held"}},
		Trace: []reason.Step{
			{Number: 1, Type: "policy_matched", Description: "Control pdf is evaluated", Result: true},
			{Number: 2, Type: "condition_eval", Description: "input.user.id == \"a\" holds; input.user.id = \"a\"", Result: true},
			{Number: 3, Type: "final_decision", Description: "ALLOW: Allowed by control pdf", Result: true},
		},
	}
	file, err := exportPDF(keptSample(t, rec), "default", ran)
	errtest.Must(t, err)
	if text := textOf(t, file, "little"); !strings.Contains(text, "page 1 of 1") {
		t.Errorf("the report is\n%s\nwant one page", text)
	}
}

// TestPDFOfAnything checks that no record breaks the report.
func TestPDFOfAnything(t *testing.T) {
	fulltest.Only(t)
	long := sample(t)
	long.Policy.Name = strings.Repeat("name", 300)
	long.Reason = strings.Repeat("because ", 130) + strings.Repeat("x", 2000)
	long.Notes = append(long.Notes, strings.Repeat("a note that goes on and on ", 400))
	long.Input = doc(t, `{"text":"`+strings.Repeat(`line\n`, 500)+`","deep":`+strings.Repeat(`{"a":`, 40)+"1"+strings.Repeat("}", 40)+`}`)
	long.EvaluatedInput = long.Input
	for i := range 300 {
		long.Trace = append(long.Trace, reason.Step{Number: i, Type: "condition_eval", Description: strings.Repeat("step ", 40)})
	}
	allowed := sample(t)
	allowed.Decision, allowed.Notes, allowed.Explanation.Nearest, allowed.Scenario, allowed.Resource = "ALLOW", nil, nil, nil, nil
	allowed.Reason, allowed.SourceLines = "Allowed by control Nómina", nil
	masked := sample(t)
	masked.Decision, masked.Output = "MASK", doc(t, `{"mask":[{"path":"employee.ssn","strategy":"last4"},{"path":"salary","strategy":"remove"}]}`)
	weird := sample(t)
	weird.Policy.Name = "\u202Eevil\u0000 e\u0301 😀 \u2066 عربي <script>"
	mixed := sample(t)
	mixed.Reason = strings.Repeat("a中ب한", 500)
	var members []string
	for i := range 150 {
		members = append(members, fmt.Sprintf(`"m%d":%q`, i, mixed.Reason[:9*200]))
	}
	mixed.Input = doc(t, "{"+strings.Join(members, ",")+"}")
	mixed.EvaluatedInput = mixed.Input
	cut := sample(t)
	cut.Input = doc(t, "{"+strings.Join(append(members, `"last":1`), ",")+"}")
	cut.EvaluatedInput = cut.Input
	for name, rec := range map[string]record.Record{"empty": {}, "long": long, "mixed": mixed, "cut": cut, "allowed": allowed, "masked": masked, "weird": weird, "limit": {Decision: "DENY", Error: "the evaluation did not end within 30s and was cancelled", Reason: "evaluation_limit"}} {
		file, err := exportPDF(keptSample(t, rec), "default", ran)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := textOf(t, file, name)
		if got, want := strings.Contains(text, "The input is cut"), name == "cut"; got != want {
			t.Errorf("%s: the report says that the input is cut: %t, want %t", name, got, want)
		}
		for what, want := range map[string]string{"masked": "employee.ssn", "weird": "[U+202E]evil[U+0000] é [U+1F600 GRINNING FACE]", "limit": "did not end within 30s", "long": "more steps"} {
			if name == what && !strings.Contains(text, want) {
				t.Errorf("%s: the report is\n%s\nwant %q in it", name, text, want)
			}
		}
	}
}

// textOf returns the text that pdftotext reads in a file. If SIMULATOR_PDFS is set, the files are
// stored in that folder, so that a person can read them.
func textOf(t *testing.T, file []byte, name string) string {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("SIMULATOR_PDFS"); keep != "" {
		dir = keep
	}
	path := filepath.Join(dir, name+".pdf")
	errtest.Must(t, os.WriteFile(path, file, 0o600))
	tool, err := exec.LookPath("pdftotext")
	if err != nil {
		apptest.SkipMissing(t, "pdftotext is not installed")
	}
	out, err := exec.CommandContext(t.Context(), tool, "-layout", path, "-").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestFonts checks that the fonts of the report have the same characters.
func TestFonts(t *testing.T) {
	has := goFace().has
	for name, ttf := range map[string][]byte{"bold": gobold.TTF, "mono": gomono.TTF} {
		font, err := sfnt.Parse(ttf)
		errtest.Must(t, err)
		var buf sfnt.Buffer
		n := 0
		for c := rune(' '); c <= 0xFFFF; c++ {
			if !has(c) {
				continue
			}
			n++
			if i, err := font.GlyphIndex(&buf, c); err != nil || i == 0 {
				t.Errorf("the %s font lacks %U", name, c)
			}
		}
		if n < 600 {
			t.Errorf("the fonts have %d characters, want at least 600", n)
		}
	}
	for _, c := range "éñüßçœŁőΩжЯ€…·•–" {
		if !has(c) {
			t.Errorf("the fonts lack %c", c)
		}
	}
}

// TestCSV checks that the export is one rectangular table (RFC 4180), and no cell is a formula for a
// spreadsheet.
func TestCSV(t *testing.T) {
	rec := sample(t)
	rec.Policy.Name = "=cmd|' /C calc'!A0"
	rec.Reason = "+1\r\nsecond \"line\""
	rec.User.Name = "@admin"
	rec.Scenario.Name = "-2"
	rec.Notes = []string{"\t=1+1", "\r=1+1"}
	rec.Input = doc(t, `{"=key":"=1+1","n":-5}`)
	file := exportCSV(keptSample(t, rec))
	if !bytes.Contains(file, []byte("\r\n")) {
		t.Error("the rows do not end with CRLF")
	}
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	errtest.Must(t, err)
	for row := range strings.SplitSeq(strings.TrimSuffix(string(file), "\r\n"), "\"\r\n\"") {
		if n := strings.Count(row, `","`); n != 4 {
			t.Errorf("a row has %d quoted cells, want 5: %s", n+1, row)
		}
	}
	cells := map[string]bool{}
	for _, row := range rows {
		for _, cell := range row {
			cells[cell] = true
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("the cell %q is a formula", cell)
			}
		}
	}
	for _, want := range []string{"'=cmd|' /C calc'!A0", "'@admin", "'-2", "'\t=1+1", "'=key", "'=1+1", "'-5"} {
		if !cells[want] {
			t.Errorf("the table is\n%s\nwant a cell %q", file, want)
		}
	}
}

// TestJSONExport checks that the checksum can be computed from the file.
func TestJSONExport(t *testing.T) {
	k := keptSample(t, sample(t))
	file, err := exportJSON(k)
	errtest.Must(t, err)
	var out struct {
		Checksum string          `json:"checksum"`
		Valid    bool            `json:"checksum_valid"`
		Record   json.RawMessage `json:"record"`
	}
	errtest.Must(t, json.Unmarshal(file, &out))
	if got := digest(out.Record); got != out.Checksum || !out.Valid {
		t.Errorf("the checksum of the record is %s, the file has %s (valid %t), want the same", got, out.Checksum, out.Valid)
	}
}

// A text that a spreadsheet would take for a formula gets an apostrophe.
func TestEscapeFormula(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "\tx": "'\tx", "\rx": "'\rx", "\nx": "'\nx", "a=1": "a=1", "'=1": "'=1", "日=": "日=",
		" =1": "' =1", "\u00a0=1": "'\u00a0=1", "\ufeff=1": "'\ufeff=1", "＝1": "'＝1", " plain": " plain", " ": " ",
	} {
		if got := escapeFormula(in); got != want {
			t.Errorf("escapeFormula(%q) = %q, want %q", in, got, want)
		}
	}
}
