package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// wide is the maximum length of a name and its literal on one line, in bytes. Regal, the linter of
// Rego, has the same limit for lines.
const wide = 100

// place is the position of a parameter's rule in the source.
type place struct {
	parameter int // index in Parameters
	from, to  int // byte offsets of the whole rule
}

// Filled is a template with the parameters for one resource.
type Filled struct {
	Template
	// Source is the control with the parameters' values in it.
	Source string
	// Cases are the test cases that pass with these values.
	Cases []Case
}

// find locates the rule of each parameter, and checks that its value is the default in
// template.json.
func (t *Template) find() error {
	mod, err := parse(t.source)
	if err != nil {
		return err
	}
	for i, p := range t.Parameters {
		if p.Default == nil || jsonType(p.Default) != p.Type {
			return fmt.Errorf("parameter %s: the default is not a %s", p.Name, p.Type)
		}
		t.Parameters[i].Value = p.Default
		rule, v, err := literal(mod, p.Name)
		if err != nil {
			return err
		}
		if !same(v, p.Default) {
			return fmt.Errorf("parameter %s is %v in the control and %v in template.json", p.Name, v, p.Default)
		}
		from := rule.Location.Offset
		t.places = append(t.places, place{i, from, from + len(rule.Location.Text)})
	}
	slices.SortFunc(t.places, func(a, b place) int { return a.from - b.from })
	return nil
}

// Fill writes values of a resource's enrichment into the control. It writes them as JSON, which is
// also Rego's syntax for literals. It then parses the result and compares it with the values, so
// that no value can become program text. A parameter keeps its default if its enrichment field is
// not set, is empty, or has another type.
func (t Template) Fill(enrichment map[string]any) (Filled, error) {
	out := Filled{Template: t}
	out.Parameters = slices.Clone(t.Parameters)
	for i, p := range out.Parameters {
		if v, ok := enrichment[p.From]; ok && p.From != "" {
			// The way through JSON gives the value the types that jsonType knows.
			plain, err := throughJSON(v)
			if err != nil {
				return out, fmt.Errorf("parameter %s: %w", p.Name, err)
			}
			if jsonType(plain) == p.Type && !empty(plain) {
				out.Parameters[i].Value = plain
			}
		}
	}
	var text strings.Builder
	at := 0
	for _, pl := range t.places {
		p := out.Parameters[pl.parameter]
		text.WriteString(t.source[at:pl.from])
		at = pl.to
		if same(p.Value, p.Default) {
			text.WriteString(t.source[pl.from:pl.to])
			continue
		}
		lit, err := literalText(p.Value, len(p.Name))
		if err != nil {
			return out, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		text.WriteString(p.Name + " := " + lit)
	}
	text.WriteString(t.source[at:])
	out.Source = text.String()
	if err := t.verify(out); err != nil {
		return out, err
	}
	for _, c := range t.cases {
		if !slices.ContainsFunc(out.Parameters, func(p Parameter) bool {
			return slices.Contains(c.Needs, p.Name) && !same(p.Value, p.Default)
		}) {
			out.Cases = append(out.Cases, c)
		}
	}
	return out, nil
}

// verify parses a filled control. It returns an error if a parameter does not have its value, or if
// any other rule changed.
func (t Template) verify(f Filled) error {
	shipped, err := parse(t.source)
	if err != nil {
		return err
	}
	mod, err := parse(f.Source)
	if err != nil {
		return err
	}
	if len(mod.Rules) != len(shipped.Rules) {
		return fmt.Errorf("template %s: %d rules instead of the shipped %d", t.ID, len(mod.Rules), len(shipped.Rules))
	}
	values := map[string]any{}
	for _, p := range f.Parameters {
		_, v, err := literal(mod, p.Name)
		if err != nil {
			return err
		}
		if !same(v, p.Value) {
			return fmt.Errorf("template %s: parameter %s was not filled in", t.ID, p.Name)
		}
		values[p.Name] = v
	}
	for i, r := range mod.Rules {
		if _, is := values[r.Head.Name.String()]; !is && !r.Equal(shipped.Rules[i]) {
			return fmt.Errorf("template %s: a rule beside the parameters changed", t.ID)
		}
	}
	return nil
}

func parse(source string) (*ast.Module, error) {
	return ast.ParseModuleWithOpts("control.rego", source, ast.ParserOptions{RegoVersion: ast.RegoV1})
}

// literal finds the only rule `name := <literal>`, and returns it and its value.
func literal(mod *ast.Module, name string) (*ast.Rule, any, error) {
	var found *ast.Rule
	for _, r := range mod.Rules {
		if ref := r.Head.Ref(); len(ref) == 1 && ref[0].Equal(ast.VarTerm(name)) {
			if found != nil {
				return nil, nil, fmt.Errorf("parameter %s has two rules", name)
			}
			found = r
		}
	}
	if found == nil || found.Default || found.Head.Value == nil {
		return nil, nil, fmt.Errorf("parameter %s has no rule", name)
	}
	v, err := ast.JSON(found.Head.Value.Value)
	if err != nil {
		return nil, nil, fmt.Errorf("parameter %s is not a literal: %w", name, err)
	}
	return found, v, nil
}

// literalText returns a value as JSON, on one line if it is short. It does not escape the
// characters of HTML, but control characters and quotes.
func literalText(v any, indent int) (string, error) {
	encode := func(prefix string) (string, error) {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", prefix)
		if err := enc.Encode(v); err != nil {
			return "", err
		}
		return visible(strings.TrimSuffix(buf.String(), "\n")), nil
	}
	text, err := encode("")
	if err != nil || len(text)+indent <= wide {
		return text, err
	}
	return encode("\t")
}

// visible escapes invisible characters in JSON text: direction marks, joiners, and byte order marks
// (which Rego's scanner refuses). JSON has characters beyond ASCII only in strings, where an escape
// means the same.
func visible(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf && r != 0x7f || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

func throughJSON(v any) (out any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &out)
	return out, err
}

// same reports whether two values are equal as JSON, whatever their Go types are.
func same(a, b any) bool {
	x, err1 := throughJSON(a)
	y, err2 := throughJSON(b)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64, json.Number:
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return ""
}

func empty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
