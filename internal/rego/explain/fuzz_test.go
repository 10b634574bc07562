package explain

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// FuzzSource: whatever is sent as Rego, nothing panics: neither the check, nor
// the attributes, nor an explanation or a trace of what it decides. What an
// explanation says of the outcome is what Eval says.
func FuzzSource(f *testing.F) {
	addCorpus(f)
	f.Add(payroll, `{"user":{"roles":["clerk"]}}`)
	for _, source := range []string{
		"", "package", "package x", "package x\n\nallow if {", "package x\n\nallow if input[_][_]", "package x\n\nallow if input == input",
		"package x\n\ninput := 1", "package x\n\nimport input\n\nallow if input.a", "package x\n\nallow if {x := input; x.y == [z | z := x.a[_]]}",
		"package x\n\nallow := true if false else := input.a if input.b else := false", "package x\n\nf(input) := input.a\n\nallow if f(input.b)",
		"package x\n\nf(x) := y if {y := x}\n\nallow if f(f(input.a)) == f(input.b)", "package x\n\ndeny contains x if some x, y in input", "package x\n\nallow if every x in input {x}",
		"package x\n\nmask[p] := \"hash\" if some p in input.m", "package x\n\nallow if object.get(input, [\"a\", 1], 2) == 2", "package x\n\nallow if not not input.a",
		"package x\n\nallow if {\n\t\"\\u0000\" in input[\"\\u0000\"]\n}", "package x\n\nallow if input.a.b.c[input.d][\"e\"].f", "package x\n\nallow if {\n\tx = [input.a, y]\n\ty = input.b\n}",
	} {
		f.Add(source, `{"a":1,"b":{"a":2},"m":["x"]}`)
	}
	f.Fuzz(func(t *testing.T, source, input string) {
		_ = lang.Check(source)
		list, issues := lang.Attributes(source)
		again, _ := lang.Attributes(source)
		one, _ := json.Marshal(list)
		if two, _ := json.Marshal(again); string(one) != string(two) || issues != nil && list != nil {
			t.Fatalf("attributes differ: %s, %s", one, two)
		}
		c, issues := rego.Compile(rego.Meta{ID: 1, Name: "fuzz", Version: 1}, source)
		if issues != nil {
			return
		}
		in, err := value.Decode([]byte(input), value.Limits{})
		if err != nil {
			return
		}
		lim := rego.Limits{Deadline: time.Second, Now: explainNow}
		want := c.Eval(context.Background(), in, nil, lim)
		if want.Err != nil || c.Refs().NonDeterministic {
			return
		}
		out, steps, e := Trace(context.Background(), c, in, nil, lim)
		if out.Err == nil && (out.Effect != want.Effect || e.Effect != want.Effect.String()) {
			t.Fatalf("explained %v (%s), decided %v", out.Effect, e.Effect, want.Effect)
		}
		if len(steps) < 2 || len(steps) > reason.MaxSteps || e.Text == "" || e.Public == "" {
			t.Fatalf("%d steps, text %q, public %q", len(steps), e.Text, e.Public)
		}
		errtest.Must(t, errtest.Of(json.Marshal(e)))
		if out.Effect == rego.Allow && !e.Partial && e.Rule != "allow" {
			t.Fatalf("allowed by %q: %s", e.Rule, e.Text)
		}
	})
}

// addCorpus adds the controls of the corpus, each with the first input of its file.
func addCorpus(f *testing.F) {
	f.Helper()
	paths, err := filepath.Glob("../testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no corpus: %v", err)
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		files := map[string]string{}
		for _, part := range strings.Split("\n"+string(text), "\n-- ")[1:] {
			name, content, _ := strings.Cut(part, " --\n")
			files[name] = content
		}
		var cases []struct{ Input json.RawMessage }
		if err := json.Unmarshal([]byte(files["cases.json"]), &cases); err != nil {
			f.Fatalf("%s: %v", p, err)
		}
		for name, source := range files {
			if strings.HasSuffix(name, ".rego") && !strings.HasPrefix(name, "lib/") {
				f.Add(source, string(cases[0].Input))
			}
		}
	}
}
