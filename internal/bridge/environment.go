package bridge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// environment is the state of one tenant's environment in this replica.
type environment struct {
	environmentKey
	svc *Service

	// announced counts the announced changes, seen those that the states reflect.
	announced, seen atomic.Int64
	running         atomic.Bool
	used            atomic.Int64 // unix seconds of the last poll

	rounds     atomic.Int64 // number of refreshes that were started
	refreshing sync.Mutex   // held by the goroutine that refreshes
	packs      packs        // used by the goroutine that refreshes

	mu               sync.Mutex // guards what follows
	loaded           bool
	served           bool
	states           map[int64]*bouncerState
	set              *rego.Set
	registryRevision int64 // the revision of the registry that the states reflect
}

// reading is the state of the environment in one transaction.
type reading struct {
	env, bouncers int64 // revisions
	mode          string
	replayOff     bool // the tenant stores no inputs for replay
	list          []bouncer.Bouncer
	links         map[int64][]int64
	bundles       map[int64]bouncer.Bundle
	masks         maskKey
}

func newEnvironment(s *Service, p environmentKey) *environment {
	e := &environment{environmentKey: p, svc: s, states: map[int64]*bouncerState{}, packs: newPacks()}
	e.announced.Store(1) // nothing is loaded yet
	e.used.Store(s.cfg.Now().Unix())
	return e
}

// noteChange records a change, and starts a refresh if the environment is in use.
func (e *environment) noteChange() {
	e.announced.Add(1)
	e.mu.Lock()
	loaded := e.loaded
	e.mu.Unlock()
	if loaded {
		e.start()
	}
}

// start has one goroutine refresh the environment until it reflects all announced changes.
func (e *environment) start() {
	if !e.running.CompareAndSwap(false, true) {
		return
	}
	e.svc.background(func() {
		err := e.refresh(e.svc.ctx)
		e.running.Store(false)
		switch {
		case err != nil && e.svc.ctx.Err() == nil:
			// The sweep tries again; until then, bouncers keep what they have.
			e.svc.cfg.Log.Error("the bridge could not apply a change", "tenant", e.tenant, "environment", e.env, "error", err)
		case err == nil && e.seen.Load() != e.announced.Load():
			e.start()
		}
	})
}

// bouncerState returns the state of a bouncer. It loads the environment if necessary. For an unknown id
// or token it reads the store again, because the bouncer may be new.
func (e *environment) bouncerState(ctx context.Context, id int64, token string) (*bouncerState, error) {
	e.used.Store(e.svc.cfg.Now().Unix())
	for try := 0; ; try++ {
		round := e.rounds.Load()
		e.mu.Lock()
		d, served := e.states[id], e.served
		e.mu.Unlock()
		switch {
		case d != nil && served && d.useToken(token):
			return d, nil
		case try > 0 && !served:
			return nil, fault.New(fault.Forbidden, "tenant_access_denied", "the tenant is not active").With("tenant_id", string(e.tenant))
		case try > 0 && d == nil:
			return nil, noBouncer()
		case try > 0:
			return nil, revoked()
		}
		if err := e.refreshAfter(ctx, round); err != nil {
			return nil, err
		}
	}
}

func revoked() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "this token is no longer valid")
}

// errMoved says that the store changed while a content was built.
var errMoved = errors.New("the store has newer changes")

// refreshAfter returns once a refresh that started after the given round has succeeded.
// All waiting callers share one refresh.
func (e *environment) refreshAfter(ctx context.Context, round int64) error {
	e.refreshing.Lock()
	defer e.refreshing.Unlock()
	if e.rounds.Load() > round && e.seen.Load() == e.announced.Load() {
		return nil
	}
	e.announced.Add(1)
	return e.refreshLocked(ctx)
}

// refresh brings the states up to date with the store.
func (e *environment) refresh(ctx context.Context) error {
	e.refreshing.Lock()
	defer e.refreshing.Unlock()
	return e.refreshLocked(ctx)
}

// refreshLocked is refresh for a caller that holds refreshing.
func (e *environment) refreshLocked(ctx context.Context) error {
	announced := e.announced.Load()
	if e.seen.Load() == announced {
		return nil
	}
	e.rounds.Add(1)
	facts, err := e.svc.cfg.Facts(ctx, e.tenant)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || facts.Status != tenant.Active {
		e.close()
		e.seen.Store(announced)
		return nil
	}
	for try := 0; ; try++ {
		err := e.publishContent(ctx)
		if err == nil {
			e.seen.Store(announced)
			return nil
		}
		if !errors.Is(err, errMoved) || try == 20 {
			return err
		}
	}
}

// publishContent reads the environment, builds the content of every bouncer, publishes
// new content, and passes it to the states of the bouncers.
func (e *environment) publishContent(ctx context.Context) error {
	store, err := e.svc.cfg.Stores.Tenant(ctx, e.tenant)
	if err != nil {
		return err
	}
	var r reading
	if err := store.Read(ctx, func(tx *db.Tx) (err error) { r, err = e.read(ctx, tx); return err }); err != nil {
		return err
	}
	if r.masks.id == "" {
		if r.masks, err = e.svc.firstMaskKey(ctx, store, e.tenant); err != nil {
			return err
		}
	}
	set, err := e.setAt(ctx, r.env)
	if err != nil {
		return err
	}
	targets, err := e.targets(ctx, set, &r)
	if err != nil {
		return err
	}
	var fresh []bouncer.Content
	for id, t := range targets {
		if b, ok := r.bundles[id]; !ok || b.ContentHash != t.hash {
			fresh = append(fresh, bouncer.Content{BouncerID: id, Hash: t.hash, EnvRevision: r.env, Resources: t.resources, Denies: t.denies})
		}
	}
	if len(fresh) > 0 {
		if err := store.Write(ctx, func(tx *db.Tx) error { return e.publish(ctx, tx, &r, fresh) }); err != nil {
			return err
		}
	}
	e.install(set, &r, targets)
	return nil
}

func (e *environment) read(ctx context.Context, tx *db.Tx) (r reading, err error) {
	if r.env, err = tx.Revision(ctx, resource.Revision(e.env)); err != nil {
		return r, err
	}
	if r.bouncers, err = tx.Revision(ctx, bouncer.Topic); err != nil {
		return r, err
	}
	mode, err := tenant.EnforcementIn(ctx, tx, e.env)
	if err != nil {
		return r, err
	}
	r.mode = mode.Mode
	settings, err := tenant.SettingsIn(ctx, tx)
	if err != nil {
		return r, err
	}
	r.replayOff = settings.Replay().Off
	if r.list, err = bouncer.InEnvironment(ctx, tx, e.env); err != nil {
		return r, err
	}
	if r.masks, err = e.svc.maskKeyIn(ctx, tx, e.tenant); err != nil {
		return r, err
	}
	if r.links, err = e.svc.cfg.Links(ctx, tx, e.env); err != nil {
		return r, err
	}
	r.bundles, err = e.bundles(ctx, tx)
	return r, err
}

func (e *environment) bundles(ctx context.Context, tx *db.Tx) (map[int64]bouncer.Bundle, error) {
	list, err := bouncer.BundlesIn(ctx, tx, e.env)
	out := make(map[int64]bouncer.Bundle, len(list))
	for _, b := range list {
		out[b.BouncerID] = b
	}
	return out, err
}

// setAt returns the set of controls of exactly this revision. If the store has changed
// since, the error is errMoved.
func (e *environment) setAt(ctx context.Context, revision int64) (*rego.Set, error) {
	set, err := e.svc.cfg.Snapshots.Get(ctx, e.tenant, e.env)
	if err == nil && set.Revision() < revision { // the change has not been announced yet
		e.svc.cfg.Snapshots.OnChange(e.tenant, resource.Revision(e.env))
		set, err = e.svc.cfg.Snapshots.Get(ctx, e.tenant, e.env)
	}
	if err == nil && set.Revision() != revision {
		err = errMoved
	}
	return set, err
}

// publish assigns revisions to new contents. Under the lock it checks that they still
// match the store, so an older content never follows a newer one on any replica.
func (e *environment) publish(ctx context.Context, tx *db.Tx, r *reading, fresh []bouncer.Content) error {
	if err := tx.Lock(ctx, "bridge."+string(e.env)); err != nil {
		return err
	}
	env, err := tx.Revision(ctx, resource.Revision(e.env))
	if err != nil {
		return err
	}
	registry, err := tx.Revision(ctx, bouncer.Topic)
	if err != nil {
		return err
	}
	if env != r.env || registry != r.bouncers {
		return errMoved
	}
	if err := e.svc.cfg.Bouncers.Publish(ctx, tx, fresh); err != nil {
		return err
	}
	r.bundles, err = e.bundles(ctx, tx)
	return err
}

// install passes the targets to the states of the bouncers, which wake their waiting polls.
func (e *environment) install(set *rego.Set, r *reading, targets map[int64]*desiredBundle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loaded, e.served, e.set, e.registryRevision = true, true, set, r.bouncers
	for id, d := range e.states {
		if targets[id] == nil {
			delete(e.states, id)
			d.close()
		}
	}
	for i := range r.list {
		b := &r.list[i]
		d := e.states[b.ID]
		if d == nil {
			d = newBouncerState(b.ID)
			e.states[b.ID] = d
		}
		t, stored := targets[b.ID], r.bundles[b.ID]
		t.revision, t.publishedAt = stored.Revision, stored.PublishedAt
		if rotated := d.install(b, t, stored); rotated {
			e.svc.activity.add(e.tenant, d, activity{status: bouncer.Degraded, detail: tokenRotated})
		}
	}
}

// close ends all waiting polls: the tenant is not served.
func (e *environment) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, d := range e.states {
		delete(e.states, id)
		d.close()
	}
	e.loaded, e.served = true, false
}

// stale reports whether the store's revisions differ from those of the environment.
func (e *environment) stale(ctx context.Context) (bool, error) {
	e.mu.Lock()
	loaded, set, registry := e.loaded, e.set, e.registryRevision
	e.mu.Unlock()
	if !loaded || set == nil || e.seen.Load() != e.announced.Load() {
		return true, nil
	}
	var moved bool
	err := e.svc.cfg.Stores.Read(ctx, e.tenant, func(tx *db.Tx) error {
		env, err := tx.Revision(ctx, resource.Revision(e.env))
		if err != nil {
			return err
		}
		now, err := tx.Revision(ctx, bouncer.Topic)
		moved = env != set.Revision() || now != registry
		return err
	})
	return moved, err
}

// idle reports whether nobody has used the environment for a while.
func (e *environment) idle(now time.Time) bool {
	return now.Unix()-e.used.Load() > int64(10*time.Minute/time.Second) && e.countWaiting() == 0
}

func (e *environment) countWaiting() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, d := range e.states {
		n += d.waiting()
	}
	return n
}

// agents returns the AI agents of the tenant.
func (e *environment) agents() actor.Agents {
	if set := e.currentSet(); set != nil {
		return set.Agents()
	}
	return actor.Agents{}
}

// currentSet returns the set of controls that the states reflect, nil before it is
// loaded.
func (e *environment) currentSet() *rego.Set {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}
