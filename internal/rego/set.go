package rego

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// SetSpec is the content of a Set.
type SetSpec struct {
	// Revision is copied into every decision.
	Revision int64
	// Env is the environment's name.
	Env string
	// Controls are the active controls; the caller leaves inactive ones out.
	Controls  []*Control
	Resources []target.Resource
	// PIP is the object under data.pip, with a member for each connection.
	PIP value.Value
	// Grants is the object under data.grants: all grants of access by subject. Evaluations see
	// those that are valid at their time.
	Grants value.Value
	// Agents are the AI agents of the tenant. Requests of those that are stopped are denied.
	Agents actor.Agents
}

// Set is an immutable snapshot of one tenant's environment: the matcher, the
// controls of each resource, and the data. It is safe for concurrent use.
type Set struct {
	revision int64
	env      string
	controls []*Control           // sorted by id
	global   []*Control           // tenant-wide controls, sorted by id
	linked   map[int64][]*Control // controls by resource, sorted by id
	slots    []*slot              // by index; nil where a resource was removed
	matcher  *matcher
	pip      value.Value
	grants   value.Value
	agents   actor.Agents
	plans    []atomic.Pointer[plan] // by index of the slot; built at the first use
	noPlan   atomic.Pointer[plan]   // for requests that match no resource
	sums     *sync.Map              // see sumOf
	names    *names

	resourcesOnce sync.Once
	resources     value.Value // data.resources as a whole, built on demand
	resourcesSum  [32]byte
}

// NewSet builds a snapshot.
func NewSet(spec SetSpec) *Set {
	s := &Set{revision: spec.Revision, env: spec.Env, pip: spec.PIP, grants: spec.Grants, agents: spec.Agents, sums: &sync.Map{}}
	s.setControls(spec.Controls)
	s.slots = make([]*slot, 0, len(spec.Resources))
	for i := range spec.Resources {
		s.slots = append(s.slots, newSlot(&spec.Resources[i], i))
	}
	s.matcher = newMatcher(s.slots)
	s.names = &names{slots: s.slots}
	s.plans = make([]atomic.Pointer[plan], len(s.slots))
	return s
}

func (s *Set) setControls(list []*Control) {
	s.controls = slices.SortedFunc(slices.Values(list), compareControls)
	s.linked = map[int64][]*Control{}
	s.global = nil
	for _, c := range s.controls {
		if c.meta.ResourceID == 0 {
			s.global = append(s.global, c)
		} else {
			s.linked[c.meta.ResourceID] = append(s.linked[c.meta.ResourceID], c)
		}
	}
}

// Revision returns the snapshot's revision.
func (s *Set) Revision() int64 { return s.revision }

// Env returns the snapshot's environment.
func (s *Set) Env() string { return s.env }

// Controls returns the controls, sorted by id. The caller must not change the slice.
func (s *Set) Controls() []*Control { return s.controls }

// Control returns the control with an id; nil if there is none.
func (s *Set) Control(id int64) *Control {
	i, found := slices.BinarySearchFunc(s.controls, id, func(c *Control, id int64) int { return cmp.Compare(c.meta.ID, id) })
	if !found {
		return nil
	}
	return s.controls[i]
}

func compareControls(a, b *Control) int { return cmp.Compare(a.meta.ID, b.meta.ID) }

// Resources returns the resources, in no particular order.
func (s *Set) Resources() []target.Resource {
	out := make([]target.Resource, 0, len(s.slots))
	for _, sl := range s.slots {
		if sl != nil {
			out = append(out, *sl.res)
		}
	}
	return out
}

// Resource returns the resource with an id; nil if there is none. The caller must not change it. A
// set made by With returns the same pointer, unless the change contained the resource.
func (s *Set) Resource(id int64) *target.Resource {
	if sl := s.matcher.byID[id]; sl != nil {
		return sl.res
	}
	return nil
}

// ControlsOf returns the controls of these resources and the tenant-wide ones.
func (s *Set) ControlsOf(ids []int64) []*Control {
	var own []*Control
	for _, id := range ids {
		own = append(own, s.linked[id]...)
	}
	return mergeByID(s.global, own)
}

// PIP returns the object under data.pip.
func (s *Set) PIP() value.Value { return s.pip }

// Grants returns the object under data.grants, including grants that are not valid yet or any
// more.
func (s *Set) Grants() value.Value { return s.grants }

// Agents returns the AI agents of the tenant.
func (s *Set) Agents() actor.Agents { return s.agents }

// Change is the difference between a set and the next one.
type Change struct {
	Revision int64
	// Controls are new, or replace those with the same id. RemovedControls are the ids to remove.
	Controls        []*Control
	RemovedControls []int64
	// Resources are new, or replace those with the same id. RemovedResources are the ids to remove.
	Resources        []target.Resource
	RemovedResources []int64
	// PIP replaces the data of the connections if it is not nil.
	PIP *value.Value
	// Grants replaces the grants of access if it is not nil.
	Grants *value.Value
	// Agents replaces the AI agents of the tenant if it is not nil.
	Agents *actor.Agents
}

// With returns the set after a change. It builds only what the change affects and shares the
// rest. Plans that the change does not affect are kept, and their cached decisions stay valid.
func (s *Set) With(c Change) *Set {
	next := &Set{
		revision: c.Revision, env: s.env, pip: s.pip, grants: s.grants, agents: s.agents, sums: s.sums,
		controls: s.controls, global: s.global, linked: s.linked,
		slots: s.slots, matcher: s.matcher, names: s.names,
	}
	touched := map[int64]bool{}
	allTouched, dataTouched := false, false
	if len(c.Controls)+len(c.RemovedControls) > 0 {
		for _, ctl := range next.replaceControls(c) {
			touched[ctl.meta.ResourceID] = true
			allTouched = allTouched || ctl.meta.ResourceID == 0
		}
	}
	if len(c.Resources)+len(c.RemovedResources) > 0 {
		dataTouched = true
		for _, id := range next.replaceResources(c) {
			touched[id] = true
		}
	}
	if c.PIP != nil {
		next.pip, dataTouched = *c.PIP, true
	}
	if c.Grants != nil {
		next.grants, dataTouched = *c.Grants, true
	}
	if c.Agents != nil {
		next.agents = *c.Agents
	}
	next.plans = make([]atomic.Pointer[plan], len(next.slots))
	if allTouched {
		return next
	}
	keep := func(p *plan) bool { return p != nil && !(dataTouched && p.readsData) }
	for i := range s.plans {
		if p := s.plans[i].Load(); keep(p) && next.slots[i] == s.slots[i] && next.slots[i] != nil && !touched[p.res.ID] {
			next.plans[i].Store(p)
		}
	}
	if p := s.noPlan.Load(); keep(p) {
		next.noPlan.Store(p)
	}
	return next
}

// replaceControls applies a change of controls and returns those that were added, removed or
// replaced.
func (s *Set) replaceControls(c Change) []*Control {
	fresh := slices.SortedFunc(slices.Values(c.Controls), compareControls)
	gone := make(map[int64]bool, len(c.RemovedControls)+len(fresh))
	for _, id := range c.RemovedControls {
		gone[id] = true
	}
	for _, ctl := range fresh {
		gone[ctl.meta.ID] = true
	}
	touched := slices.Clone(fresh)
	stay := func(list []*Control) []*Control {
		return slices.DeleteFunc(slices.Clone(list), func(ctl *Control) bool { return gone[ctl.meta.ID] })
	}
	for id := range gone {
		if ctl := s.Control(id); ctl != nil {
			touched = append(touched, ctl)
		}
	}
	s.controls = mergeByID(stay(s.controls), fresh)
	s.linked = maps.Clone(s.linked)
	at := map[int64]bool{}
	for _, ctl := range touched {
		at[ctl.meta.ResourceID] = true
	}
	for id := range at {
		own := slices.DeleteFunc(slices.Clone(fresh), func(ctl *Control) bool { return ctl.meta.ResourceID != id })
		if id == 0 {
			s.global = mergeByID(stay(s.global), own)
		} else if s.linked[id] = mergeByID(stay(s.linked[id]), own); len(s.linked[id]) == 0 {
			delete(s.linked, id)
		}
	}
	return touched
}

// replaceResources applies a change of resources and returns the ids that it contains.
func (s *Set) replaceResources(c Change) []int64 {
	s.slots = slices.Clone(s.slots)
	m := &matcher{byID: maps.Clone(s.matcher.byID), byHost: maps.Clone(s.matcher.byHost), any: s.matcher.any, hosted: s.matcher.hosted}
	ids, trees := slices.Clone(c.RemovedResources), edits{}
	rebuild := false
	drop := func(id int64) (index int, had bool) {
		old := m.byID[id]
		if old == nil {
			return 0, false
		}
		delete(m.byID, id)
		s.slots[old.index] = nil
		m.hosted -= flag(old.host != "")
		m.edit(trees, old, true)
		return old.index, true
	}
	for _, id := range c.RemovedResources {
		drop(id)
	}
	for i := range c.Resources {
		r := &c.Resources[i]
		ids = append(ids, r.ID)
		index, had := drop(r.ID)
		if !had {
			index = len(s.slots)
			s.slots = append(s.slots, nil)
		}
		sl := newSlot(r, index)
		// With the first resource that has a host, the tree any splits off: build all trees again.
		rebuild = rebuild || sl.host != "" && s.matcher.hosted == 0
		s.slots[index], m.byID[r.ID] = sl, sl
		m.hosted += flag(sl.host != "")
		if !rebuild {
			m.edit(trees, sl, false)
		}
	}
	if rebuild {
		m = newMatcher(slices.DeleteFunc(slices.Clone(s.slots), func(sl *slot) bool { return sl == nil }))
	}
	s.matcher, s.names = m, &names{slots: s.slots}
	return ids
}

// edit adds or removes a slot in a matcher under construction.
func (m *matcher) edit(trees edits, s *slot, remove bool) {
	if s.bad {
		return
	}
	shared := m.any == m.byHost[""]
	m.byHost[s.host] = trees.change(m.byHost[s.host], s.folded, s, remove)
	if shared {
		m.any = m.byHost[""]
	} else {
		m.any = trees.change(m.any, s.folded, s, remove)
	}
}

// Data returns the value at a path below data, so that a Set is the DataSource of its controls.
// data.resources is keyed by id. It has no owner_email, because a control can show what it reads
// there to any caller.
func (s *Set) Data(path []string) value.Value {
	if len(path) == 0 {
		return value.Object(value.Member{Key: "pip", Value: s.pipObject()}, value.Member{Key: "resources", Value: s.allResources()})
	}
	switch path[0] {
	case "pip":
		return s.pipObject().At(path[1:]...)
	case native.GrantsRoot:
		if s.grants.Kind() != value.ObjectKind {
			return value.Object().At(path[1:]...)
		}
		return s.grants.At(path[1:]...)
	case "resources":
		if len(path) == 1 {
			return s.allResources()
		}
		id, err := strconv.ParseInt(path[1], 10, 64)
		if err != nil || strconv.FormatInt(id, 10) != path[1] {
			return value.Value{}
		}
		if sl := s.matcher.byID[id]; sl != nil {
			return sl.data.At(path[2:]...)
		}
	}
	return value.Value{}
}

// PIPMeta is the member of data.pip that says how fresh the data of each connection is.
const PIPMeta = "_meta"

// summed is a value with its digest.
type summed struct {
	of  value.Value
	sum [32]byte
}

// sumOf digests the value at a path below data.pip exactly as controls see it. The plans of all
// resources need the same few paths, and a document may be large, so this set and those made from
// it by With share the digests.
func (s *Set) sumOf(path []string) [32]byte {
	v, key := s.Data(path), strings.Join(path, "\x00")
	if kept, ok := s.sums.Load(key); ok && value.Same(kept.(summed).of, v) {
		return kept.(summed).sum
	}
	next := summed{v, sha256.Sum256(v.AppendExact(nil))}
	s.sums.Store(key, next)
	return next.sum
}

func (s *Set) pipObject() value.Value {
	if s.pip.Kind() == value.ObjectKind {
		return s.pip
	}
	return value.Object()
}

func (s *Set) allResources() value.Value {
	s.resourcesOnce.Do(func() {
		var members []value.Member
		for _, sl := range s.slots {
			if sl != nil {
				members = append(members, value.Member{Key: strconv.FormatInt(sl.res.ID, 10), Value: sl.data})
			}
		}
		slices.SortFunc(members, func(a, b value.Member) int { return cmp.Compare(a.Key, b.Key) })
		s.resources = value.Object(members...)
		h := sha256.New()
		var key []byte
		for _, m := range members {
			key = m.Value.AppendExact(value.String(m.Key).AppendExact(key[:0]))
			h.Write(key)
		}
		s.resourcesSum = [32]byte(h.Sum(nil))
	})
	return s.resources
}
