// Package report exports a simulation as a file: JSON, CSV for spreadsheets, or PDF. It reads no
// store and no clock.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
)

// File is an export.
type File struct {
	// Name is safe in a header, because it contains no text of a tenant.
	Name  string
	Media string
	Body  []byte
}

// Write exports a run in the format json, csv or pdf. now is the time that the PDF shows as its
// time of printing. Fault: Invalid for any other format.
func Write(k record.StoredRun, format, tenant string, now time.Time) (File, error) {
	f := File{Name: fmt.Sprintf("simulation-%d.%s", k.ID, format)}
	var err error
	switch format {
	case "json":
		f.Media = "application/json"
		f.Body, err = exportJSON(k)
	case "csv":
		f.Media = "text/csv"
		f.Body = exportCSV(k)
	case "pdf":
		f.Media = "application/pdf"
		f.Body, err = exportPDF(k, tenant, now)
	default:
		return File{}, fault.Invalidf("query.format", "the format must be json, csv or pdf")
	}
	if err != nil {
		return File{}, fault.Wrap(err, "report: writing the export")
	}
	return f, nil
}

// exportJSON copies the record byte for byte, so that a reader can verify it. The checksum is the
// SHA-256 of the text of the member record.
func exportJSON(k record.StoredRun) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"simulation_id\":%d,\"checksum\":%q,\"checksum_valid\":%t,\"record\":", k.ID, k.Checksum, k.Intact)
	b.Write(k.Text)
	b.WriteString("}\n")
	if !json.Valid(b.Bytes()) {
		return nil, fmt.Errorf("the record of simulation %d is not JSON", k.ID)
	}
	return b.Bytes(), nil
}

// exportCSV writes one table (RFC 4180). Each row is one item, such as a property, a leaf of the
// input, a condition or a step of the trace. The first column is its kind. All cells are quoted,
// and none is a formula.
func exportCSV(k record.StoredRun) []byte {
	rec := k.Record
	var b bytes.Buffer
	add := func(cells ...string) {
		for i, cell := range cells {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + strings.ReplaceAll(escapeFormula(cell), `"`, `""`) + `"`)
		}
		b.WriteString("\r\n")
	}
	add("section", "name", "value", "line", "result")
	for _, f := range facts(k) {
		add("simulation", f.name, f.text, "", "")
	}
	for _, n := range rec.Notes {
		add("note", "", n, "", "")
	}
	rec.Input.Leaves(func(path, text string) bool { add("input", path, text, "", ""); return true })
	rec.EvaluatedInput.Leaves(func(path, text string) bool { add("evaluated_input", path, text, "", ""); return true })
	rec.Output.Leaves(func(path, text string) bool { add("output", path, text, "", ""); return true })
	for _, c := range rec.Explanation.Conditions {
		add("condition", c.Source, conditionValues(c), strconv.Itoa(c.Line), conditionResult(c))
	}
	if near := rec.Explanation.Nearest; near != nil {
		for _, c := range append(append([]reason.Condition{}, near.Held...), near.Missing...) {
			add("nearest rule that would have allowed", c.Source, conditionValues(c), strconv.Itoa(c.Line), conditionResult(c))
		}
	}
	for _, st := range rec.Trace {
		line := ""
		if v := st.Details.Get("line"); v.Kind() == value.NumberKind {
			line = v.NumberText()
		}
		add("trace", strconv.Itoa(st.Number)+" "+st.Type, st.Description, line, strconv.FormatBool(st.Result))
	}
	for _, l := range rec.SourceLines {
		add("source", "", l.Text, strconv.Itoa(l.Line), l.Outcome)
	}
	return b.Bytes()
}

// escapeFormula puts an apostrophe before a cell that a spreadsheet would read as a formula. Some
// spreadsheets skip leading spaces, and some accept full-width signs.
func escapeFormula(cell string) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeft(cell, " \u00a0\ufeff"))
	if cell != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) {
		return "'" + cell
	}
	return cell
}

// fact is a named property of a run.
type fact struct{ name, text string }

// facts lists the properties of a run for the CSV export.
func facts(k record.StoredRun) []fact {
	rec := k.Record
	list := []fact{
		{"simulation_id", strconv.FormatInt(k.ID, 10)},
		{"decision", rec.Decision},
		{"reason", rec.Reason},
		{"policy_id", strconv.FormatInt(rec.Policy.ID, 10)},
		{"policy_name", rec.Policy.Name},
		{"policy_version", strconv.FormatInt(rec.Policy.Version, 10)},
		{"policy_status", rec.Policy.Status},
		{"environment", string(rec.Environment)},
		{"user", rec.User.Name},
		{"user_kind", string(rec.User.Kind)},
		{"user_id", rec.User.ID},
		{"timestamp", rec.Timestamp.UTC().Format(time.RFC3339Nano)},
		{"test_type", rec.TestType},
		{"execution_time_ms", strconv.FormatFloat(rec.ExecutionTimeMS, 'f', -1, 64)},
	}
	if rec.Resource != nil {
		list = append(list, fact{"resource_id", strconv.FormatInt(rec.Resource.ID, 10)}, fact{"resource_name", rec.Resource.Name})
	}
	if rec.Scenario != nil {
		list = append(list, fact{"scenario_id", strconv.FormatInt(rec.Scenario.ID, 10)}, fact{"scenario_name", rec.Scenario.Name})
	}
	if rec.Error != "" {
		list = append(list, fact{"error", rec.Error})
	}
	if rec.Explanation.Text != "" {
		list = append(list, fact{"explanation", rec.Explanation.Text})
	}
	return append(list, fact{"checksum", k.Checksum}, fact{"checksum_valid", strconv.FormatBool(k.Intact)})
}

// conditionResult returns the result of a condition in words.
func conditionResult(c reason.Condition) string {
	switch {
	case c.Unreached:
		return "not reached"
	case c.Holds:
		return "holds"
	default:
		return "does not hold"
	}
}

// conditionValues lists the values that a condition read.
func conditionValues(c reason.Condition) string {
	texts := make([]string, len(c.Values))
	for i, b := range c.Values {
		texts[i] = binding(b)
	}
	return strings.Join(texts, "; ")
}

func binding(b reason.Binding) string {
	if !b.Value.Defined() {
		return b.Path + " is absent"
	}
	return b.Path + " = " + shortJSON(b.Value)
}

// shortJSON returns a value as JSON, truncated to 200 characters.
func shortJSON(v value.Value) string {
	text := []rune(string(v.AppendJSON(nil)))
	if len(text) > 200 {
		return string(text[:200]) + "…"
	}
	return string(text)
}
