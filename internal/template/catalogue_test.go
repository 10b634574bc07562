package template

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/oracle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ids are the ids of the templates in the specification.
var ids = []string{
	"AGENT_CODE_EXEC_QUARANTINE", "AGENT_TOOL_USE_CONSENT", "AI_INGRESS_GUARDRAIL", "AI_PROMPT_INJECTION_DEFENSE",
	"AI_TOKEN_RATE_LIMIT", "DETAILED_AUDIT_TRAIL", "EGRESS_ALLOWLIST", "EGRESS_PII_MASKING",
	"MCP_DESTRUCTIVE_ACTION_GUARD", "MCP_TOOL_AUTH", "REGIONAL_ACCESS_LOCK", "REGULATED_DATA_EGRESS",
}

// enrichmentFields are the enrichment fields from which a parameter may get its value.
var enrichmentFields = []string{
	"resource_kind", "data_classification", "compliance_tags", "audit_level", "sla_tier", "data_residency", "ai_provider",
	"ai_model_family", "mcp_protocol_version", "agent_capabilities", "pii_categories", "egress_destinations",
}

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// catalogue returns the shipped templates.
func catalogue(t testing.TB) *Catalogue {
	t.Helper()
	c, err := Load()
	errtest.Must(t, err)
	return c
}

// compiled caches the controls without libraries, which the tests share.
var compiled sync.Map

// compile returns a control, which must compile.
func compile(t testing.TB, id, source string, libs ...lang.Library) *rego.Control {
	t.Helper()
	if c, ok := compiled.Load(id + source); ok && len(libs) == 0 {
		return c.(*rego.Control)
	}
	c, issues := rego.Compile(rego.Meta{ID: 1, Name: id, Version: 1}, source, libs...)
	if len(issues) > 0 {
		t.Fatalf("%s: %v\n%s", id, issues, source)
	}
	if len(libs) == 0 {
		compiled.Store(id+source, c)
	}
	return c
}

// document returns a value as JSON documents are decoded.
func document(t testing.TB, v any) value.Value {
	t.Helper()
	text, err := json.Marshal(v)
	errtest.Must(t, err)
	out, err := value.Decode(text, value.Limits{Depth: 64})
	errtest.Must(t, err)
	return out
}

// both evaluates a control with the native evaluator, and compares the result with that of OPA's
// evaluator (topdown).
func both(t *testing.T, c *rego.Control, in value.Value) rego.Outcome {
	t.Helper()
	out := c.Eval(t.Context(), in, nil, roomy)
	o := topdownOf(t, c)
	var err error
	rules := map[string]value.Value{}
	for _, name := range []string{"deny", "mask", "allow", "reason"} {
		if rules[name], err = o.Rule(t.Context(), name, in, nil, roomy.Now); err != nil && out.Err == nil {
			t.Errorf("%s: topdown fails with %v, native %+v, want both to fail or none", name, err, out)
		}
	}
	if out.Err != nil {
		return out
	}
	d := rules["deny"]
	denied := d.Defined() && !d.False() && (d.Kind() < value.StringKind || d.Len() > 0)
	want := rego.NoMatch
	switch m := rules["mask"]; {
	case denied || rules["allow"].False():
		want = rego.Deny
	case m.Len() > 0:
		want = rego.Mask
	case rules["allow"].True():
		want = rego.Allow
	}
	if out.Effect != want {
		t.Errorf("native %+v, want %v as topdown: %v", out, want, rules)
	}
	if reason, ok := rules["reason"].Str(); ok && reason != "" && want != rego.NoMatch && out.Reason != reason {
		t.Errorf("the native reason is %q, want %q as topdown", out.Reason, reason)
	}
	return out
}

// evaluate evaluates a control. In the full run it calls both. The inner loop uses only the native
// evaluator, because compiling a control for OPA is slow; there the corpus of package rego compares
// the two.
func evaluate(t *testing.T, c *rego.Control, in value.Value) rego.Outcome {
	t.Helper()
	if fulltest.Inner() {
		return c.Eval(t.Context(), in, nil, roomy)
	}
	return both(t, c, in)
}

// compiledByOPA caches the controls that were compiled for topdown, because compiling takes most of
// the time.
var compiledByOPA sync.Map

// topdownOf returns a control compiled for topdown.
func topdownOf(t *testing.T, c *rego.Control) *oracle.Control {
	t.Helper()
	if o, ok := compiledByOPA.Load(c.Source()); ok {
		return o.(*oracle.Control)
	}
	var libs []string
	for _, l := range c.Libraries() {
		libs = append(libs, l.Source)
	}
	o, err := oracle.Compile(c.Source(), libs...)
	errtest.Must(t, err)
	compiledByOPA.Store(c.Source(), o)
	return o
}

// masks returns the strategies of masks by path.
func masks(rules []masking.MaskRule) map[string]string {
	out := map[string]string{}
	for _, r := range rules {
		out[r.Path] = r.Strategy
	}
	return out
}

// wantOutcome reports another effect, reason or masks.
func wantOutcome(t *testing.T, out rego.Outcome, effect, reason string, mask map[string]string) {
	t.Helper()
	if out.Err != nil {
		t.Errorf("the evaluation fails with %v", out.Err)
	}
	if out.Effect.String() != effect || !strings.Contains(out.Reason, reason) {
		t.Errorf("the outcome is %s %q, want %s %q", out.Effect, out.Reason, effect, reason)
	}
	if mask != nil && !maps.Equal(masks(out.Mask), mask) {
		t.Errorf("the masks are %v, want %v", masks(out.Mask), mask)
	}
}

var newLinter = sync.OnceValues(func() (*lang.Linter, error) { return lang.NewLinter(context.Background()) })

// wantNoWarning fails the test if the linter warns of a source. The inner loop skips it, because
// preparing the linter takes long.
func wantNoWarning(t *testing.T, source string) {
	t.Helper()
	if fulltest.Inner() {
		return
	}
	linter, err := newLinter()
	errtest.Must(t, err)
	if issues, err := linter.Lint(t.Context(), source); err != nil || len(issues) > 0 {
		t.Errorf("the linter finds %v %v, want nothing in\n%s", issues, err, source)
	}
}

// TestCatalogue checks that all twelve templates exist, are complete, pass the check and the linter,
// and run natively.
func TestCatalogue(t *testing.T) {
	c := catalogue(t)
	if !slices.Equal(c.IDs(), ids) {
		t.Errorf("the catalogue has %v, want %v", c.IDs(), ids)
	}
	packages := map[string]string{}
	for _, id := range c.IDs() {
		t.Run(id, func(t *testing.T) {
			tpl, ok := c.Get(id)
			if !ok || tpl.Title == "" || len(tpl.Description) < 80 || len(tpl.ResourceKinds) == 0 || len(tpl.Inputs) == 0 || len(tpl.Parameters) == 0 {
				t.Errorf("the template is incomplete: %+v", tpl)
			}
			ctl := compile(t, id, tpl.Source())
			if other := packages[ctl.Package()]; other != "" {
				t.Errorf("the package is that of %s, want its own", other)
			}
			packages[ctl.Package()] = id
			wantNoWarning(t, tpl.Source())
			for _, in := range ctl.Refs().Input {
				if !slices.Contains(tpl.Inputs, "input."+strings.Join(in, ".")) {
					t.Errorf("the inputs are %v, want input.%s among them", tpl.Inputs, strings.Join(in, "."))
				}
			}
			for _, p := range tpl.Parameters {
				if p.Description == "" || p.From != "" && !slices.Contains(enrichmentFields, p.From) {
					t.Errorf("parameter %+v has no description, or no known field", p)
				}
				if p.From != "" && !slices.Contains(tpl.Inputs, "input.resource."+p.From) {
					t.Errorf("parameter %s: the control does not read input.resource.%s itself", p.Name, p.From)
				}
			}
		})
	}
}

// TestCases runs all cases of all templates.
func TestCases(t *testing.T) {
	c := catalogue(t)
	for _, id := range c.IDs() {
		tpl, _ := c.Get(id)
		ctl := compile(t, id, tpl.Source())
		t.Run(id, func(t *testing.T) {
			granted, refused := 0, 0
			for _, tc := range tpl.cases {
				t.Run(tc.Name, func(t *testing.T) {
					out := evaluate(t, ctl, document(t, tc.Input))
					wantOutcome(t, out, tc.Effect, tc.Reason, tc.Mask)
					if out.Effect.Permits() != tc.Expected {
						t.Errorf("the effect permits %t, want %t", out.Effect.Permits(), tc.Expected)
					}
				})
				if tc.Expected {
					granted++
				} else {
					refused++
				}
			}
			if granted+refused < 8 || granted < 2 {
				t.Errorf("%d cases grant and %d refuse, want at least 8, of which 2 grant", granted, refused)
			}
		})
	}
}

// TestHostileInputs checks that no form of input makes a control fail. A failure is also a DENY, but
// the bouncer answers it with 503.
func TestHostileInputs(t *testing.T) {
	odd := []any{nil, true, 0, -1.5, 1e300, "", " ", "\x00", "null", []any{}, []any{nil}, []any{[]any{"x"}}, map[string]any{}, map[string]any{"": nil, "id": []any{}}, "ſ\u202eK\u0130"}
	c := catalogue(t)
	for _, id := range c.IDs() {
		t.Run(id, func(t *testing.T) {
			tpl, _ := c.Get(id)
			ctl := compile(t, id, tpl.Source())
			inputs, seen := []map[string]any{{}}, map[string]bool{}
			for _, tc := range tpl.cases {
				for _, path := range paths(tc.Input, nil) {
					if key := fmt.Sprint(path); seen[key] {
						continue
					} else {
						seen[key] = true
					}
					for _, v := range odd {
						inputs = append(inputs, put(tc.Input, path, v))
					}
				}
			}
			for _, in := range inputs {
				doc := document(t, in)
				if out := evaluate(t, ctl, doc); out.Err != nil {
					text, _ := json.Marshal(in)
					t.Fatalf("the evaluation fails with %v for %s", out.Err, text)
				}
			}
		})
	}
}

// paths returns the paths of all members of a document.
func paths(v any, at []string) [][]string {
	m, ok := v.(map[string]any)
	out := [][]string{}
	if !ok {
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p := append(slices.Clone(at), k)
		out = append(append(out, p), paths(m[k], p)...)
	}
	return out
}

// put returns a copy of m with another value at a path.
func put(m map[string]any, path []string, v any) map[string]any {
	out := maps.Clone(m)
	if len(path) == 1 {
		out[path[0]] = v
		return out
	}
	below, _ := m[path[0]].(map[string]any)
	out[path[0]] = put(below, path[1:], v)
	return out
}

// TestTraffic decides the example traffic with the registered resource.
func TestTraffic(t *testing.T) {
	c := catalogue(t)
	for _, id := range c.IDs() {
		t.Run(id, func(t *testing.T) {
			tpl, _ := c.Get(id)
			tr := tpl.Traffic()
			if len(tr.Exchanges) < 3 || tr.Resource["name"] == nil {
				t.Fatalf("%d exchanges for resource %v, want at least 3 for one with a name", len(tr.Exchanges), tr.Resource["name"])
			}
			filled, err := tpl.Fill(tr.Resource)
			errtest.Must(t, err)
			ctl := compile(t, id, filled.Source)
			effects := map[string]bool{}
			for _, x := range tr.Exchanges {
				t.Run(x.Name, func(t *testing.T) {
					in := maps.Clone(x.Input)
					in["resource"] = mergeInto(tr.Resource, object(in["resource"]))
					wantOutcome(t, evaluate(t, ctl, document(t, in)), x.Want.Effect, x.Want.Reason, x.Want.Mask)
				})
				effects[x.Want.Effect] = true
				if x.Request == nil {
					t.Errorf("%s has no request", x.Name)
				}
			}
			if len(effects) < 2 {
				t.Errorf("the effects are %v, want at least two", effects)
			}
		})
	}
}

// object returns v as an object; nil: it is none.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
