package compare

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// controlPair are the two sets that decide a record.
type controlPair struct {
	base, cand *rego.Set
	// deny means that requests that no control covers are denied.
	deny bool
	// unknown means that it is not known which controls decided.
	unknown bool
}

// has reports whether the baseline has this version of a control. It is true for the id 0.
func (s *controlPair) has(id, version int64) bool {
	return id == 0 || slices.ContainsFunc(s.base.Controls(), func(c *rego.Control) bool { return c.Meta().ID == id && c.Meta().Version == version })
}

// sets builds the sides of records. Records come newest first, so it goes back from epoch to epoch
// and derives each set from the next newer one; the two share what is equal. It caches a few
// epochs, because records of several bouncers may alternate between epochs.
type sets struct {
	m     *Comparer
	views map[int64]*View
	past  []int // by epoch: the start of its part of Spec.Past, and at the end the length
	at    int   // epoch of the last record
	full  map[int]*controlPair
	order []int // keys of full, the most recently used last
	seats map[viewKey]*controlPair
}

// viewKey identifies who decided: a bouncer with a revision of its bundle. If that revision is
// unknown, the epoch identifies it.
type viewKey struct {
	bouncer, bundle int64
	epoch           int
	older           bool // the revision is known, but older than all known bundles
}

// keptEpochs is how many epochs are cached besides the newest. keptSeats is how many seats of each
// bouncer are cached.
const (
	keptEpochs = 3
	keptSeats  = 2
)

func newSets(m *Comparer) sets {
	s := sets{m: m, views: map[int64]*View{}, full: map[int]*controlPair{}, seats: map[viewKey]*controlPair{}}
	for i := range m.spec.Views {
		s.views[m.spec.Views[i].BouncerID] = &m.spec.Views[i]
	}
	next := 0
	for epoch := range len(m.spec.Epochs) + 1 {
		for next < len(m.spec.Past) && m.spec.Past[next].Epoch < epoch {
			next++
		}
		s.past = append(s.past, next)
	}
	return s
}

// of returns the sides for a record: those of its revision or time, with only the resources that
// its bouncer saw.
func (s *sets) of(r *record) *controlPair {
	v := s.views[r.bouncerID]
	if r.bouncerID == 0 || v == nil {
		revision := r.revision
		if r.bouncerID != 0 {
			revision = 0 // its bundle is unknown
		}
		s.at = s.epochAt(revision, r.at)
		return s.fullAt(s.at)
	}
	at, bundle := s.epochOf(v, r)
	s.at = at
	key := viewKey{bouncer: v.BouncerID, epoch: at, older: bundle == nil && r.revision > 0 && len(v.Bundles) > 0}
	if bundle != nil {
		key = viewKey{bouncer: v.BouncerID, bundle: bundle.Revision}
	}
	if found := s.seats[key]; found != nil {
		return found
	}
	s.makeRoom(key)
	made := s.restricted(s.fullAt(at), v, bundle)
	made.unknown = made.unknown || key.older
	s.seats[key] = made
	return made
}

// epochAt returns the epoch of a revision of the environment. If the revision is 0 or too old, it
// goes by time.
func (s *sets) epochAt(revision int64, at time.Time) int {
	epochs := s.m.spec.Epochs
	first := 0
	if revision > 0 {
		first = sort.Search(len(epochs)-1, func(i int) bool { return epochs[i].Revision <= revision })
		if epochs[first].Revision > 0 {
			return first
		}
	}
	n := len(epochs) - 1 - first
	return first + sort.Search(n, func(i int) bool { return !at.Before(epochs[first+i].From) })
}

// epochOf returns the epoch in which a bouncer decided, and its bundle. If several epochs have the
// same content for the bouncer, it returns the one nearest to the epoch of the last record, which
// may be cached. If the bundle is unknown, it goes by time, but returns no epoch after that of the
// first known bundle.
func (s *sets) epochOf(v *View, r *record) (epoch int, b *Bundle) {
	oldest, newest := 0, 0
	until := int64(math.MaxInt64)
	for i := range v.Bundles {
		if at := &v.Bundles[i]; r.revision > 0 && at.Revision <= r.revision {
			newest, oldest = s.epochAt(max(until, at.EnvRevision), r.at), s.epochAt(at.EnvRevision, r.at)
			return min(max(s.at, newest), oldest), at
		}
		until = v.Bundles[i].EnvRevision - 1
	}
	epoch = s.epochAt(0, r.at)
	if r.revision > 0 && len(v.Bundles) > 0 {
		epoch = max(epoch, s.epochAt(until, r.at))
	}
	return epoch, nil
}

// makeRoom drops all seats of the bouncer if it has keptSeats of them.
func (s *sets) makeRoom(next viewKey) {
	var mine []viewKey
	for k := range s.seats {
		if k.bouncer == next.bouncer {
			mine = append(mine, k)
		}
	}
	if len(mine) < keptSeats {
		return
	}
	for _, k := range mine {
		delete(s.seats, k)
	}
}

// restricted returns the sides of an epoch with only the resources that a bouncer sees.
func (s *sets) restricted(full *controlPair, v *View, b *Bundle) *controlPair {
	resources, deny := v.Resources, v.Deny
	if b != nil && s.m.spec.ViewsThen {
		resources, deny = b.Resources, b.Deny
	}
	out := &controlPair{base: rego.NewSet(full.base.Restrict(resources)), deny: deny, unknown: full.unknown}
	if out.cand = out.base; full.cand != full.base {
		out.cand = rego.NewSet(full.cand.Restrict(append(slices.Clone(resources), v.Added...)))
	}
	return out
}

// fullAt returns the sides of an epoch with all resources, as the service has them.
func (s *sets) fullAt(epoch int) *controlPair {
	if i := slices.Index(s.order, epoch); i >= 0 {
		if i != len(s.order)-1 {
			s.order = append(slices.Delete(s.order, i, i+1), epoch)
		}
		return s.full[epoch]
	}
	near := -1
	for at := range s.full {
		if at < epoch && at > near {
			near = at
		}
	}
	if near < 0 {
		near = 0
		s.put(0, s.sidesFrom(rego.NewSet(s.newest()), 0))
		if epoch == 0 {
			return s.full[0]
		}
	}
	made := s.sidesFrom(s.full[near].base.With(s.changeBetween(near, epoch)), epoch)
	s.put(epoch, made)
	return made
}

// put caches the sides of an epoch, and drops the least recently used, except the newest,
// from which any other can be built.
func (s *sets) put(epoch int, made *controlPair) {
	s.full[epoch] = made
	s.order = append(s.order, epoch)
	for len(s.order) > keptEpochs+1 {
		i := 0
		if s.order[0] == 0 {
			i = 1
		}
		delete(s.full, s.order[i])
		s.order = slices.Delete(s.order, i, i+1)
	}
}

// newest returns the baseline of the newest epoch.
func (s *sets) newest() rego.SetSpec {
	m := s.m
	return rego.SetSpec{
		Revision: m.spec.Revision, Env: m.spec.Env, Controls: m.pick(s.mix(0).Baseline), Resources: m.spec.Resources, PIP: m.pip, Grants: m.grants,
	}
}

func (s *sets) mix(epoch int) *ControlLists { return &s.m.spec.Mixes[s.m.spec.Epochs[epoch].Mix] }

// changeBetween returns the change from the baseline of one epoch to that of an older one.
func (s *sets) changeBetween(from, to int) rego.Change {
	c := s.m.differ(s.mix(from).Baseline, s.mix(to).Baseline)
	c.Revision = s.m.spec.Epochs[to].Revision
	was := map[int64]*target.Resource{}
	for _, p := range s.m.spec.Past[s.past[from+1]:s.past[to+1]] {
		was[p.ID] = p.Doc // the oldest comes last and wins
	}
	for id, doc := range was {
		if doc == nil {
			c.RemovedResources = append(c.RemovedResources, id)
		} else {
			c.Resources = append(c.Resources, *doc)
		}
	}
	return c
}

// sidesFrom adds the candidate to the baseline of an epoch. The two share their common
// parts.
func (s *sets) sidesFrom(base *rego.Set, epoch int) *controlPair {
	mix := s.mix(epoch)
	out := &controlPair{base: base, cand: base, unknown: s.m.spec.Epochs[epoch].Unknown}
	out.unknown = out.unknown || len(base.Controls()) < len(mix.Baseline) // a control is lost
	if !slices.Equal(mix.Baseline, mix.Candidate) || len(s.m.spec.Added) > 0 {
		c := s.m.differ(mix.Baseline, mix.Candidate)
		c.Revision, c.Resources = base.Revision(), s.m.spec.Added
		out.cand = base.With(c)
	}
	return out
}

// pick returns the controls with these indices, except lost ones.
func (m *Comparer) pick(list []int) []*rego.Control {
	out := make([]*rego.Control, 0, len(list))
	for _, at := range list {
		if c := m.control(at); c != nil {
			out = append(out, c)
		}
	}
	return out
}

// differ returns the difference between two lists of controls.
func (m *Comparer) differ(from, to []int) (c rego.Change) {
	had := map[int64]*rego.Control{}
	for _, ctl := range m.pick(from) {
		had[ctl.Meta().ID] = ctl
	}
	for _, ctl := range m.pick(to) {
		id := ctl.Meta().ID
		if had[id] != ctl {
			c.Controls = append(c.Controls, ctl)
		}
		delete(had, id)
	}
	for id := range had {
		c.RemovedControls = append(c.RemovedControls, id)
	}
	return c
}
