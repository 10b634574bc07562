// Package reason has explanations of decisions as values: package rego/explain makes them, and the
// audit log stores them. It writes their texts and removes secrets from them. It needs no
// evaluator.
package reason

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// Binding is a value that a condition read.
type Binding struct {
	// Path is the source of the value in Rego's notation, such as input.user.roles[0]. For a
	// computed value it is the variable's name.
	Path string `json:"path" doc:"Source of the value, as written in Rego"`
	// Variable is the author's name for it, if it has one.
	Variable string `json:"variable,omitempty" doc:"The control's own name for it"`
	// Value is undefined if there was no value.
	Value value.Value `json:"value,omitzero" doc:"The value; absent where there was none"`
}

// Condition is one condition of a control's source, and its outcome.
type Condition struct {
	Rule   string `json:"rule" doc:"The rule that contains the condition"`
	Line   int    `json:"line" doc:"Its line in the control, 1-based"`
	Source string `json:"source" doc:"The condition as it is written"`
	Holds  bool   `json:"holds" doc:"Whether it held"`
	// Unreached says that the condition was not evaluated, because it needs a value from an earlier
	// condition that failed.
	Unreached bool      `json:"unreached,omitempty" doc:"Not evaluated, because an earlier condition gave it no value"`
	Values    []Binding `json:"values" doc:"The value that it read"`
	// Because are the conditions of other rules of the control that gave this condition its
	// outcome. All of them must change to change this condition.
	Because []Condition `json:"because,omitempty" doc:"Conditions of the rules that it refers to and that decided its value"`
}

// Alternative is a rule that did not decide.
type Alternative struct {
	Rule string `json:"rule" doc:"The rule's name"`
	Line int    `json:"line" doc:"Its line, 1-based"`
	// Missing are the conditions whose outcome would have to change; one that holds must not
	// hold. They include conditions of other rules that the rule uses.
	Missing []Condition `json:"missing" doc:"What would have to change; a condition that holds must not"`
	Held    []Condition `json:"held" doc:"Conditions that were already met"`
}

// Explanation explains the outcome of one control.
type Explanation struct {
	PolicyID      int64  `json:"policy_id"`
	PolicyName    string `json:"policy_name"`
	PolicyVersion int64  `json:"policy_version"`
	Effect        string `json:"effect" enum:"ALLOW,DENY,MASK,NO_MATCH"`
	// Rule and Line name the rule that decided; they are empty and 0 if no rule did. Line is that
	// of the default rule if no other rule held.
	Rule string `json:"rule,omitempty" doc:"The rule that decided"`
	Line int    `json:"line,omitempty" doc:"Its line, 1-based"`
	// Conditions are the conditions of the rule that decided.
	Conditions []Condition `json:"conditions" doc:"The conditions that made the rule hold"`
	// Also are the other rules that held and give the same decision.
	Also []Alternative `json:"also,omitempty" doc:"Other rules that held and give the same decision"`
	// Nearest is the rule that would have granted access with the fewest changes, if access was
	// not granted; nil if there is none. If a rule deny decided, Nearest assumes that this rule and
	// those in Also no longer hold: one condition of each has to fail. Missing is then empty if
	// nothing else kept access from being granted.
	Nearest *Alternative `json:"nearest,omitempty" doc:"The nearest rule that would have granted access"`
	// Partial says that the explanation is incomplete, because of a limit or an error.
	Partial bool `json:"partial,omitempty" doc:"Not everything could be explained"`
	// Text is for administrators, Public for the person who asked for access.
	Text   string `json:"text" doc:"The explanation in words, for administrators"`
	Public string `json:"public" doc:"The explanation for the person who was refused"`
}

// Redacted returns the explanation with each value replaced by the result of hide, in the texts
// too. hide gets the path and the value.
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
	e.Text = e.Words(head)
	return e
}

// Words returns the text for administrators: a headline, and the conditions below it.
func (e *Explanation) Words(head string) string {
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
		notes = append(notes, v.String())
	}
	if len(notes) > 0 {
		fmt.Fprintf(b, "  (%s)", strings.Join(notes, "; "))
	}
	for _, x := range c.Because {
		writeCondition(b, x, "", indent+"  ")
	}
}

// maxShownValue is the length in bytes at which a value is cut in a text.
const maxShownValue = 120

// String returns a text such as input.user.id = "ann".
func (v Binding) String() string {
	name := v.Path
	if v.Variable != "" && v.Variable != v.Path {
		name = v.Variable + ", " + v.Path
	}
	if !v.Value.Defined() {
		return name + " is absent"
	}
	return name + " = " + truncate.Text(string(v.Value.AppendJSON(nil)), maxShownValue, "...")
}
