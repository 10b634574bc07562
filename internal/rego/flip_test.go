package rego_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/template"
)

// An explanation is right if the decision flips when the conditions that it
// names are turned around. The flips are derived mechanically from the text of
// the condition (equality: set the value; membership: add it; comparison: move
// across; truth: set or take away). What has no mechanical way is counted apart.

type verdict int

const (
	flipped      verdict = iota
	followed             // flips after the explanation of a deny rule that the flip set off
	tookOver             // a deny rule took over that did not hold before
	stayed               // the explanation was wrong
	unmechanical         // no mechanical way
	unexplained          // nothing is named: there is no rule that would allow, or no condition
	verdicts
)

func decide(c *rego.Control, w world) (rego.Outcome, reason.Explanation) {
	in, err1 := value.FromAny(w.input)
	data, err2 := value.FromAny(w.data)
	if err1 != nil || err2 != nil {
		panic("a world that is no JSON")
	}
	return explain.Control(context.Background(), c, in, rego.Object(data), rego.Limits{Deadline: 5 * time.Second, Now: time.Unix(1_800_000_000, 0)})
}

// judge turns one decision around by its explanation.
func judge(c *rego.Control, w world) (verdict, reason.Explanation) {
	out, e := decide(c, w)
	if out.Err != nil {
		return unexplained, e
	}
	switch out.Effect {
	case rego.Allow, rego.Mask:
		return judgeHeld(c, w, e, func(o rego.Outcome) bool { return o.Effect != out.Effect }), e
	case rego.Deny:
		if e.Rule == "deny" {
			return judgeDenied(c, w, e, 4), e
		}
	}
	if e.Nearest == nil || len(e.Nearest.Missing) == 0 {
		return unexplained, e
	}
	f := newFlipper(w, e.Nearest.Held, e.Nearest.Missing)
	if !meet(f, e.Nearest.Missing) {
		return unmechanical, e
	}
	if o, _ := decide(c, f.world); o.Effect.Permits() {
		return flipped, e
	}
	return stayed, e
}

// meet turns every condition of a list.
func meet(f *flipper, missing []reason.Condition) bool {
	for _, c := range missing {
		if !f.flip(c, !c.Holds) {
			return false
		}
	}
	return true
}

// judgeHeld makes a condition fail of the rule that decided, and of each other
// rule that would have decided the same. Every one of the deciding rule's
// conditions is tried; all that can be turned mechanically have to do it.
func judgeHeld(c *rego.Control, w world, e reason.Explanation, changed func(rego.Outcome) bool) verdict {
	result := unmechanical
	if len(e.Conditions) == 0 {
		return unexplained
	}
	for _, cond := range e.Conditions {
		f := newFlipper(w, e.Conditions)
		if !f.flip(cond, !cond.Holds) {
			continue
		}
		if o, again := decide(c, f.world); changed(o) || again.Line != e.Line {
			// This rule no longer holds; the others that it named must go too.
			if changed(o) || breakAll(c, f.world, again, changed, len(e.Also)+1) {
				result = flipped
				continue
			}
		}
		return stayed
	}
	return result
}

// breakAll breaks one condition of each rule that still decides the same.
func breakAll(c *rego.Control, w world, e reason.Explanation, changed func(rego.Outcome) bool, left int) bool {
	if left == 0 {
		return false
	}
	for _, cond := range e.Conditions {
		f := newFlipper(w, e.Conditions)
		if !f.flip(cond, !cond.Holds) {
			continue
		}
		o, again := decide(c, f.world)
		if changed(o) || again.Line != e.Line && breakAll(c, f.world, again, changed, left-1) {
			return true
		}
	}
	return false
}

// judgeDenied lifts the deny rules that are named, one condition of each, and
// meets what was missing, if anything, of the rule that would have allowed.
// Every condition of the rule is tried: none may leave that rule as it was, and
// one has to turn the decision. Where each sets off a deny rule that did not hold
// before, that one's explanation is followed in turn, and it is counted apart.
func judgeDenied(c *rego.Control, w world, e reason.Explanation, rounds int) verdict {
	result := unmechanical
	for _, cond := range e.Conditions {
		f := newFlipper(w, e.Conditions)
		if e.Nearest != nil {
			f = newFlipper(w, e.Conditions, e.Nearest.Held, e.Nearest.Missing)
		}
		if !f.flip(cond, !cond.Holds) {
			continue
		}
		if _, again := decide(c, f.world); again.Rule == "deny" && again.Line == e.Line && len(again.Also) >= len(e.Also) {
			return stayed
		}
		if e.Nearest != nil && !meet(f, e.Nearest.Missing) {
			continue
		}
		o, again := decide(c, f.world)
		switch {
		case o.Effect.Permits() || e.Nearest == nil && o.Effect != rego.Deny:
			return flipped
		case again.Rule != "deny":
			return stayed
		case !named(e, again.Line):
			result = min(result, tookOver)
			if result != followed && rounds > 0 && judgeDenied(c, f.world, again, rounds-1) <= followed {
				result = followed
			}
		case rounds > 0:
			if v := judgeDenied(c, f.world, again, rounds-1); v == flipped {
				return v
			} else if v != stayed {
				result = min(result, v)
			}
		}
	}
	return result
}

func named(e reason.Explanation, line int) bool {
	return line == e.Line || slices.ContainsFunc(e.Also, func(a reason.Alternative) bool { return a.Line == line })
}

// tally counts the verdicts of one source of decisions.
type tally struct {
	n     [verdicts]int
	shown int
}

func (y *tally) add(t *testing.T, c *rego.Control, w world) {
	v, e := judge(c, w)
	y.n[v]++
	if (v == stayed || v == tookOver) && y.shown < 3 {
		y.shown++
		in, _ := json.Marshal(w.input)
		t.Logf("did not flip (%d): %s\ninput: %s", v, e.Text, in)
	}
}

func (y *tally) rate() float64 {
	if y.judged() == 0 {
		return 0
	}
	return float64(y.n[flipped]) / float64(y.judged())
}

func (y *tally) judged() int { return y.n[flipped] + y.n[followed] + y.n[tookOver] + y.n[stayed] }

func (y *tally) String() string {
	return fmt.Sprintf("%d of %d decisions flip (%.2f %%), %d after a second deny rule that the flip set off, in %d that one stays, in %d the explanation is wrong; %d cannot be flipped mechanically, %d name no condition",
		y.n[flipped], y.judged(), 100*y.rate(), y.n[followed], y.n[tookOver], y.n[stayed], y.n[unmechanical], y.n[unexplained])
}

func TestExplanationsFlip(t *testing.T) {
	fulltest.Only(t)
	var all tally
	for _, s := range []struct {
		name string
		run  func(t *testing.T, y *tally)
		min  int
		rate float64 // in one step
	}{{"corpus", flipCorpus, 100, 0.99}, {"templates", flipTemplates, 300, 0.85}, {"controls", flipControls, 300, 0.99}} {
		var y tally
		s.run(t, &y)
		t.Logf("%s: %s", s.name, &y)
		if y.judged() < s.min {
			t.Errorf("%s: only %d decisions were judged, want %d", s.name, y.judged(), s.min)
		}
		if y.rate() < s.rate {
			t.Errorf("%s: %.2f %% of the decisions flip, want %.2f %%", s.name, 100*y.rate(), 100*s.rate)
		}
		for i := range y.n {
			all.n[i] += y.n[i]
		}
	}
	t.Logf("in all: %s", &all)
	if right := 1 - float64(all.n[stayed])/float64(all.judged()); right < 0.99 {
		t.Errorf("%.2f %% of the explanations are right, want 99 %%", 100*right)
	}
}

// variants are a world and those around it: each attribute that the control
// reads taken away, and set to what the control compares it with.
func variants(c *rego.Control, base world) []world {
	out := []world{base}
	list, _ := lang.Attributes(c.Source())
	for _, a := range list {
		s := parseSpot("input." + a.Key)
		if s == nil {
			continue
		}
		values := append(slices.Clone(a.Values), gone)
		switch a.Type {
		case "number":
			values = append(values, 0.0, 1e6)
		case "boolean":
			values = append(values, true, false)
		case "string":
			values = append(values, "other")
		case "array":
			for i, v := range values[:len(values)-1] {
				values[i] = []any{v}
			}
			values = append(values, []any{})
		}
		for _, v := range values {
			w := base.copy()
			if w.set(s, number(deepCopy(v))) {
				out = append(out, w)
			}
		}
	}
	return out
}

func asMap(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	errtest.Must(t, err)
	out := map[string]any{}
	errtest.Must(t, json.Unmarshal(text, &out))
	return out
}

// flipCorpus asks every control of the decision corpus about every input of its file.
func flipCorpus(t *testing.T, y *tally) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		errtest.Must(t, err)
		files := txtar(string(text))
		var set struct {
			Resources []map[string]any `json:"resources"`
			PIP       map[string]any   `json:"pip"`
		}
		var cases []struct {
			Input map[string]any `json:"input"`
		}
		if s, ok := files["set.json"]; ok {
			errtest.Must(t, json.Unmarshal([]byte(s), &set))
		}
		errtest.Must(t, json.Unmarshal([]byte(files["cases.json"]), &cases))
		resources := map[string]any{}
		for _, r := range set.Resources {
			doc, _ := r["doc"].(map[string]any)
			if id, ok := r["id"].(float64); ok {
				resources[strconv.FormatFloat(id, 'f', -1, 64)] = doc
			}
		}
		data := map[string]any{"resources": resources, "pip": set.PIP}
		var libs []lang.Library
		for _, name := range sortedNames(files) {
			if id, ok := strings.CutPrefix(name, "lib/"); ok {
				libs = append(libs, lang.Library{ID: 100 + int64(len(libs)), Name: id, Version: 1, Source: files[name]})
			}
		}
		for _, name := range sortedNames(files) {
			source := files[name]
			if !strings.HasSuffix(name, ".rego") || strings.Contains(name, "/") {
				continue
			}
			c, issues := rego.Compile(rego.Meta{ID: 1, Name: name, Version: 1}, source, libs...)
			if issues != nil {
				t.Fatal(issues)
			}
			for _, k := range cases {
				y.add(t, c, world{k.Input, data}.copy())
			}
		}
	}
}

func sortedNames(files map[string]string) []string {
	var out []string
	for n := range files {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// flipTemplates asks the shipped templates about their traffic and cases, and
// about inputs made from those.
func flipTemplates(t *testing.T, y *tally) {
	catalogue, err := template.Load()
	errtest.Must(t, err)
	step := fulltest.Rounds(8, 1) // every eighth in the inner loop
	for _, id := range catalogue.IDs() {
		tpl, _ := catalogue.Get(id)
		c, issues := rego.Compile(rego.Meta{ID: 1, Name: id, Version: 1}, tpl.Source())
		if issues != nil {
			t.Fatal(issues)
		}
		shipped, err := tpl.Fill(nil)
		errtest.Must(t, err)
		var inputs []map[string]any
		for _, k := range shipped.Cases {
			inputs = append(inputs, asMap(t, k.Input))
		}
		for _, x := range tpl.Traffic().Exchanges {
			in := asMap(t, x.Input)
			in["resource"] = asMap(t, tpl.Traffic().Resource)
			inputs = append(inputs, in)
		}
		for _, in := range inputs {
			for i, w := range variants(c, world{in, map[string]any{}}) {
				if i%step == 0 {
					y.add(t, c, w)
				}
			}
		}
	}
}
