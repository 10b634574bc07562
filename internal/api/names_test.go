package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestNames sends each operation that takes a name one with characters that are
// not seen, at every place where its schema has one.
func TestNames(t *testing.T) {
	r := whole(t)
	tried := map[string]int{}
	for _, rt := range r.routes {
		if rt.body == nil {
			continue
		}
		for _, at := range namePlaces(r.valid, rt.body, nil, nil) {
			tried[at[slices.IndexFunc(at, func(s string) bool { return s != "0" })]]++
			for _, bad := range []string{"a\nb", "a\tb", "\u001b[2Jx", "x\u0085", "pay\u202egnp", "\u2066x\u2069", "\u200fx", "\u061cx", "a\u2028b", "pay\u200broll", "\ufeffpayroll", "pay\u00adroll", "payroll\u3164", "payroll\U000e0041"} {
				c := check{v: r.valid}
				c.value(rt.body, nil, placed(t, at, bad))
				if !slices.ContainsFunc(c.details, func(d fault.Detail) bool {
					return d.Pointer == pointer(at) && strings.Contains(d.Message, "direction of text")
				}) {
					t.Errorf("%s takes %q at %s: %v", rt.op.ID, bad, pointer(at), c.details)
				}
			}
			for _, good := range []string{"Zahlungen: nur für Eigentümer", "支払い", "مدفوعات", "תשלומים", "a\u200db", "👩\u200d💻 team", "❤\ufe0f"} {
				c := check{v: r.valid}
				c.value(rt.body, nil, placed(t, at, good))
				if slices.ContainsFunc(c.details, func(d fault.Detail) bool { return strings.Contains(d.Message, "direction of text") }) {
					t.Errorf("%s refuses %q at %s", rt.op.ID, good, pointer(at))
				}
			}
		}
	}
	for member, least := range map[string]int{"name": 10, "username": 2, "compliance_tags": 2} {
		if tried[member] < least {
			t.Errorf("%d places named %s were tried, fewer than there are: %v", tried[member], member, tried)
		}
	}
}

// namePlaces are the paths of a body's texts that are names: below a member of such
// a name, or of a list of it.
func namePlaces(v *validator, s *huma.Schema, at []string, above []*huma.Schema) (out [][]string) {
	if s = v.deref(s); s == nil || slices.Contains(above, s) {
		return nil
	}
	above = append(slices.Clone(above), s)
	if s.Items != nil {
		out = namePlaces(v, s.Items, append(slices.Clone(at), "0"), above)
	}
	for member, prop := range s.Properties {
		here := append(slices.Clone(at), member)
		if slices.Contains([]string{"name", "username", "tags", "compliance_tags", "roles"}, member) && prop.Ref == "" && !prop.ReadOnly {
			switch {
			case prop.Type == huma.TypeString && len(prop.Enum) == 0:
				out = append(out, here)
			case prop.Type == huma.TypeArray && prop.Items.Type == huma.TypeString && len(prop.Items.Enum) == 0:
				out = append(out, append(here, "0"))
			}
		}
		out = append(out, namePlaces(v, prop, here, above)...)
	}
	return out
}

// placed is a document with a text at a path.
func placed(t *testing.T, at []string, text string) value.Value {
	t.Helper()
	var doc any = text
	for _, step := range slices.Backward(at) {
		if step == "0" {
			doc = []any{doc}
			continue
		}
		doc = map[string]any{step: doc}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	v, err := value.Decode(raw, value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
