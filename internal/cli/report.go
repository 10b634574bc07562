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

// Report is what a command found, in the forms that the formats need.
type Report struct {
	// Value is the whole, for JSON.
	Value any
	// Issues are places in files, for SARIF.
	Issues []lang.FileIssue
	// Cases are things that went well or not, for JUnit.
	Cases []Case
	// Text writes it for people.
	Text func(*printer)
}

// Case is one thing that was tried. Failure and Error are empty where it went well.
type Case struct {
	Suite, Name, File string
	Line              int
	Seconds           float64
	Failure, Error    string
	Skipped           bool
	Output            string
}

// add takes a case in, as an issue too where it did not go well.
func (r *Report) add(c Case, rule string) {
	r.Cases = append(r.Cases, c)
	if text := c.Failure + c.Error; text != "" {
		r.Issues = append(r.Issues, lang.FileIssue{File: c.File, Issue: lang.Issue{
			Line: c.Line, Message: c.Name + ": " + text, Severity: lang.SeverityError, Rule: rule,
		}})
	}
}

// write writes a report in the format that was asked for.
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
