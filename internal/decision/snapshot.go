package decision

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// snapshotKey identifies a snapshot.
type snapshotKey struct {
	tenant scope.TenantID
	env    scope.Env
}

// Snapshots contains the immutable sets that decisions read, one for each tenant and environment. A
// set is loaded at its first use and dropped when it is idle.
type Snapshots struct {
	// Load reads the source of a set and its revision in one transaction.
	Load func(ctx context.Context, tenant scope.TenantID, env scope.Env) (Source, error)
	// Changes reads what changed since a revision, in one transaction. It returns false if that is
	// unknown or if a full load is cheaper. If Changes is nil, every change loads everything.
	Changes func(ctx context.Context, tenant scope.TenantID, env scope.Env, since int64) (Delta, bool, error)
	// Revision names the counter that changes with every change that Load would see.
	Revision func(ctx context.Context, tenant scope.TenantID, env scope.Env) (int64, error)
	Log      *slog.Logger
	// Idle is how long an unused snapshot is kept.
	Idle time.Duration
	Now  func() time.Time

	all sync.Map // place → *snapshot
}

type snapshot struct {
	place snapshotKey
	set   atomic.Pointer[rego.Set]
	// stale counts the changes; built is the value of stale for which set was built.
	stale, built atomic.Int64
	used         atomic.Int64 // unix seconds
	load         sync.Mutex
	// renewing counts the calls that rebuild or wait for a rebuild. late means that one of them
	// takes longer than a decision waits.
	renewing atomic.Int64
	late     atomic.Bool
	// Guarded by load: the number of gaps that removed resources left in set, and the libraries
	// that its controls may import.
	holes     int
	libraries []lang.Library
}

// maxHoles is the number of removals after which a set is rebuilt without the gaps that
// they left.
const maxHoles = 10_000

// Get returns the set for a decision. If there is none, or after a change, it builds a new one.
// Concurrent callers wait for the same build, so the next decision after a change uses the change.
func (s *Snapshots) Get(ctx context.Context, tenant scope.TenantID, env scope.Env) (*rego.Set, error) {
	key := snapshotKey{tenant, env}
	v, ok := s.all.Load(key)
	if !ok {
		v, _ = s.all.LoadOrStore(key, &snapshot{place: key})
	}
	snap := v.(*snapshot)
	snap.used.Store(s.Now().Unix())
	if set := snap.set.Load(); set != nil && snap.built.Load() == snap.stale.Load() {
		return set, nil
	}
	return s.rebuilt(ctx, snap)
}

// renewPatience is how long a decision waits for the new set after a change if there is an older
// one, so that a store that hangs does not delay decisions.
const renewPatience = 250 * time.Millisecond

// rebuilt returns the set after a rebuild. If the rebuild takes longer than renewPatience, it returns
// the older set, and other callers do not wait while that rebuild runs.
func (s *Snapshots) rebuilt(ctx context.Context, snap *snapshot) (*rego.Set, error) {
	old := snap.set.Load()
	if old == nil {
		return s.rebuild(ctx, snap)
	}
	if snap.late.Load() {
		return old, nil
	}
	type result struct {
		set *rego.Set
		err error
	}
	done := make(chan result, 1)
	snap.renewing.Add(1)
	go func() { // it ends, because each call to a store has a deadline
		set, err := s.rebuild(context.WithoutCancel(ctx), snap)
		if snap.renewing.Add(-1) == 0 {
			snap.late.Store(false)
		}
		done <- result{set, err}
	}()
	timer := time.NewTimer(renewPatience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.set, r.err
	case <-timer.C:
		if snap.renewing.Load() > 0 {
			snap.late.Store(true)
			if snap.renewing.Load() == 0 {
				snap.late.Store(false)
			}
		}
		return old, nil
	}
}

// Loaded reports whether there is a snapshot.
func (s *Snapshots) Loaded(tenant scope.TenantID, env scope.Env) bool {
	v, ok := s.all.Load(snapshotKey{tenant, env})
	return ok && v.(*snapshot).set.Load() != nil
}

func (s *Snapshots) rebuild(ctx context.Context, snap *snapshot) (*rego.Set, error) {
	snap.load.Lock()
	defer snap.load.Unlock()
	heard := snap.stale.Load()
	old := snap.set.Load()
	if old != nil && snap.built.Load() == heard {
		return old, nil
	}
	set, err := s.next(ctx, snap, old)
	if err != nil {
		if old != nil && fault.Is(err, fault.Unavailable) {
			return old, nil
		}
		return nil, err
	}
	snap.set.Store(set)
	snap.built.Store(heard)
	return set, nil
}

// next returns the set for the store's current state. It updates the old one if possible, otherwise it
// builds a new one.
func (s *Snapshots) next(ctx context.Context, snap *snapshot, old *rego.Set) (*rego.Set, error) {
	at := snap.place
	if old != nil && s.Changes != nil && snap.holes < maxHoles {
		d, ok, err := s.Changes(ctx, at.tenant, at.env, old.Revision())
		if err != nil {
			return nil, err
		}
		if ok {
			snap.holes += len(d.RemovedResources)
			newLibraries := d.Rest && !slices.Equal(snap.libraries, d.Libraries)
			if d.Rest {
				snap.libraries = d.Libraries
			}
			return applyDelta(d, old, newLibraries), nil
		}
	}
	src, err := s.Load(ctx, at.tenant, at.env)
	if err != nil {
		return nil, err
	}
	snap.holes, snap.libraries = 0, src.Libraries
	return build(src, at.env, old), nil
}

// applyDelta makes the set after a change from the old set. Both share the parts that did not change,
// and those are not read from the store.
func applyDelta(d Delta, old *rego.Set, newLibraries bool) *rego.Set {
	c := rego.Change{Revision: d.Revision, Resources: d.Resources, RemovedResources: d.RemovedResources, PIP: changedPIP(d.PIP, old.PIP()), Agents: d.Agents}
	if !value.Identical(d.Grants, old.Grants()) {
		c.Grants = &d.Grants
	}
	if !d.Rest {
		return old.With(c)
	}
	given := make(map[int64]bool, len(d.Controls))
	for _, text := range d.Controls {
		given[text.ID] = true
		was := old.Control(text.ID)
		if next := control(text, d.Libraries, was); next != was {
			c.Controls = append(c.Controls, next)
		}
	}
	for _, id := range d.RemovedControls {
		if old.Control(id) != nil {
			c.RemovedControls = append(c.RemovedControls, id)
		}
	}
	if d.Whole || newLibraries {
		for _, was := range old.Controls() {
			m := was.Meta()
			switch {
			case given[m.ID] || slices.Contains(d.RemovedControls, m.ID):
			case d.Whole:
				c.RemovedControls = append(c.RemovedControls, m.ID)
			default:
				if next := control(ControlText{m, was.Source()}, d.Libraries, was); next != was {
					c.Controls = append(c.Controls, next)
				}
			}
		}
	}
	return old.With(c)
}

// changedPIP returns data.pip with the members of a delta; nil if nothing differs. A member that is
// identical keeps its old value, so that data derived from it can be reused.
func changedPIP(delta []value.Member, old value.Value) *value.Value {
	differs := false
	next := map[string]value.Value{}
	for _, m := range delta {
		was := old.Get(m.Key)
		if !value.Identical(m.Value, was) { // equal values may be written differently, and controls can see that
			differs = true
			was = m.Value
		}
		next[m.Key] = was
	}
	if !differs {
		return nil
	}
	members := make([]value.Member, 0, old.Len()+len(delta))
	old.Each(func(name string, v value.Value) bool {
		if _, touched := next[name]; !touched {
			members = append(members, value.Member{Key: name, Value: v})
		}
		return true
	})
	for name, v := range next {
		members = append(members, value.Member{Key: name, Value: v}) // undefined: left out
	}
	slices.SortFunc(members, func(a, b value.Member) int { return strings.Compare(a.Key, b.Key) })
	pip := value.Object(members...)
	return &pip
}

// control returns the control of a text. It returns was if the text and the libraries are the same. A
// control compiles at its first use, so the cost of a start or of a change does not grow with the
// number of controls.
func control(text ControlText, libs []lang.Library, was *rego.Control) *rego.Control {
	if was != nil && was.BuiltFrom(text.Meta, text.Source, libs) {
		return was
	}
	return rego.Defer(text.Meta, text.Source, libs)
}

// build makes a set. It reuses the parts of the old one that did not change.
func build(src Source, env scope.Env, old *rego.Set) *rego.Set {
	controls := make([]*rego.Control, len(src.Controls))
	for i, text := range src.Controls {
		var was *rego.Control
		if old != nil {
			was = old.Control(text.ID)
		}
		controls[i] = control(text, src.Libraries, was)
	}
	return rego.NewSet(rego.SetSpec{Revision: src.Revision, Env: string(env), Controls: controls, Resources: src.Resources, PIP: src.PIP, Grants: src.Grants, Agents: src.Agents})
}

// OnChange records a change. It can be used as a watcher of the store. It ignores names other than
// those of environments. An empty tenant and name mean that anything may have changed.
func (s *Snapshots) OnChange(tenant scope.TenantID, name string) {
	env, isEnv := strings.CutPrefix(name, "env:")
	if tenant != "" && !isEnv {
		return
	}
	if tenant == "" && name != "" {
		return
	}
	s.all.Range(func(_, v any) bool {
		snap := v.(*snapshot)
		if tenant == "" || snap.place == (snapshotKey{tenant, scope.Env(env)}) {
			snap.stale.Add(1)
		}
		return true
	})
}

// Run checks at intervals whether a change was missed, and drops unused snapshots, until
// the context ends.
func (s *Snapshots) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.sweep(ctx)
		}
	}
}

func (s *Snapshots) sweep(ctx context.Context) {
	s.all.Range(func(key, v any) bool {
		snap := v.(*snapshot)
		if s.Now().Unix()-snap.used.Load() > int64(s.Idle/time.Second) {
			s.all.Delete(key)
			return true
		}
		set := snap.set.Load()
		if set == nil || snap.built.Load() != snap.stale.Load() {
			return true
		}
		rev, err := s.Revision(ctx, snap.place.tenant, snap.place.env)
		switch {
		case fault.Is(err, fault.NotFound):
			s.all.Delete(key) // the tenant was deleted
		case err != nil:
			s.Log.Warn("snapshot: check for changes", "tenant", snap.place.tenant, "error", err)
		case rev != set.Revision():
			snap.stale.Add(1)
		}
		return true
	})
}
