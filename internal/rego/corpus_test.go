package rego_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// The corpus: each file in testdata holds a set (controls, resources, data) and
// decision cases over it. Every case goes through four evaluators that must
// agree: the native program, topdown, the set read back from its bundle, and a
// stock OPA that runs the bundle.
//
//	-- set.json --    {"controls":{"1":{"name":…,"resource_id":…}},"resources":[…],"pip":{…}}
//	-- 1.rego --      the control with the id 1
//	-- lib/1.rego --  the library with the id 1
//	-- cases.json --  [{"name":…,"input":{…},"want":{"effect":…,…}}]
//
// want holds the members of the decision that count. "error": true is a control
// that fails: DENY with Err set here, an error of the evaluation in OPA.

type corpusCase struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
	Want  map[string]any  `json:"want"`
}

type corpusFile struct {
	name  string
	set   *rego.Set
	cases []corpusCase
}

// corpusNow is the time of every case; OPA's clock is not used by the corpus.
var corpusNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// txtar splits an archive into its files.
func txtar(text string) map[string]string {
	out := map[string]string{}
	name := ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "-- "); ok {
			if n, ok := strings.CutSuffix(strings.TrimSpace(rest), " --"); ok {
				name = n
				continue
			}
		}
		if name != "" {
			out[name] += line
		}
	}
	return out
}

func loadCorpus(t testing.TB) []corpusFile {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	var out []corpusFile
	for _, p := range paths {
		text, err := os.ReadFile(p)
		errtest.Must(t, err)
		out = append(out, loadCorpusFile(t, filepath.Base(p), txtar(string(text))))
	}
	return out
}

func loadCorpusFile(t testing.TB, name string, files map[string]string) corpusFile {
	t.Helper()
	f := corpusFile{name: name}
	var set struct {
		Controls  map[string]rego.Meta `json:"controls"`
		Resources []target.Resource    `json:"resources"`
		PIP       value.Value          `json:"pip"`
	}
	if text, ok := files["set.json"]; ok {
		if err := json.Unmarshal([]byte(text), &set); err != nil {
			t.Fatalf("%s: set.json: %v", name, err)
		}
	}
	if err := json.Unmarshal([]byte(files["cases.json"]), &f.cases); err != nil {
		t.Fatalf("%s: cases.json: %v", name, err)
	}
	spec := rego.SetSpec{Revision: 3, Env: "production", Resources: set.Resources, PIP: set.PIP}
	var libs []lang.Library
	for file, source := range files {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(file, ".rego"), "lib/"); ok {
			id, err := strconv.ParseInt(name, 10, 64)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, file, err)
			}
			libs = append(libs, lang.Library{ID: id, Name: "library-" + name, Version: 4, Source: source})
		}
	}
	for file, source := range files {
		id, err := strconv.ParseInt(strings.TrimSuffix(file, ".rego"), 10, 64)
		if err != nil {
			continue
		}
		m := set.Controls[strconv.FormatInt(id, 10)]
		m.ID = id
		if m.Name == "" {
			m.Name = fmt.Sprintf("control-%d", id)
		}
		if m.Version == 0 {
			m.Version = 1
		}
		c, issues := rego.Compile(m, source, libs...)
		if issues != nil {
			t.Fatalf("%s: %s: %v", name, file, issues)
		}
		spec.Controls = append(spec.Controls, c)
	}
	f.set = rego.NewSet(spec)
	return f
}

// answer is a decision as the corpus compares it.
func answer(t testing.TB, s *rego.Set, in json.RawMessage, cache *rego.Cache) map[string]any {
	t.Helper()
	r, bad := rego.ParseRequest(valuetest.Decode(t, string(in)))
	if bad != nil {
		t.Fatalf("request: %v", bad)
	}
	d := s.Decide(context.Background(), &r, rego.Options{Cache: cache, Now: corpusNow, Deadline: 5 * time.Second})
	out := map[string]any{}
	errtest.Must(t, json.Unmarshal(d.AppendJSON(nil), &out))
	if d.Err != nil && d.Reason != "Invalid path" && isEvalError(d.Err) {
		out["error"] = true
	}
	return out
}

// compare holds each control in scope of a request to topdown.
func (f *corpusFile) compare(t *testing.T, in json.RawMessage) {
	t.Helper()
	r, _ := rego.ParseRequest(valuetest.Decode(t, string(in)))
	controls, doc := f.set.Scope(&r, &rego.Decision{}) // none where it is refused before any control is asked
	for _, c := range controls {
		got := c.Eval(context.Background(), doc, f.set, rego.Limits{Now: corpusNow, Deadline: 5 * time.Second})
		want := byTopdown(t, c, doc, f.set, corpusNow)
		if (got.Err != nil) != (want.Err != nil) || got.Effect != want.Effect || got.Err == nil && got.Reason != want.Reason || !cmp.Equal(got.Mask, want.Mask) {
			t.Errorf("control %d: %+v\ntopdown: %+v", c.Meta().ID, got, want)
		}
	}
}

// isEvalError tells an error that Rego itself raises from a value that the
// control should not have answered: the first ends OPA's evaluation too.
func isEvalError(err error) bool {
	e, ok := errors.AsType[*rego.EvalError](err)
	return ok && e.Line > 0
}

func TestCorpus(t *testing.T) {
	total, controls := 0, 0
	for _, f := range loadCorpus(t) {
		total += len(f.cases)
		controls += len(f.set.Controls())
		t.Run(f.name, func(t *testing.T) {
			data, err := bundle.Write(bundle.Spec{Revision: "3", Set: f.set})
			errtest.Must(t, err)
			read, err := readBundle(data)
			errtest.Must(t, err)
			var stock []map[string]any
			if !fulltest.Inner() {
				stock = askOPA(t, apptest.OPA(t), data, f.cases)
			}
			cache := rego.NewCache(1 << 20)
			for i, c := range f.cases {
				t.Run(c.Name, func(t *testing.T) {
					got := answer(t, f.set, c.Input, nil)
					for k, want := range c.Want {
						if !cmp.Equal(want, got[k]) {
							t.Errorf("%s: got %v, want %v (in %v)", k, got[k], want, got)
						}
					}
					for name, other := range map[string]map[string]any{
						"bundle": answer(t, read.Set, c.Input, nil),
						"cache":  answer(t, f.set, c.Input, cache),
						"cached": answer(t, f.set, c.Input, cache),
					} {
						if d := cmp.Diff(got, other); d != "" {
							t.Errorf("%s differs:\n%s", name, d)
						}
					}
					f.compare(t, c.Input)
					if stock == nil {
						return // the inner loop asks no stock OPA
					}
					if got["error"] == true {
						if stock[i] != nil {
							t.Errorf("the stock OPA answers %v to a control that fails", stock[i])
						}
					} else if d := cmp.Diff(got, stock[i]); d != "" {
						t.Errorf("the stock OPA differs:\n%s", d)
					}
				})
			}
		})
	}
	t.Logf("%d cases of %d controls", total, controls)
	if total < 60 {
		t.Errorf("the corpus holds only %d cases", total)
	}
}

// askOPA runs the cases in a stock OPA over a bundle; nil is an error.
func askOPA(t *testing.T, opa string, bundle []byte, cases []corpusCase) []map[string]any {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bundle.tar.gz")
	errtest.Must(t, os.WriteFile(file, bundle, 0o600))
	eval := func(which []int) ([]map[string]any, string) {
		inputs := []json.RawMessage{}
		for _, i := range which {
			inputs = append(inputs, cases[i].Input)
		}
		text, err := json.Marshal(map[string]any{"inputs": inputs})
		errtest.Must(t, err)
		in := filepath.Join(dir, "in.json")
		errtest.Must(t, os.WriteFile(in, text, 0o600))
		cmd := exec.CommandContext(t.Context(), opa, "eval", "--bundle", file, "--input", in, "--format", "json",
			`[d | some i in input.inputs; d := data.gatehouse.decision with input as i]`)
		out, err := cmd.Output()
		var doc struct {
			Result []struct {
				Expressions []struct{ Value []map[string]any }
			}
			Errors []struct{ Message, Code string }
		}
		if jerr := json.Unmarshal(out, &doc); jerr != nil {
			t.Fatalf("opa: %v %v: %s", err, jerr, out)
		}
		if len(doc.Errors) > 0 {
			return nil, doc.Errors[0].Code + ": " + doc.Errors[0].Message
		}
		return doc.Result[0].Expressions[0].Value, ""
	}
	var fine []int
	for i, c := range cases {
		if c.Want["error"] != true {
			fine = append(fine, i)
		}
	}
	answers := make([]map[string]any, len(cases))
	got, msg := eval(fine)
	if msg != "" || len(got) != len(fine) {
		t.Fatalf("opa: %d of %d answers: %s", len(got), len(fine), msg)
	}
	for n, i := range fine {
		answers[i] = got[n]
	}
	for i := range cases {
		if !slices.Contains(fine, i) {
			got, msg := eval([]int{i})
			if msg == "" && len(got) > 0 {
				answers[i] = got[0]
			}
		}
	}
	return answers
}
