package compare

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const byLevel = "package a\n\nallow if input.resource.level == \"low\"\n"

func levelled(id int64, level string) *target.Resource {
	return &target.Resource{ID: id, Name: fmt.Sprint("r", id), Path: fmt.Sprint("/", id), Doc: value.Object(value.Member{Key: "level", Value: value.String(level)})}
}

// levelledSpec has one control and three resources. The first changed from low to high at revision
// 5, the second was created at revision 7, and the third was deleted at revision 9.
func levelledSpec() Spec {
	return Spec{
		Env: "production", Controls: []Control{{Meta: rego.Meta{ID: 1, Name: "c", Version: 1}, Source: byLevel}}, Mixes: []ControlLists{{Baseline: []int{0}, Candidate: []int{0}}},
		Epochs: []Epoch{
			{Revision: 9, From: noon.Add(4 * time.Minute)},
			{Revision: 7, From: noon.Add(3 * time.Minute)},
			{Revision: 5, From: noon.Add(2 * time.Minute)},
			{Revision: 1, From: noon},
			{Unknown: true},
		},
		Resources: []target.Resource{*levelled(1, "high"), *levelled(2, "low")},
		Past:      []Past{{Epoch: 1, ID: 3, Doc: levelled(3, "low")}, {Epoch: 2, ID: 2}, {Epoch: 3, ID: 1, Doc: levelled(1, "low")}},
	}
}

// asked returns a record of a request for a resource.
func asked(id int, effect string, members map[string]any) []byte {
	m := map[string]any{"effect": effect}
	if effect != "ALLOW" {
		m["decision"] = "DENY"
	}
	maps.Copy(m, members)
	return line(m, fmt.Sprintf(`{"resource":{"path":"/%d"}}`, id))
}

// TestPast checks that a record is decided with the resources of its revision, even if its time says
// otherwise. Without a revision, it is decided with those of its time.
func TestPast(t *testing.T) {
	at := func(revision int) map[string]any {
		return map[string]any{"revision": revision, "timestamp": noon.Add(time.Hour)}
	}
	when := func(d time.Duration) map[string]any { return map[string]any{"timestamp": noon.Add(d)} }
	lines := [][]byte{
		asked(1, "NO_MATCH", at(12)), asked(3, "NO_MATCH", at(9)), asked(3, "ALLOW", at(8)), asked(2, "ALLOW", at(7)), asked(2, "NO_MATCH", at(6)),
		asked(1, "NO_MATCH", at(5)), asked(1, "ALLOW", at(4)), asked(1, "ALLOW", at(1)), asked(3, "ALLOW", at(1)),
		asked(1, "NO_MATCH", when(2*time.Minute)), asked(1, "ALLOW", when(2*time.Minute-1)),
	}
	m := newComparer(t, levelledSpec())
	if p := m.Run(t.Context(), lines, time.Hour); p.Drifted != 0 || p.Evaluated != int64(len(lines)) || p.WouldAllow != 6 {
		t.Errorf("the figures are %+v, want 6 allowed and no drift", p)
	}
	// The order of the records does not matter, although only a few sets are cached.
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	if p := m.Run(t.Context(), lines, time.Hour); p.Drifted != 0 {
		t.Errorf("in another order: %+v, want no drift", p)
	}
	if len(m.sets.full) > keptEpochs+1 {
		t.Errorf("%d sets are cached, want at most %d", len(m.sets.full), keptEpochs+1)
	}
	before := asked(1, "NO_MATCH", map[string]any{"timestamp": noon.Add(-time.Hour)})
	if p := m.Run(t.Context(), [][]byte{before}, time.Hour); p.Drifted != 1 || p.UnknownDrift != 1 || p.ControlDrift != 0 {
		t.Errorf("before the known history: %+v, want unknown drift", p)
	}
}

// TestBundles checks that a bouncer decides with the content of its bundle, even if the bundle was
// old.
func TestBundles(t *testing.T) {
	s := levelledSpec()
	s.ViewsThen = true
	all := []int64{1, 2, 3}
	s.Views = []View{{BouncerID: 4, Resources: []int64{2}, Bundles: []Bundle{{Revision: 3, EnvRevision: 9, Resources: []int64{2}}, {Revision: 2, EnvRevision: 5, Resources: all}, {Revision: 1, EnvRevision: 2, Resources: all}}}}
	had := func(bundle int, d time.Duration) map[string]any {
		return map[string]any{"bouncer_id": 4, "revision": bundle, "timestamp": noon.Add(d), "effect": "", "mode": ""}
	}
	as := func(m map[string]any, effect string) map[string]any { m["effect"] = effect; return m }
	lines := [][]byte{
		asked(2, "ALLOW", as(had(3, time.Hour), "ALLOW")), asked(3, "NO_MATCH", as(had(3, time.Hour), "NO_MATCH")),
		asked(1, "NO_MATCH", as(had(2, time.Hour), "NO_MATCH")), asked(3, "ALLOW", as(had(2, time.Hour), "ALLOW")),
		asked(1, "ALLOW", as(had(1, time.Hour), "ALLOW")), asked(2, "ALLOW", as(had(3, 0), "ALLOW")),
	}
	m := newComparer(t, s)
	if p := m.Run(t.Context(), lines, time.Hour); p.Drifted != 0 || p.Evaluated != int64(len(lines)) {
		t.Errorf("the figures are %+v, want no drift", p)
	}
	if len(m.sets.seats) > keptSeats {
		t.Errorf("%d seats are cached, want at most %d", len(m.sets.seats), keptSeats)
	}
}

// TestUnknownBundles: a record without a revision is decided by its time; one whose revision is older
// than all known bundles has an unknown bundle. Both are of one epoch, and their order does not matter.
func TestUnknownBundles(t *testing.T) {
	s := levelledSpec()
	all := []int64{1, 2, 3}
	s.Views = []View{{BouncerID: 4, Resources: all, Bundles: []Bundle{{Revision: 3, EnvRevision: 9, Resources: all}, {Revision: 2, EnvRevision: 5, Resources: all}}}}
	drifted := func(bundle int) []byte {
		return asked(1, "NO_MATCH", map[string]any{"bouncer_id": 4, "revision": bundle, "timestamp": noon.Add(time.Minute), "mode": ""})
	}
	none, old := drifted(0), drifted(1)
	for _, lines := range [][][]byte{{none, old}, {old, none}, {none, old, none, old}} {
		if p := newComparer(t, s).Run(t.Context(), lines, time.Hour); p.Drifted != int64(len(lines)) || p.UnknownDrift != int64(len(lines)/2) {
			t.Errorf("%+v", p)
		}
	}
}

// TestLost checks that if an old control no longer compiles, its substitute decides. If it has none,
// it is not known what decided.
func TestLost(t *testing.T) {
	s := Spec{
		Env: "production", Epochs: []Epoch{{}},
		Controls: []Control{
			{Meta: rego.Meta{ID: 1, Name: "c", Version: 1}, Source: byRole, Old: true},
			{Meta: rego.Meta{ID: 1, Name: "c", Version: 1}, Source: "package a\n\nallow if data.lib.gone.may\n", Old: true, Instead: 1},
			{Meta: rego.Meta{ID: 2, Name: "d", Version: 1}, Source: "package d\n\ndeny if data.lib.gone.may\n", Old: true},
		},
		Mixes: []ControlLists{{Baseline: []int{0}, Candidate: []int{1}}},
	}
	clerk := `{"user":{"role":"clerk"}}`
	if p := newComparer(t, s).Run(t.Context(), [][]byte{line(nil, clerk)}, time.Hour); p.Changed != 0 || p.Drifted != 0 || p.WouldAllow != 1 {
		t.Errorf("with a substitute: %+v, want it to allow", p)
	}
	s.Mixes = []ControlLists{{Baseline: []int{0, 2}, Candidate: []int{0, 2}}}
	if p := newComparer(t, s).Run(t.Context(), [][]byte{line(map[string]any{"decision": "DENY", "effect": "DENY", "policy_id": 1, "policy_version": 1}, clerk)}, time.Hour); p.UnknownDrift != 1 {
		t.Errorf("without a substitute: %+v, want unknown drift", p)
	}
}
