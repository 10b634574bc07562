package explain

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Redacted is the explanation with each value that was seen replaced by what
// hide makes of it, in the texts too. hide is given the path and the value.
func (e Explanation) Redacted(hide func(path string, v value.Value) value.Value) Explanation {
	var clean func(list []Condition) []Condition
	clean = func(list []Condition) []Condition {
		if list == nil {
			return nil
		}
		out := make([]Condition, len(list))
		for i, c := range list {
			values := make([]Binding, len(c.Values))
			for j, b := range c.Values {
				b.Value = hide(b.Path, b.Value)
				values[j] = b
			}
			c.Values, c.Because = values, clean(c.Because)
			out[i] = c
		}
		return out
	}
	e.Conditions = clean(e.Conditions)
	also := make([]Alternative, 0, len(e.Also))
	for _, a := range e.Also {
		a.Missing, a.Held = clean(a.Missing), clean(a.Held)
		also = append(also, a)
	}
	e.Also = also
	if e.Nearest != nil {
		n := *e.Nearest
		n.Missing, n.Held = clean(n.Missing), clean(n.Held)
		e.Nearest = &n
	}
	head, _, _ := strings.Cut(e.Text, "\n")
	e.Text = e.body(head)
	return e
}

// words is the administrator's text.
func (e *Explanation) words(out rego.Outcome) string {
	return e.body(e.headline(out))
}

func (e *Explanation) headline(out rego.Outcome) string {
	name := fmt.Sprintf("Control %q", e.PolicyName)
	if e.PolicyVersion > 0 {
		name += fmt.Sprintf(" (version %d)", e.PolicyVersion)
	}
	at := ""
	if e.Line > 0 {
		at = fmt.Sprintf(" in line %d", e.Line)
	}
	switch {
	case out.Err != nil:
		return fmt.Sprintf("%s denied: it could not be evaluated%s: %s", name, at, lang.FirstLine(out.Reason))
	case e.Effect == "ALLOW" && e.Rule != "":
		return fmt.Sprintf("%s allowed: rule %s%s holds.", name, e.Rule, at)
	case e.Effect == "MASK" && e.Rule != "":
		return fmt.Sprintf("%s allowed with masks: rule %s%s holds.", name, e.Rule, at)
	case e.Effect == "DENY" && e.Rule == "deny":
		return fmt.Sprintf("%s denied: rule deny%s holds.", name, at)
	case e.Effect == "DENY" && len(e.Conditions) > 0:
		return fmt.Sprintf("%s denied: rule %s%s is false.", name, e.Rule, at)
	case e.Effect == "DENY" && at != "":
		return fmt.Sprintf("%s denied: no rule allows it, and %s is false by default%s.", name, e.Rule, at)
	case e.Effect == "NO_MATCH":
		return name + " does not apply: none of its rules holds, so access is not granted."
	default:
		return fmt.Sprintf("%s decided %s.", name, e.Effect)
	}
}

// body is the text below the headline.
func (e *Explanation) body(head string) string {
	var b strings.Builder
	b.WriteString(head)
	for _, c := range e.Conditions {
		writeCondition(&b, c, "", "  ")
	}
	for _, a := range e.Also {
		fmt.Fprintf(&b, "\nRule %s in line %d holds too.", a.Rule, a.Line)
	}
	if n := e.Nearest; n != nil {
		switch {
		case e.Rule == "deny" && len(n.Missing) == 0:
			fmt.Fprintf(&b, "\nWithout that, rule %s in line %d would have allowed.", n.Rule, n.Line)
		case e.Rule == "deny":
			fmt.Fprintf(&b, "\nWithout that, the nearest rule that would have allowed is %s in line %d. What would have to be different:", n.Rule, n.Line)
		default:
			fmt.Fprintf(&b, "\nNearest rule that would have allowed: %s in line %d. What would have to be different:", n.Rule, n.Line)
		}
		for _, c := range n.Missing {
			must := "must hold"
			if c.Holds {
				must = "must not hold"
			}
			writeCondition(&b, c, must, "  ")
		}
	}
	if e.Partial {
		b.WriteString("\nNot everything could be explained.")
	}
	return b.String()
}

func writeCondition(b *strings.Builder, c Condition, must, indent string) {
	fmt.Fprintf(b, "\n%sline %d: %s", indent, c.Line, c.Source)
	var notes []string
	if must == "" && !c.Holds {
		notes = append(notes, "does not hold")
	}
	if must != "" {
		notes = append(notes, must)
	}
	if c.Unreached {
		notes = append(notes, "was not reached")
	}
	for _, v := range c.Values {
		notes = append(notes, v.words())
	}
	if len(notes) > 0 {
		fmt.Fprintf(b, "  (%s)", strings.Join(notes, "; "))
	}
	for _, x := range c.Because {
		writeCondition(b, x, "", indent+"  ")
	}
}

// maxShownValue is where a value is cut in a text.
const maxShownValue = 120

func (v Binding) words() string {
	name := v.Path
	if v.Variable != "" && v.Variable != v.Path {
		name = v.Variable + ", " + v.Path
	}
	if !v.Value.Defined() {
		return name + " is absent"
	}
	text := string(v.Value.AppendJSON(nil))
	if len(text) > maxShownValue {
		text = strings.ToValidUTF8(text[:maxShownValue], "") + "..."
	}
	return name + " = " + text
}
