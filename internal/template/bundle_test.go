package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestBundle checks that the templates in a bundle make the same decisions in a gatehouse bouncer and
// in a stock OPA.
func TestBundle(t *testing.T) {
	fulltest.Only(t)
	c := catalogue(t)
	spec := rego.SetSpec{Revision: 1, Env: "sandbox"}
	var inputs []map[string]any
	var wants []Want
	for i, id := range ids {
		tpl, _ := c.Get(id)
		n := int64(i + 1)
		res := maps.Clone(tpl.Traffic().Resource)
		res["id"] = n
		f, err := tpl.Fill(res)
		errtest.Must(t, err)
		ctl, issues := rego.Compile(rego.Meta{ID: n, Name: id, Version: 1, ResourceID: n}, f.Source)
		if len(issues) > 0 {
			t.Fatal(issues)
		}
		spec.Controls = append(spec.Controls, ctl)
		spec.Resources = append(spec.Resources, target.Resource{ID: n, Name: id, Type: "x", Path: fmt.Sprintf("/%d/**", n), Doc: document(t, res)})
		for _, x := range tpl.Traffic().Exchanges {
			in := mergeInto(x.Input, map[string]any{"resource": map[string]any{"id": n}})
			inputs, wants = append(inputs, in), append(wants, x.Want)
		}
	}
	set := rego.NewSet(spec)
	data, err := bundle.Write(bundle.Spec{Revision: "1", Set: set})
	errtest.Must(t, err)
	read, err := bundle.Reader{}.Read(data)
	errtest.Must(t, err)
	stock := askOPA(t, data, inputs)
	for i, in := range inputs {
		here := decide(t, set, document(t, in))
		if here["effect"] != wants[i].Effect {
			t.Errorf("input %d: %v, want %+v", i, here, wants[i])
		}
		if d := cmp.Diff(here, decide(t, read.Set, document(t, in))); d != "" {
			t.Errorf("input %d: the set of the bundle decides otherwise:\n%s", i, d)
		}
		if stock == nil {
			continue
		}
		if d := cmp.Diff(here, stock[i]); d != "" {
			t.Errorf("input %d: a stock OPA decides otherwise:\n%s", i, d)
		}
	}
}

// TestEmptyParameters checks that an author may replace any list with an empty one. A stock OPA must
// accept that, too, although it infers types from literal lists.
func TestEmptyParameters(t *testing.T) {
	c := catalogue(t)
	spec := rego.SetSpec{Revision: 1, Env: "sandbox"}
	for i, id := range ids {
		tpl, _ := c.Get(id)
		text, at := "", 0
		for _, pl := range tpl.places {
			p := tpl.Parameters[pl.parameter]
			text += tpl.source[at:pl.from]
			switch at = pl.to; p.Type {
			case "array":
				text += p.Name + " := []"
			case "object":
				text += p.Name + " := {}"
			default:
				text += tpl.source[pl.from:pl.to]
			}
		}
		ctl := compile(t, id, text+tpl.source[at:])
		for _, tc := range tpl.cases {
			if out := evaluate(t, ctl, document(t, tc.Input)); out.Err != nil {
				t.Errorf("%s with empty lists: %s: %v, want no error", id, tc.Name, out.Err)
			}
		}
		ctl, _ = rego.Compile(rego.Meta{ID: int64(i + 1), Name: id, Version: 1}, ctl.Source())
		spec.Controls = append(spec.Controls, ctl)
	}
	if fulltest.Inner() {
		return // TestBundle asks a stock OPA
	}
	data, err := bundle.Write(bundle.Spec{Revision: "1", Set: rego.NewSet(spec)})
	errtest.Must(t, err)
	askOPA(t, data, []map[string]any{{"user": map[string]any{"id": "ann"}}})
}

// decide returns a decision as JSON.
func decide(t *testing.T, s *rego.Set, in value.Value) map[string]any {
	t.Helper()
	r, bad := rego.ParseRequest(in)
	if bad != nil {
		t.Fatal(bad)
	}
	d := s.Decide(t.Context(), &r, rego.Options{Now: now, Deadline: roomy.Deadline})
	out := map[string]any{}
	errtest.Must(t, json.Unmarshal(d.AppendJSON(nil), &out))
	return out
}

// askOPA evaluates with the stock OPA that the tests of package rego use. It returns nil if there
// is none.
func askOPA(t *testing.T, bundle []byte, inputs []map[string]any) []map[string]any {
	t.Helper()
	opa := ""
	for _, path := range []string{os.Getenv("GATEHOUSE_TEST_OPA"), "../../bin/opa", filepath.Join(os.TempDir(), "gatehouse-test-opa", "opa")} {
		if _, err := os.Stat(path); err == nil {
			opa = path
			break
		}
	}
	if opa == "" {
		if os.Getenv("GATEHOUSE_TEST_REQUIRE") == "all" {
			t.Fatal("there is no stock OPA: build it with go test ./internal/rego")
		}
		t.Log("there is no stock OPA: the templates are not evaluated with one")
		return nil
	}
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"inputs": inputs})
	errtest.Must(t, err)
	for name, content := range map[string][]byte{"bundle.tar.gz": bundle, "in.json": text} {
		errtest.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	out, err := exec.CommandContext(t.Context(), opa, "eval", "--bundle", filepath.Join(dir, "bundle.tar.gz"), "--input", filepath.Join(dir, "in.json"),
		"--format", "json", `[d | some i in input.inputs; d := data.gatehouse.decision with input as i]`).Output()
	var doc struct {
		Result []struct {
			Expressions []struct{ Value []map[string]any }
		}
	}
	if jerr := json.Unmarshal(out, &doc); err != nil || jerr != nil || len(doc.Result) == 0 {
		t.Fatalf("opa: %v %v: %s", err, jerr, out)
	}
	if got := doc.Result[0].Expressions[0].Value; len(got) == len(inputs) {
		return got
	}
	t.Fatalf("opa: the output is %s, want an answer to each of %d inputs", out, len(inputs))
	return nil
}
