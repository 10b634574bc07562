package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// line returns a record as the decision log stores it.
func line(members map[string]any, input string) []byte {
	m := map[string]any{"decision_id": "d", "timestamp": noon, "user": map[string]any{"id": "alice"}, "resource": map[string]any{"path": "/x"}, "decision": "PERMIT", "effect": "ALLOW"}
	maps.Copy(m, members)
	if input != "" {
		m["input"] = json.RawMessage(input)
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return text
}

// newComparer returns a Comparer for s.
func newComparer(t testing.TB, s Spec) *Comparer {
	t.Helper()
	s.Samples = 100
	m, refused, err := New(s, time.Now)
	if err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	return m
}

// pair compares two controls.
func pair(base, cand string) Spec {
	return Spec{
		Env:      "production",
		Controls: []Control{{Meta: rego.Meta{ID: 1, Name: "base", Version: 3}, Source: base}, {Meta: rego.Meta{ID: 1, Name: "cand", Version: 4}, Source: cand}},
		Mixes:    []ControlLists{{Baseline: []int{0}, Candidate: []int{1}}},
		Epochs:   []Epoch{{}},
	}
}

// TestCorpus replays all cases of the decision corpus as records. No decision flips and none
// drifts.
func TestCorpus(t *testing.T) {
	paths, err := filepath.Glob("../../rego/testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	total := 0
	for _, path := range paths {
		spec, cases := corpusFile(t, path)
		set := corpusSet(t, spec)
		var lines [][]byte
		for _, c := range cases {
			req, offences := rego.ParseOpen(c)
			if offences != nil {
				t.Fatal(offences)
			}
			d := set.Decide(t.Context(), &req, rego.Options{Now: noon, Deadline: 5 * time.Second})
			word := "DENY"
			if d.Permit {
				word = "PERMIT"
			}
			lines = append(lines, line(map[string]any{"decision": word, "effect": d.Effect.String(), "policy_id": d.PolicyID, "policy_version": d.PolicyVersion}, string(c.AppendJSON(nil))))
		}
		// The candidate has the same controls, compiled separately, so that both sides are evaluated.
		n := len(spec.Controls)
		spec.Controls = append(spec.Controls, spec.Controls...)
		e := &spec.Mixes[0]
		for i := range n {
			e.Candidate = append(e.Candidate, n+i)
		}
		spec.Deadline = 5 * time.Second
		p := newComparer(t, spec).Run(t.Context(), lines, time.Hour)
		if p.Changed != 0 || p.Drifted != 0 || p.Evaluated != int64(len(lines)) {
			t.Errorf("%s: of %d, %d evaluated, %d changed, %d drifted, not replayable %v, want all evaluated and none changed: %+v", filepath.Base(path), len(lines), p.Evaluated, p.Changed, p.Drifted, p.NotReplayable, p.Samples)
		}
		total += len(lines)
	}
	if total < 60 {
		t.Errorf("the corpus has %d cases, want at least 60", total)
	}
}

// corpusFile returns the controls and the inputs of a file of the corpus.
func corpusFile(t *testing.T, path string) (Spec, []value.Value) {
	t.Helper()
	text, err := os.ReadFile(path)
	errtest.Must(t, err)
	files := map[string]string{}
	name := ""
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, "-- "); ok && strings.HasSuffix(strings.TrimSpace(rest), " --") {
			name = strings.TrimSuffix(strings.TrimSpace(rest), " --")
		} else if name != "" {
			files[name] += l
		}
	}
	var set struct {
		Controls  map[string]rego.Meta `json:"controls"`
		Resources []target.Resource    `json:"resources"`
		PIP       json.RawMessage      `json:"pip"`
	}
	var cases []struct{ Input value.Value }
	if files["set.json"] != "" {
		errtest.Must(t, json.Unmarshal([]byte(files["set.json"]), &set))
	}
	errtest.Must(t, json.Unmarshal([]byte(files["cases.json"]), &cases))
	spec := Spec{Env: "production", Revision: 3, Resources: set.Resources, PIP: set.PIP, Epochs: []Epoch{{}}, Mixes: []ControlLists{{}}}
	for file, source := range files {
		if name, ok := strings.CutPrefix(file, "lib/"); ok {
			spec.Libraries = append(spec.Libraries, lang.Library{Name: name, Version: 4, Source: source})
			continue
		}
		id, err := strconv.ParseInt(strings.TrimSuffix(file, ".rego"), 10, 64)
		if err != nil {
			continue
		}
		m := set.Controls[strconv.FormatInt(id, 10)]
		m.ID, m.Version = id, max(m.Version, 1)
		if m.Name == "" {
			m.Name = fmt.Sprintf("control-%d", id)
		}
		spec.Mixes[0].Baseline = append(spec.Mixes[0].Baseline, len(spec.Controls))
		spec.Controls = append(spec.Controls, Control{Meta: m, Source: source})
	}
	for i := range spec.Controls {
		for l := range spec.Libraries {
			spec.Controls[i].Libraries = append(spec.Controls[i].Libraries, l)
		}
	}
	var inputs []value.Value
	for _, c := range cases {
		inputs = append(inputs, c.Input)
	}
	return spec, inputs
}

// corpusSet returns the set that decides in a spec.
func corpusSet(t *testing.T, s Spec) *rego.Set {
	t.Helper()
	m := newComparer(t, s)
	return m.sets.fullAt(0).base
}

const (
	byRole = "package a\n\nallow if input.user.role == \"clerk\"\n"
	byHour = "package a\n\nallow if time.clock(time.now_ns())[0] < 13\n"
)

// TestKinds checks the figures for each kind of record.
func TestKinds(t *testing.T) {
	headers := "package a\n\nallow if input.request.headers.authorization == \"Bearer x\"\n"
	llm := "package a\n\nallow if input.llm.model == \"small\"\n"
	clerk := `{"user":{"id":"alice","role":"clerk"}}`
	for name, c := range map[string]struct {
		base, cand string
		members    map[string]any
		input      string
		check      func(p *Part) bool
	}{
		"the same":                       {byRole, byRole, nil, clerk, func(p *Part) bool { return p.Evaluated == 1 && p.Changed == 0 && p.Drifted == 0 && p.WouldAllow == 1 }},
		"drift of the control":           {byRole, byRole, map[string]any{"policy_id": 1, "policy_version": 2}, `{"user":{"role":"x"}}`, func(p *Part) bool { return p.Drifted == 1 && p.ControlDrift == 1 && p.Changed == 0 && p.NoMatch == 1 }},
		"a shadow denial":                {byRole, byRole, map[string]any{"effect": "SHADOW_WOULD_DENY", "mode": "shadow"}, `{"user":{"role":"x"}}`, func(p *Part) bool { return p.Drifted == 0 && p.WouldBlock == 1 }},
		"by the clock of the time":       {byHour, "package a\n\ndefault allow := false\n", nil, clerk, func(p *Part) bool { return p.NewlyBlocked == 1 && p.Drifted == 0 && p.WouldBlock == 1 }},
		"no input":                       {byRole, byRole, nil, "", func(p *Part) bool { return p.NotReplayable[NoInput] == 1 && p.Evaluated == 0 }},
		"too large to keep":              {byRole, byRole, nil, `{"truncated":true,"bytes":300000}`, func(p *Part) bool { return p.NotReplayable[NoInput] == 1 }},
		"a secret that no control reads": {byRole, byRole, nil, `{"user":{"role":"clerk"},"request":{"headers":{"authorization":"[redacted]"}}}`, func(p *Part) bool { return p.Evaluated == 1 }},
		"a secret that candidates read":  {byRole, headers, nil, `{"user":{"role":"clerk"},"request":{"headers":{"authorization":"[redacted]"}}}`, func(p *Part) bool { return p.NotReplayable[Redacted] == 1 }},
		"a body that was not read":       {byRole, llm, map[string]any{"mode": "enforce", "bouncer_id": 4}, clerk, func(p *Part) bool { return p.NotReplayable[Incomplete] == 1 }},
		"a body that was read":           {llm, llm, map[string]any{"mode": "enforce", "bouncer_id": 4}, `{"llm":{"model":"small"}}`, func(p *Part) bool { return p.WouldAllow == 1 }},
		"an OPA's own input":             {byRole, byRole, map[string]any{"bouncer_id": 4}, `{"user":{"role":"clerk","Role":"x"},"anything":[1]}`, func(p *Part) bool { return p.Evaluated == 1 && p.Drifted == 0 }},
		"no request":                     {byRole, byRole, nil, `{"user":"alice"}`, func(p *Part) bool { return p.NotReplayable[Unreadable] == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newComparer(t, pair(c.base, c.cand)).Run(t.Context(), [][]byte{line(c.members, c.input)}, time.Hour)
			if !c.check(p) || p.Lines != 1 {
				t.Errorf("the figures are %+v, want those of one %s", p, name)
			}
		})
	}
}

// TestViews checks that a bouncer decides with the resources that it protects, and passes requests
// that no control covers unless its default action is to deny.
func TestViews(t *testing.T) {
	s := Spec{
		Env: "production", Controls: []Control{{Meta: rego.Meta{ID: 1, Name: "c", Version: 1, ResourceID: 9}, Source: "package c\n\ndeny if true\n"}},
		Mixes:     []ControlLists{{Candidate: []int{0}}},
		Epochs:    []Epoch{{}},
		Resources: []target.Resource{{ID: 9, Name: "nine", Path: "/nine", Doc: value.Object()}},
		Views:     []View{{BouncerID: 1}, {BouncerID: 2, Resources: []int64{9}}, {BouncerID: 3, Deny: true}},
	}
	input := `{"resource":{"path":"/nine"},"action":{"method":"GET"}}`
	record := func(bouncer int) []byte {
		return line(map[string]any{"bouncer_id": bouncer, "mode": "enforce", "effect": "NO_MATCH"}, input)
	}
	p := newComparer(t, s).Run(t.Context(), [][]byte{record(1), record(2), record(3)}, time.Hour)
	if p.Evaluated != 3 || p.WouldAllow != 1 || p.WouldBlock != 2 || p.NewlyBlocked != 1 || p.Samples[0].BouncerID != 2 || p.Samples[0].ResourceID != 9 {
		t.Errorf("the figures are %+v, want the first allowed, the others blocked, and the second newly", p)
	}
}

// TestEpochs checks that each decision is compared with the controls of its time.
func TestEpochs(t *testing.T) {
	s := pair(byRole, "package a\n\ndeny if true\n")
	s.Mixes = []ControlLists{{Baseline: []int{1}, Candidate: []int{1}}, {Baseline: []int{0}, Candidate: []int{0}}}
	s.Epochs = []Epoch{{From: noon}, {Mix: 1}}
	clerk := `{"user":{"role":"clerk"}}`
	p := newComparer(t, s).Run(t.Context(), [][]byte{
		line(map[string]any{"decision": "DENY", "effect": "DENY"}, clerk),
		line(map[string]any{"timestamp": noon.Add(-time.Microsecond)}, clerk),
	}, time.Hour)
	if p.Drifted != 0 || p.Changed != 0 || p.WouldBlock != 1 || p.WouldAllow != 1 {
		t.Errorf("the figures are %+v, want no change and no drift", p)
	}
}

// TestTime checks that a step ends when its time has run out, but replays at least one record.
func TestTime(t *testing.T) {
	l := line(nil, `{"user":{"role":"clerk"}}`)
	p := newComparer(t, pair(byRole, byRole)).Run(t.Context(), [][]byte{l, l, l}, -1)
	if p.Lines != 1 {
		t.Errorf("%d records are replayed, want 1", p.Lines)
	}
}

// FuzzRecord checks that no content of a log makes the reader panic or hang, and a record that parses
// has the same values as with encoding/json.
func FuzzRecord(f *testing.F) {
	f.Add(line(map[string]any{"bouncer_id": 7, "mode": "enforce", "trace": []any{map[string]any{"a": "}\""}}}, `{"user":{"role":"cl\"erk"},"a":[1,{"b":null}]}`))
	f.Add([]byte(`{"decision_id":"\"","timestamp":"2026-05-04T12:00:00Z","input":"\\"}`))
	f.Add([]byte(`{`))
	m, _, err := New(pair(byRole, byRole), time.Now)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r record
		ok := parse(data, &r) == nil
		p := m.Run(t.Context(), [][]byte{data}, time.Hour)
		if p.Lines != 1 {
			t.Fatalf("%d lines are replayed, want 1", p.Lines)
		}
		var want struct {
			ID    string          `json:"decision_id"`
			Input json.RawMessage `json:"input"`
		}
		if !ok || !json.Valid(data) || strings.Count(strings.ToLower(string(data)), "decision_id") != 1 || strings.Count(strings.ToLower(string(data)), "input") != 1 {
			return
		}
		if json.Unmarshal(data, &want) == nil && (want.ID != r.id || string(want.Input) != string(r.input)) {
			t.Errorf("%s: %q %s, want %q %s", data, r.id, r.input, want.ID, want.Input)
		}
	})
}
