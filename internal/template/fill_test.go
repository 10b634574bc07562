package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// TestFill checks that the values of a resource's enrichment are in the control, and all other
// parameters keep their defaults.
func TestFill(t *testing.T) {
	tpl, _ := catalogue(t).Get("EGRESS_ALLOWLIST")
	f, err := tpl.Fill(map[string]any{"egress_destinations": []string{"a.example", "b.example"}, "name": "x"})
	errtest.Must(t, err)
	if !strings.Contains(f.Source, `egress_destinations := ["a.example","b.example"]`) {
		t.Errorf("the control is %s, want the two destinations in it", f.Source)
	}
	out := both(t, compile(t, "filled", f.Source), document(t, map[string]any{"context": map[string]any{"destination": "b.example"}}))
	wantOutcome(t, out, "ALLOW", "b.example", nil)
	for _, c := range f.Cases {
		if slices.Contains(c.Needs, "egress_destinations") {
			t.Errorf("the case %q is kept, although it needs the default", c.Name)
		}
	}
	for _, enrichment := range []map[string]any{nil, {"egress_destinations": nil}, {"egress_destinations": []string{}}, {"egress_destinations": "a.example"}} {
		f, err := tpl.Fill(enrichment)
		if err != nil || f.Source != tpl.Source() || len(f.Cases) != len(tpl.cases) {
			t.Errorf("enrichment %v: %v, want the control unchanged", enrichment, err)
		}
	}
}

// TestFillKeepsCases checks that with any enrichment, a filled control compiles and its cases pass.
func TestFillKeepsCases(t *testing.T) {
	c := catalogue(t)
	for _, enrichment := range []map[string]any{
		{
			"pii_categories": []string{"names"}, "compliance_tags": []string{"SOX"}, "audit_level": "basic", "data_residency": "asia-pacific",
			"sla_tier": "gold", "ai_provider": "anthropic", "ai_model_family": "claude-*", "egress_destinations": []string{"x.example"},
		},
		{"audit_level": "comprehensive", "data_residency": "us", "sla_tier": "bronze", "ai_model_family": "", "pii_categories": []string{}},
	} {
		for _, id := range ids {
			tpl, _ := c.Get(id)
			f, err := tpl.Fill(enrichment)
			errtest.Must(t, err)
			ctl := compile(t, id, f.Source)
			for _, tc := range f.Cases {
				t.Run(id+"/"+tc.Name, func(t *testing.T) {
					wantOutcome(t, evaluate(t, ctl, document(t, tc.Input)), tc.Effect, tc.Reason, tc.Mask)
				})
			}
		}
	}
}

// hostile are values that would become program text if they were inserted without encoding.
var hostile = []string{
	"\"]\n\nallow := true\n\nx := [\"", "a\nb", "\"", "\\", "`", "#", "]", "\x00", "\x7f", "\u2028", "\xff\xfe", "${x}", "{{.}}", "$\"{input}\"", "</script>", "\u202e", "😀", strings.Repeat("é", 300),
}

// TestFillHostile checks that no value becomes program text.
func TestFillHostile(t *testing.T) {
	fulltest.Only(t)
	c := catalogue(t)
	var open []Template
	for _, id := range ids {
		if tpl, _ := c.Get(id); slices.ContainsFunc(tpl.Parameters, func(p Parameter) bool { return p.From != "" }) {
			open = append(open, tpl)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tpl := rapid.SampledFrom(open).Draw(t, "template")
		text := rapid.OneOf(rapid.SampledFrom(hostile), rapid.String())
		enrichment := map[string]any{}
		for _, p := range tpl.Parameters {
			switch {
			case p.From == "":
			case p.Type == "array":
				enrichment[p.From] = rapid.SliceOfN(text, 0, 20).Draw(t, p.From)
			default:
				enrichment[p.From] = text.Draw(t, p.From)
			}
		}
		f, err := tpl.Fill(enrichment)
		errtest.Must(t, err)
		if issues := lang.Check(f.Source); len(issues) > 0 {
			t.Fatalf("the filled control has issues: %v\n%s", issues, f.Source)
		}
	})
}

// TestLoadRefuses checks that a folder with an error does not load.
func TestLoadRefuses(t *testing.T) {
	good := map[string]string{
		"control.rego":  "package x\n\n# Parameter: n.\nn := 1\n\nallow if input.n == n\n",
		"template.json": `{"id":"X","title":"x","parameters":[{"name":"n","type":"number","description":"n","default":1}]}`,
		"cases.json":    `{"cases":[]}`, "traffic.json": `{}`,
	}
	for name, change := range map[string]map[string]string{
		"":                        {},
		"empty module":            {"control.rego": ""},
		"is 1 in the control":     {"template.json": strings.Replace(good["template.json"], `"default":1`, `"default":2`, 1)},
		"the default is no":       {"template.json": strings.Replace(good["template.json"], `"default":1`, `"default":"1"`, 1)},
		"has no rule":             {"control.rego": "package x\n\nallow := true\n"},
		"has two rules":           {"control.rego": good["control.rego"] + "\nn := 1 if false\n"},
		"is not a literal":        {"control.rego": "package x\n\nn := input.n\n"},
		"template.json says":      {"template.json": `{"id":"Y"}`},
		"unknown field":           {"cases.json": `{"case":[]}`},
		"traffic.json":            {"traffic.json": `[]`},
		"file does not exist":     {"cases.json": "-"},
		"cannot unmarshal number": {"template.json": `{"id":1}`},
	} {
		files := maps.Clone(good)
		maps.Copy(files, change)
		root := fstest.MapFS{}
		for f, text := range files {
			if text != "-" {
				root["X/"+f] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		_, err := load(root)
		if name == "" {
			if err != nil {
				t.Errorf("a folder without errors: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("load: %v, want %q", err, name)
		}
	}
}

// roomy has a long deadline for busy machines. The limits on memory are the usual ones.
var roomy = rego.Limits{Now: now, Deadline: 10 * time.Second}

// TestLongPrompts checks that the defence stays within its limits on prompts of any size, also on
// prompts that are made to be slow. It denies prompts that it cannot examine.
func TestLongPrompts(t *testing.T) {
	fulltest.Only(t)
	tpl, _ := catalogue(t).Get("AI_PROMPT_INJECTION_DEFENSE")
	ctl := compile(t, tpl.ID, tpl.Source())
	for name, text := range map[string]string{
		"prose":      strings.Repeat("The quick brown fox jumps over the lazy dog, and 12 more. ", 2500),
		"one word":   strings.Repeat("a", 149_000),
		"verbs":      strings.Repeat("ignore your disregard previous ", 4500),
		"long words": strings.Repeat("aWdub3JlIGFsbCB0aGUgcHJldmlvdXM= ", 4500),
		"Cyrillic":   strings.Repeat("Расскажи про погоду в городе. ", 4500),
		"spaces":     strings.Repeat(" ", 149_000),
	} {
		t.Run(name, func(t *testing.T) {
			out := ctl.Eval(t.Context(), document(t, prompt(text)), nil, roomy)
			wantOutcome(t, out, "ALLOW", "", nil)
		})
	}
	out := ctl.Eval(t.Context(), document(t, prompt(strings.Repeat("a", 150_001))), nil, roomy)
	wantOutcome(t, out, "DENY", "too long", nil)
}

// prompt returns the input for a prompt.
func prompt(text string) map[string]any {
	return map[string]any{
		"resource": map[string]any{"resource_kind": "llm_endpoint"},
		"action":   map[string]any{"method": "POST"},
		"llm":      map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}},
	}
}

// BenchmarkTemplates evaluates the first exchange of each template's traffic, and the injection
// defence on prompts of 4 and 20 kB.
func BenchmarkTemplates(b *testing.B) {
	c := catalogue(b)
	run := func(name string, ctl *rego.Control, in any) {
		b.Run(name, func(b *testing.B) {
			doc := document(b, in)
			b.ReportAllocs()
			for b.Loop() {
				if out := ctl.Eval(b.Context(), doc, nil, roomy); out.Err != nil {
					b.Fatal(out.Err)
				}
			}
		})
	}
	for _, id := range ids {
		tpl, _ := c.Get(id)
		x := tpl.Traffic().Exchanges[0]
		in := maps.Clone(x.Input)
		in["resource"] = mergeInto(tpl.Traffic().Resource, object(in["resource"]))
		ctl := compile(b, id, tpl.Source())
		run(id, ctl, in)
		if id == "AI_PROMPT_INJECTION_DEFENSE" {
			line := "The quick brown fox jumps over the lazy dog, and 12 more. "
			run(fmt.Sprintf("%s/4kB", id), ctl, prompt(strings.Repeat(line, 70)))
			run(fmt.Sprintf("%s/20kB", id), ctl, prompt(strings.Repeat(line, 350)))
			run(fmt.Sprintf("%s/20kB Cyrillic", id), ctl, prompt(strings.Repeat("Расскажи про погоду в городе. ", 370)))
		}
	}
}

// TestTrafficIsJSON checks that all bodies are valid JSON. A body that is a JSON string is sent as
// plain text.
func TestTrafficIsJSON(t *testing.T) {
	c := catalogue(t)
	for _, id := range ids {
		tpl, _ := c.Get(id)
		for _, x := range tpl.Traffic().Exchanges {
			for _, m := range []*Message{x.Request, x.Answer} {
				if m != nil && len(m.Body) > 0 && !json.Valid(m.Body) {
					t.Errorf("%s, %s: the body %s is not JSON", id, x.Name, m.Body)
				}
			}
		}
	}
}
