package bridge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// feed is the state of one tenant's environment in this replica.
type feed struct {
	feedKey
	svc *Service

	// announced counts the announced changes, seen those that the desks reflect.
	announced, seen atomic.Int64
	running         atomic.Bool
	used            atomic.Int64 // unix seconds of the last poll

	rounds     atomic.Int64 // number of refreshes that were started
	refreshing sync.Mutex   // held by the goroutine that refreshes
	packs      packs        // used by the goroutine that refreshes

	mu       sync.Mutex // guards what follows
	loaded   bool
	served   bool
	desks    map[int64]*desk
	set      *rego.Set
	bouncers int64 // the revision of the registry that desks reflect
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

func newFeed(s *Service, p feedKey) *feed {
	f := &feed{feedKey: p, svc: s, desks: map[int64]*desk{}, packs: newPacks()}
	f.announced.Store(1) // nothing is loaded yet
	f.used.Store(s.cfg.Now().Unix())
	return f
}

// noteChange records a change, and starts a refresh if the feed is in use.
func (f *feed) noteChange() {
	f.announced.Add(1)
	f.mu.Lock()
	loaded := f.loaded
	f.mu.Unlock()
	if loaded {
		f.start()
	}
}

// start has one goroutine refresh the feed until it reflects all announced changes.
func (f *feed) start() {
	if !f.running.CompareAndSwap(false, true) {
		return
	}
	f.svc.background(func() {
		err := f.refresh(f.svc.ctx)
		f.running.Store(false)
		switch {
		case err != nil && f.svc.ctx.Err() == nil:
			// The sweep tries again; until then, bouncers keep what they have.
			f.svc.cfg.Log.Error("the bridge could not apply a change", "tenant", f.tenant, "environment", f.env, "error", err)
		case err == nil && f.seen.Load() != f.announced.Load():
			f.start()
		}
	})
}

// desk returns the desk of a bouncer. It loads the feed if necessary. For an unknown id
// or token it reads the store again, because the bouncer may be new.
func (f *feed) desk(ctx context.Context, id int64, token string) (*desk, error) {
	f.used.Store(f.svc.cfg.Now().Unix())
	for try := 0; ; try++ {
		round := f.rounds.Load()
		f.mu.Lock()
		d, served := f.desks[id], f.served
		f.mu.Unlock()
		switch {
		case d != nil && served && d.hasToken(token):
			return d, nil
		case try > 0 && !served:
			return nil, fault.New(fault.Forbidden, "tenant_access_denied", "the tenant is not active").With("tenant_id", string(f.tenant))
		case try > 0 && d == nil:
			return nil, noBouncer()
		case try > 0:
			return nil, revoked()
		}
		if err := f.refreshAfter(ctx, round); err != nil {
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
func (f *feed) refreshAfter(ctx context.Context, round int64) error {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	if f.rounds.Load() > round && f.seen.Load() == f.announced.Load() {
		return nil
	}
	f.announced.Add(1)
	return f.refreshLocked(ctx)
}

// refresh brings the desks up to date with the store.
func (f *feed) refresh(ctx context.Context) error {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	return f.refreshLocked(ctx)
}

// refreshLocked is refresh for a caller that holds refreshing.
func (f *feed) refreshLocked(ctx context.Context) error {
	announced := f.announced.Load()
	if f.seen.Load() == announced {
		return nil
	}
	f.rounds.Add(1)
	facts, err := f.svc.cfg.Facts(ctx, f.tenant)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err != nil || facts.Status != tenant.Active {
		f.close()
		f.seen.Store(announced)
		return nil
	}
	for try := 0; ; try++ {
		err := f.publishContent(ctx)
		if err == nil {
			f.seen.Store(announced)
			return nil
		}
		if !errors.Is(err, errMoved) || try == 20 {
			return err
		}
	}
}

// publishContent reads the environment, builds the content of every bouncer, publishes
// new content, and passes it to the desks.
func (f *feed) publishContent(ctx context.Context) error {
	store, err := f.svc.cfg.Stores.Tenant(ctx, f.tenant)
	if err != nil {
		return err
	}
	var r reading
	if err := store.Read(ctx, func(tx *db.Tx) (err error) { r, err = f.read(ctx, tx); return err }); err != nil {
		return err
	}
	if r.masks.id == "" {
		if r.masks, err = f.svc.firstMaskKey(ctx, store, f.tenant); err != nil {
			return err
		}
	}
	set, err := f.setAt(ctx, r.env)
	if err != nil {
		return err
	}
	targets, err := f.targets(ctx, set, &r)
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
		if err := store.Write(ctx, func(tx *db.Tx) error { return f.publish(ctx, tx, &r, fresh) }); err != nil {
			return err
		}
	}
	f.install(set, &r, targets)
	return nil
}

func (f *feed) read(ctx context.Context, tx *db.Tx) (r reading, err error) {
	if r.env, err = tx.Revision(ctx, resource.Revision(f.env)); err != nil {
		return r, err
	}
	if r.bouncers, err = tx.Revision(ctx, bouncer.Topic); err != nil {
		return r, err
	}
	mode, err := tenant.EnforcementIn(ctx, tx, f.env)
	if err != nil {
		return r, err
	}
	r.mode = mode.Mode
	settings, err := tenant.SettingsIn(ctx, tx)
	if err != nil {
		return r, err
	}
	r.replayOff = settings.Replay().Off
	if r.list, err = bouncer.InEnvironment(ctx, tx, f.env); err != nil {
		return r, err
	}
	if r.masks, err = f.svc.maskKeyIn(ctx, tx, f.tenant); err != nil {
		return r, err
	}
	if r.links, err = f.svc.cfg.Links(ctx, tx, f.env); err != nil {
		return r, err
	}
	r.bundles, err = f.bundles(ctx, tx)
	return r, err
}

func (f *feed) bundles(ctx context.Context, tx *db.Tx) (map[int64]bouncer.Bundle, error) {
	list, err := bouncer.BundlesIn(ctx, tx, f.env)
	out := make(map[int64]bouncer.Bundle, len(list))
	for _, b := range list {
		out[b.BouncerID] = b
	}
	return out, err
}

// setAt returns the set of controls of exactly this revision. If the store has changed
// since, the error is errMoved.
func (f *feed) setAt(ctx context.Context, revision int64) (*rego.Set, error) {
	set, err := f.svc.cfg.Snapshots.Get(ctx, f.tenant, f.env)
	if err == nil && set.Revision() < revision { // the change has not been announced yet
		f.svc.cfg.Snapshots.Changed(f.tenant, resource.Revision(f.env))
		set, err = f.svc.cfg.Snapshots.Get(ctx, f.tenant, f.env)
	}
	if err == nil && set.Revision() != revision {
		err = errMoved
	}
	return set, err
}

// publish assigns revisions to new contents. Under the lock it checks that they still
// match the store, so an older content never follows a newer one on any replica.
func (f *feed) publish(ctx context.Context, tx *db.Tx, r *reading, fresh []bouncer.Content) error {
	if err := tx.Lock(ctx, "bridge."+string(f.env)); err != nil {
		return err
	}
	env, err := tx.Revision(ctx, resource.Revision(f.env))
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
	if err := f.svc.cfg.Bouncers.Publish(ctx, tx, fresh); err != nil {
		return err
	}
	r.bundles, err = f.bundles(ctx, tx)
	return err
}

// install passes the targets to the desks, which wake their waiting polls.
func (f *feed) install(set *rego.Set, r *reading, targets map[int64]*desiredBundle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loaded, f.served, f.set, f.bouncers = true, true, set, r.bouncers
	for id, d := range f.desks {
		if targets[id] == nil {
			delete(f.desks, id)
			d.close()
		}
	}
	for i := range r.list {
		b := &r.list[i]
		d := f.desks[b.ID]
		if d == nil {
			d = newDesk(b.ID)
			f.desks[b.ID] = d
		}
		t, stored := targets[b.ID], r.bundles[b.ID]
		t.revision, t.publishedAt = stored.Revision, stored.PublishedAt
		if rotated := d.install(b, t, stored); rotated {
			f.svc.ledger.add(f.tenant, d, entry{status: bouncer.Degraded, detail: tokenRotated})
		}
	}
}

// close ends all waiting polls: the tenant is not served.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, d := range f.desks {
		delete(f.desks, id)
		d.close()
	}
	f.loaded, f.served = true, false
}

// stale reports whether the store's revisions differ from the feed's.
func (f *feed) stale(ctx context.Context) (bool, error) {
	f.mu.Lock()
	loaded, set, registry := f.loaded, f.set, f.bouncers
	f.mu.Unlock()
	if !loaded || set == nil || f.seen.Load() != f.announced.Load() {
		return true, nil
	}
	var moved bool
	err := f.svc.cfg.Stores.Read(ctx, f.tenant, func(tx *db.Tx) error {
		env, err := tx.Revision(ctx, resource.Revision(f.env))
		if err != nil {
			return err
		}
		now, err := tx.Revision(ctx, bouncer.Topic)
		moved = env != set.Revision() || now != registry
		return err
	})
	return moved, err
}

// idle reports whether nobody has used the feed for a while.
func (f *feed) idle(now time.Time) bool {
	return now.Unix()-f.used.Load() > int64(10*time.Minute/time.Second) && f.countWaiting() == 0
}

func (f *feed) countWaiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, d := range f.desks {
		n += d.waiting()
	}
	return n
}

// currentSet returns the set of controls that the desks reflect, nil before it is
// loaded.
func (f *feed) currentSet() *rego.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}
