package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxStates is the maximum number of states of controls and libraries that one replay goes back.
const maxStates = 500

// state is what was active from a revision and a time on. active has the controls by id, as indices
// into Spec.Controls; shelf has the libraries that they could import. A revision of 0 means that
// the state is older than the known revisions.
type state struct {
	revision int64
	from     time.Time
	active   map[int64]int
	shelf    []lang.Library
}

// epochs determines the baseline and the times at which it changed, and adds them to the plan.
func (s *Service) epochs(ctx context.Context, sc scope.Scope, p *plan, set *rego.Set) error {
	h := history{plan: p, from: p.followed}
	if err := s.readStart(ctx, sc, &h); err != nil {
		return err
	}
	if p.request.Baseline == Now {
		active := map[int64]int{}
		for _, c := range set.Controls() {
			active[c.Meta().ID] = p.text(compare.Control{Meta: c.Meta(), Source: c.Source()}, p.shelf)
		}
		h.begin(state{active: active, shelf: p.shelf})
	} else {
		moments, err := s.Policies.Timeline(ctx, sc, h.from)
		if err != nil {
			return err
		}
		h.follow(moments, set.Revision())
	}
	if p.request.Data == Then {
		if err := s.rewind(ctx, sc, &h, set); err != nil {
			return err
		}
	}
	h.cut()
	p.prune()
	return nil
}

// history collects what was active in the window, oldest first.
type history struct {
	*plan
	from   time.Time
	known  int64 // the revision from which everything is known; 0 means from the first
	states []state
	// ends are past states of resources, newest first. Before the revision dataFrom they are
	// incomplete.
	ends     []ended
	dataFrom int64
}

// begin adds the first state. If something is unknown before the revision known, it adds the state
// twice: once for the unknown time before it.
func (h *history) begin(first state) {
	if h.known > 0 {
		h.states = append(h.states, first)
	}
	first.revision = max(h.known, 1)
	h.states = append(h.states, first)
}

// follow adds a state for each change of the active controls and libraries, up to a revision.
func (h *history) follow(moments []policy.Moment, upTo int64) {
	env := h.request.SourceEnvironment
	w := walk{history: h, active: map[int64]policy.Moment{}, libraries: map[int64]policy.Moment{}, unsettled: true}
	h.states = []state{{}}
	var known []policy.Moment
	for _, m := range moments {
		if since := m.Since(env); since > 0 && since <= upTo {
			known = append(known, m)
		} else if m.Sandbox == nil && m.Production == nil {
			w.take(m, 0)
		}
	}
	w.closeState()
	last := h.states[len(h.states)-1]
	h.states = h.states[:len(h.states)-1]
	h.begin(last)
	slices.SortStableFunc(known, func(a, b policy.Moment) int { return cmp.Compare(a.Since(env), b.Since(env)) })
	for _, m := range known {
		w.take(m, m.Since(env))
	}
	w.closeState()
	if over := len(h.states) - maxStates; over > 0 {
		oldest := h.states[over]
		oldest.revision = 0
		h.states = append([]state{oldest}, h.states[over:]...)
		h.notes = append(h.notes, fmt.Sprintf("the controls changed more than %d times in the window; older decisions are compared with the oldest of these states", maxStates))
	}
}

// walk visits versions, and tracks what is active.
type walk struct {
	*history
	active    map[int64]policy.Moment
	libraries map[int64]policy.Moment
	unsettled bool // there are changes that the last state does not have yet
}

// take applies a version that is valid from a revision on. Inside the window, it begins a new state
// if the version changes anything.
func (w *walk) take(m policy.Moment, revision int64) {
	within := m.CreatedAt.After(w.from)
	if within {
		w.closeState()
	}
	if !w.apply(m) {
		return
	}
	w.unsettled = true
	if within {
		w.states = append(w.states, state{revision: revision, from: m.CreatedAt})
	}
}

// apply applies a version. It returns false if the version changes nothing.
func (w *walk) apply(m policy.Moment) bool {
	to, is := w.active, m.ActiveIn(w.request.SourceEnvironment)
	if m.Kind == policy.KindLibrary {
		to, is = w.libraries, m.ActiveIn(m.Environment)
	}
	was, had := to[m.PolicyID]
	if is {
		to[m.PolicyID] = m
	} else {
		delete(to, m.PolicyID)
	}
	return is != had || is && (was.RegoCode != m.RegoCode || was.Content.Version != m.Content.Version || was.Environment != m.Environment)
}

// closeState stores the active controls and libraries in the last state.
func (w *walk) closeState() {
	if !w.unsettled {
		return
	}
	w.unsettled = false
	last := &w.states[len(w.states)-1]
	libraries := map[scope.Env][]lang.Library{}
	for _, id := range slices.Sorted(maps.Keys(w.libraries)) {
		m := w.libraries[id]
		libraries[m.Environment] = append(libraries[m.Environment], lang.Library{ID: id, Name: m.Name, Version: m.Content.Version, Source: m.RegoCode})
	}
	last.shelf, last.active = policy.VisibleLibraries(w.request.SourceEnvironment, libraries), map[int64]int{}
	for id, m := range w.active {
		c := compare.Control{Meta: rego.Meta{ID: id, Name: m.Name, Version: m.Content.Version}, Source: m.RegoCode, Old: true}
		if m.ResourceID != nil {
			c.ResourceID = *m.ResourceID
		}
		last.active[id] = w.text(c, last.shelf)
	}
}

// cut builds the epochs, newest first. An epoch begins at each state and at each change of a
// resource.
func (h *history) cut() {
	mixes := make([]int, len(h.states))
	for i, st := range h.states {
		mixes[i] = h.mix(st)
	}
	next := len(h.states) - 1
	ends := h.ends
	for next >= 0 && h.states[next].revision > 0 || len(ends) > 0 {
		st := h.states[max(next, 0)]
		e := compare.Epoch{Revision: st.revision, From: st.from}
		atState := next >= 0 && st.revision > 0
		if len(ends) > 0 && (!atState || ends[0].Revision > st.revision) {
			e.Revision, e.From, atState = ends[0].Revision, ends[0].At, false
		}
		at := sort.Search(len(h.states), func(i int) bool { return h.states[i].revision > e.Revision }) - 1
		at = max(at, 0)
		e.Mix, e.Unknown = mixes[at], e.Revision < h.dataFrom || h.states[at].revision == 0
		h.spec.Epochs = append(h.spec.Epochs, e)
		for len(ends) > 0 && ends[0].Revision == e.Revision {
			h.spec.Past = append(h.spec.Past, compare.Past{Epoch: len(h.spec.Epochs), ID: ends[0].ID, Doc: ends[0].Doc})
			ends = ends[1:]
		}
		if atState {
			next--
		}
	}
	for ; next >= 0; next-- {
		h.spec.Epochs = append(h.spec.Epochs, compare.Epoch{From: h.states[next].from, Mix: mixes[next], Unknown: true})
	}
	// No epoch covers the states of resources before the oldest change, so they are dropped.
	n := len(h.spec.Past)
	for n > 0 && h.spec.Past[n-1].Epoch == len(h.spec.Epochs) {
		n--
	}
	h.spec.Past = h.spec.Past[:n]
}
