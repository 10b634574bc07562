package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// moment returns a version of a control (or of a library, if the id is at least 100) that is active
// from a revision of production on, and was made a number of minutes after noon. A source of ""
// means that it is not active.
func moment(id, version, revision int64, minutes int, source string) policy.Moment {
	m := policy.Moment{Kind: policy.KindControl}
	m.PolicyID, m.Change, m.RegoCode = id, "updated", source
	m.Content.Version, m.Environment, m.Status, m.CreatedAt = version, scope.Production, policy.Active, noon.Add(time.Duration(minutes)*time.Minute)
	if id >= 100 {
		m.Kind = policy.KindLibrary
	}
	if source == "" {
		m.Status = policy.Inactive
	}
	if revision > 0 {
		m.Production = &revision
	}
	return m
}

// newHistory returns a history from noon on, known since a revision.
func newHistory(known int64) *history {
	p := &plan{
		request: Request{SourceEnvironment: scope.Production, Baseline: Then, Data: Then},
		index:   map[key]int{}, current: map[int64]int64{}, reach: map[reachKey][]lang.Library{},
	}
	return &history{plan: p, from: noon, known: known}
}

// format formats epochs: the revision, the active versions with those of their libraries, and how the
// resources differ from the next epoch.
func (h *history) format() string {
	var out strings.Builder
	for i, e := range h.spec.Epochs {
		fmt.Fprintf(&out, "%d:", e.Revision)
		if e.Unknown {
			out.WriteString("?")
		}
		for _, at := range h.spec.Mixes[e.Mix].Baseline {
			c := h.spec.Controls[at]
			fmt.Fprintf(&out, " %dv%d", c.ID, c.Version)
			for _, l := range c.Libraries {
				fmt.Fprintf(&out, "+%dv%d", h.spec.Libraries[l].ID, h.spec.Libraries[l].Version)
			}
		}
		for _, p := range h.spec.Past {
			if p.Epoch == i {
				fmt.Fprintf(&out, " r%d", p.ID)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestEpochs checks that an epoch begins when a control, a library that one uses, or a resource
// changes. Older decisions than the history are found by time, and are unknown.
func TestEpochs(t *testing.T) {
	const plain, using, lib = "package a\n\nallow if true\n", "package b\n\nimport data.lib.x\n\nallow if x.y\n", "package lib.x\n\ny := true\n"
	end := func(id, revision int64) ended {
		return ended{ID: id, Revision: revision, At: noon.Add(time.Duration(revision) * time.Minute), Doc: &target.Resource{ID: id}}
	}
	for name, c := range map[string]struct {
		known   int64
		moments []policy.Moment
		upTo    int64
		ends    []ended
		want    string
	}{
		"nothing": {want: "1:\n"},
		"versions": {
			moments: []policy.Moment{moment(1, 1, 2, -5, plain), moment(1, 2, 4, 5, plain+"#"), moment(2, 1, 5, 6, plain), moment(1, 3, 7, 8, "")}, upTo: 9,
			want: "7: 2v1\n5: 1v2 2v1\n4: 1v2\n1: 1v1\n",
		},
		"up to the snapshot": {moments: []policy.Moment{moment(1, 1, 2, -5, plain), moment(1, 2, 4, 5, plain+"#")}, upTo: 3, want: "1: 1v1\n"},
		"by revision, whatever the clocks": {
			moments: []policy.Moment{moment(1, 2, 4, 5, plain+"#"), moment(1, 1, 2, 6, plain)}, upTo: 9, want: "4: 1v2\n2: 1v1\n1:\n",
		},
		"a library": {
			moments: []policy.Moment{moment(1, 1, 2, -6, plain), moment(100, 1, 3, -5, lib), moment(2, 1, 4, -4, using), moment(100, 2, 6, 5, lib+"#")}, upTo: 9,
			want: "6: 1v1 2v1+100v2\n1: 1v1 2v1+100v1\n",
		},
		"resources": {
			moments: []policy.Moment{moment(1, 1, 2, -5, plain), moment(1, 2, 6, 5, plain+"#")}, upTo: 9, ends: []ended{end(7, 8), end(8, 8), end(7, 6), end(9, 3)},
			want: "8: 1v2\n6: 1v2 r7 r8\n3: 1v1 r7\n1: 1v1 r9\n",
		},
		"before the history": {
			known: 5, moments: []policy.Moment{moment(1, 1, 0, -5, plain), moment(1, 2, 0, 1, plain+"#"), moment(1, 3, 7, 5, plain)}, upTo: 9, ends: []ended{end(7, 6)},
			want: "7: 1v3\n6: 1v2\n5: 1v2 r7\n0:? 1v2\n0:? 1v1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(c.known)
			h.follow(c.moments, c.upTo)
			h.ends = c.ends
			h.cut()
			h.prune()
			if got := h.format(); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// TestTooMuchPast checks that states that are not followed back are unknown, and the result says so.
func TestTooMuchPast(t *testing.T) {
	h := newHistory(0)
	var moments []policy.Moment
	for i := range int64(maxStates + 5) {
		moments = append(moments, moment(1, i+1, i+2, int(i), fmt.Sprintf("package a\n\nx := %d\n", i)))
	}
	h.follow(moments, 1<<40)
	h.ends = []ended{{ID: 1, Revision: 600, At: noon, Doc: &target.Resource{}}, {ID: 2, Revision: 590, At: noon, Doc: &target.Resource{}}}
	h.stopHistory(ended{ID: 3, Revision: 590, At: noon})
	h.cut()
	es := h.spec.Epochs
	if last := es[len(es)-1]; len(h.notes) != 2 || !last.Unknown || last.Revision != 0 || len(h.spec.Past) != 1 {
		t.Errorf("the notes are %v, the last epoch %+v, the past %+v, want 2 notes and an unknown last epoch", h.notes, last, h.spec.Past)
	}
	for _, e := range es {
		if e.Unknown != (e.Revision < 590) {
			t.Errorf("the epoch is %+v, want it unknown before revision 590 alone", e)
		}
	}
}

// TestCandidate checks that the candidate is compared with what decided at the time, with the
// libraries of that time if it compiles with them.
func TestCandidate(t *testing.T) {
	const using, lib = "package b\n\nimport data.lib.x\n\nallow if x.y\n", "package lib.x\n\ny := true\n"
	h := newHistory(0)
	h.shelf = []lang.Library{{ID: 100, Version: 2, Source: lib + "#"}}
	h.changes = []change{{id: 2, control: compare.Control{Meta: rego.Meta{ID: 2, Version: 1}, Source: using}}}
	h.follow([]policy.Moment{moment(100, 1, 3, -5, lib), moment(2, 1, 4, -4, using), moment(100, 2, 6, 5, lib+"#")}, 9)
	h.cut()
	h.prune()
	for _, m := range h.spec.Mixes {
		if fmt.Sprint(m.Baseline) != fmt.Sprint(m.Candidate) {
			t.Errorf("a candidate that is the control: %+v, want the same on both sides", m)
		}
	}
	h = newHistory(0)
	h.shelf, h.current[2] = []lang.Library{{ID: 100, Version: 2, Source: lib}}, 1
	h.swaps = []lang.Library{{ID: 100, Version: 3, Source: "package lib.x\n\ny := false\n"}}
	h.follow([]policy.Moment{moment(100, 2, 3, -5, lib), moment(2, 1, 4, -4, using)}, 9)
	h.cut()
	h.prune()
	m := h.spec.Mixes[0]
	cand := h.spec.Controls[m.Candidate[0]]
	if m.Baseline[0] == m.Candidate[0] || cand.Old || h.spec.Libraries[cand.Libraries[0]].Version != 3 {
		t.Errorf("an edited library: %+v, %+v, want another candidate with version 3", m, cand)
	}
}
