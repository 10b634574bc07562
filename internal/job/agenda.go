package job

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Agenda says which tenant to check next. It returns tenants that sent a notification, tenants that
// are due, and from time to time all tenants, in case a notification was lost. It returns all of
// them at once at the start and after the connection to the store was lost. Otherwise it spreads
// them over the interval.
type Agenda struct {
	Cluster *db.Cluster
	// Topic is the name of the notification for a change in a tenant (db.Tx.Notify).
	Topic string
	Now   func() time.Time
	// Poll is the interval at which all tenants are checked. With many tenants it is longer
	// (db.SweepInterval).
	Poll   time.Duration
	Logger *slog.Logger

	mu        sync.Mutex
	due       map[scope.TenantID]time.Time // when to check each tenant
	order     []scope.TenantID             // the keys of due, first come, first served
	listAt    time.Time                    // when to list all tenants
	listMost  time.Duration                // listAt is never further ahead than this
	checkAll  bool                         // check all tenants of the next list at once
	unchecked []scope.TenantID             // the rest of the last list
	batch     int                          // how many of them to check in each pace
	batchAt   time.Time                    // when to check the next batch
	wake      chan struct{}
}

// pace is the time between two batches of a list of all tenants.
const pace = time.Second

// Begin subscribes to notifications until stop is called. Call it before Next and Schedule.
func (a *Agenda) Begin() (stop func()) {
	a.mu.Lock()
	a.due, a.order, a.listAt, a.checkAll, a.unchecked = map[scope.TenantID]time.Time{}, nil, time.Time{}, true, nil
	a.wake = make(chan struct{}, 1)
	a.mu.Unlock()
	return a.Cluster.Watch(a.onChange)
}

// Next waits for a tenant to check. It returns false when ctx has ended.
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

// Schedule has a tenant checked at a time or earlier. The zero time means now.
func (a *Agenda) Schedule(tenant scope.TenantID, at time.Time) {
	a.mu.Lock()
	a.add(tenant, at)
	a.mu.Unlock()
	a.wakeNext()
}

// add schedules a tenant. The caller holds mu.
func (a *Agenda) add(tenant scope.TenantID, at time.Time) {
	old, known := a.due[tenant]
	if !known {
		a.order = append(a.order, tenant)
	}
	if !known || at.Before(old) {
		a.due[tenant] = at
	}
}

// onChange receives the notifications of the store.
func (a *Agenda) onChange(tenant scope.TenantID, name string) {
	switch {
	case name == a.Topic && tenant != "":
		a.Schedule(tenant, time.Time{})
	case tenant == "" && name == "": // a notification may have been lost
		a.mu.Lock()
		a.listAt, a.checkAll = time.Time{}, true
		a.mu.Unlock()
		a.wakeNext()
	}
}

func (a *Agenda) wakeNext() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// listTenants lists all tenants if a list is due.
func (a *Agenda) listTenants(ctx context.Context) {
	now := a.Now()
	a.mu.Lock()
	// If listAt is further ahead than this clock ever plans, the clock was set back.
	due, atOnce := !now.Before(a.listAt) || a.listAt.Sub(now) > a.listMost, a.checkAll
	if due {
		a.listAt, a.listMost, a.checkAll = now.Add(a.Poll), a.Poll, false
	}
	a.mu.Unlock()
	if !due {
		return
	}
	ids, err := a.Cluster.Tenants(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			a.Logger.Warn(a.Topic+": the tenants cannot be listed", "error", err)
		}
		a.listAt, a.checkAll = now.Add(min(a.Poll, 2*time.Second)), atOnce || a.checkAll
		return
	}
	a.spread(ids, now, atOnce)
}

// spread plans the checks of all tenants: at once, or spread over the interval until the next list.
// The caller holds mu.
func (a *Agenda) spread(ids []scope.TenantID, now time.Time, atOnce bool) {
	interval := db.SweepInterval(len(ids), a.Poll)
	if !a.checkAll { // otherwise another list is already due
		a.listAt, a.listMost = now.Add(interval), interval
	}
	a.unchecked, a.batchAt, a.batch = ids, now, 1+int(pace*time.Duration(len(ids))/max(interval, pace))
	if atOnce {
		a.batch = len(ids)
	}
}

// addBatch schedules the batches that are due. It returns the time until the next batch or list.
// The caller holds mu.
func (a *Agenda) addBatch(now time.Time) (wait time.Duration) {
	for len(a.unchecked) > 0 && !now.Before(a.batchAt) {
		n := min(a.batch, len(a.unchecked))
		for _, id := range a.unchecked[:n] {
			a.add(id, time.Time{})
		}
		a.unchecked, a.batchAt = a.unchecked[n:], a.batchAt.Add(pace)
	}
	if len(a.unchecked) > 0 {
		return a.batchAt.Sub(now)
	}
	return a.listAt.Sub(now)
}

// next removes and returns the first tenant that is due. If there is none, it returns how long to
// wait.
func (a *Agenda) next() (scope.TenantID, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	wait := min(a.addBatch(now), a.listAt.Sub(now))
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

// sleep waits. It never waits longer than Poll, because the clock may be set back.
func (a *Agenda) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(min(wait, a.Poll))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.wake:
	}
}
