package cli

import (
	"encoding/json"
	"io"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// The formats of output.
const (
	FormatText  = "text"
	FormatJSON  = "json"
	FormatSARIF = "sarif"
	FormatJUnit = "junit"
)

// Report is the result of a command, in a form for each format.
type Report struct {
	// Value is the complete result, for JSON.
	Value any
	// Issues are the findings with their positions in files, for SARIF.
	Issues []lang.FileIssue
	// Cases are the single checks and their results, for JUnit.
	Cases []Case
	// Text writes the result as text.
	Text func(*printer)
}

// Case is the result of one check. Failure and Error are empty if it passed.
type Case struct {
	Suite, Name, File string
	Line              int
	Seconds           float64
	Failure, Error    string
	Skipped           bool
	Output            string
}

// add adds a case. If it did not pass, add also adds an issue.
func (r *Report) add(c Case, rule string) {
	r.Cases = append(r.Cases, c)
	if text := c.Failure + c.Error; text != "" {
		r.Issues = append(r.Issues, lang.FileIssue{File: c.File, Issue: lang.Issue{
			Line: c.Line, Message: c.Name + ": " + text, Severity: lang.SeverityError, Rule: rule,
		}})
	}
}

// write writes a report in the requested format.
func (o Options) write(command string, r Report) error {
	switch o.Format {
	case FormatJSON:
		return writeJSON(o.Out, r.Value)
	case FormatSARIF:
		return writeJSON(o.Out, sarifOf(r.Issues, o.Version))
	case FormatJUnit:
		return writeJUnit(o.Out, command, r.Cases)
	default:
		p := &printer{colour: o.Colour}
		r.Text(p)
		_, err := io.WriteString(o.Out, p.text.String())
		return err
	}
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
