package job

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Agenda says which tenant to check next: those that have notified it, those whose time has
// come, and from time to time all of them, in case a notification was missed. It checks all of
// them at once when it begins and after it lost the connection to the store. Otherwise it
// spreads them over the interval.
type Agenda struct {
	Cluster *db.Cluster
	// Topic is what a tenant with something new is notified by (db.Tx.Notify).
	Topic string
	Now   func() time.Time
	// Poll is how often all tenants are looked at, unless there are so many that it takes longer
	// (db.SweepInterval).
	Poll   time.Duration
	Logger *slog.Logger

	mu    sync.Mutex
	due   map[scope.TenantID]time.Time // when to look at a tenant next
	order []scope.TenantID             // of due, those longest waiting first
	all   time.Time                    // when to list all tenants
	every time.Duration                // how far all lies ahead at most
	soon  bool                         // the next list is looked at at once
	rest  []scope.TenantID             // of the last list, those to look at
	part  int                          // how many of them to look at each pace
	look  time.Time                    // when to look at the next of them
	wake  chan struct{}
}

// pace is how often the next ones of a list of all tenants are looked at.
const pace = time.Second

// Begin listens to the store until stop is called. It comes before Next and Schedule.
func (a *Agenda) Begin() (stop func()) {
	a.mu.Lock()
	a.due, a.order, a.all, a.soon, a.rest = map[scope.TenantID]time.Time{}, nil, time.Time{}, true, nil
	a.wake = make(chan struct{}, 1)
	a.mu.Unlock()
	return a.Cluster.Watch(a.onChange)
}

// Next waits for a tenant to look at. It gives false when ctx has ended.
func (a *Agenda) Next(ctx context.Context) (scope.TenantID, bool) {
	for ctx.Err() == nil {
		a.listTenants(ctx)
		tenant, wait := a.next()
		if tenant != "" {
			return tenant, true
		}
		a.sleep(ctx, wait)
	}
	return "", false
}

// Schedule has a tenant looked at, at a time or before; the zero time is now.
func (a *Agenda) Schedule(tenant scope.TenantID, at time.Time) {
	a.mu.Lock()
	a.add(tenant, at)
	a.mu.Unlock()
	a.wakeRunner()
}

// add puts a tenant on the list. The caller holds mu.
func (a *Agenda) add(tenant scope.TenantID, at time.Time) {
	old, known := a.due[tenant]
	if !known {
		a.order = append(a.order, tenant)
	}
	if !known || at.Before(old) {
		a.due[tenant] = at
	}
}

// onChange is told of changes by the store.
func (a *Agenda) onChange(tenant scope.TenantID, name string) {
	switch {
	case name == a.Topic && tenant != "":
		a.Schedule(tenant, time.Time{})
	case tenant == "" && name == "": // anything may have been missed
		a.mu.Lock()
		a.all, a.soon = time.Time{}, true
		a.mu.Unlock()
		a.wakeRunner()
	}
}

func (a *Agenda) wakeRunner() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// listTenants lists all tenants, when it is time to.
func (a *Agenda) listTenants(ctx context.Context) {
	now := a.Now()
	a.mu.Lock()
	// A list that is further ahead than any that this clock plans was planned before the clock
	// was set back.
	late, soon := !now.Before(a.all) || a.all.Sub(now) > a.every, a.soon
	if late {
		a.all, a.every, a.soon = now.Add(a.Poll), a.Poll, false
	}
	a.mu.Unlock()
	if !late {
		return
	}
	ids, err := a.Cluster.Tenants(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			a.Logger.Warn(a.Topic+": the tenants cannot be listed", "error", err)
		}
		a.all, a.soon = now.Add(min(a.Poll, 2*time.Second)), soon || a.soon
		return
	}
	a.spread(ids, now, soon)
}

// spread plans looks at all tenants: at once, or over the interval until they are listed again.
// The caller holds mu.
func (a *Agenda) spread(ids []scope.TenantID, now time.Time, soon bool) {
	interval := db.SweepInterval(len(ids), a.Poll)
	if !a.soon { // else they are to be listed again
		a.all, a.every = now.Add(interval), interval
	}
	a.rest, a.look, a.part = ids, now, 1+int(pace*time.Duration(len(ids))/max(interval, pace))
	if soon {
		a.part = len(ids)
	}
}

// takeRest puts those of the last list on the agenda whose turn has come, and returns how long
// the next ones have. The caller holds mu.
func (a *Agenda) takeRest(now time.Time) (wait time.Duration) {
	for len(a.rest) > 0 && !now.Before(a.look) {
		n := min(a.part, len(a.rest))
		for _, id := range a.rest[:n] {
			a.add(id, time.Time{})
		}
		a.rest, a.look = a.rest[n:], a.look.Add(pace)
	}
	if len(a.rest) > 0 {
		return a.look.Sub(now)
	}
	return a.all.Sub(now)
}

// next takes the first tenant off the list whose time has come, or says how long
// there is none.
func (a *Agenda) next() (scope.TenantID, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	wait := min(a.takeRest(now), a.all.Sub(now))
	for i, id := range a.order {
		if left := a.due[id].Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		a.order = append(a.order[:i:i], a.order[i+1:]...)
		delete(a.due, id)
		return id, 0
	}
	return "", max(wait, time.Millisecond)
}

// sleep waits, and no longer than Poll: the clock may be set meanwhile.
func (a *Agenda) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(min(wait, a.Poll))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.wake:
	}
}
