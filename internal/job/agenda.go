package job

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Agenda says which tenant to look at next: those that told of something new, those
// whose time has come, and now and then all of them, in case that a wake was missed.
// It costs nothing a tenant that has nothing to do.
type Agenda struct {
	Cluster *db.Cluster
	// Topic is what a tenant with something new is notified by (db.Tx.Notify).
	Topic string
	Now   func() time.Time
	// Poll is how often all tenants are looked at.
	Poll   time.Duration
	Logger *slog.Logger

	mu    sync.Mutex
	due   map[scope.TenantID]time.Time // when to look at a tenant next
	order []scope.TenantID             // of due, those longest waiting first
	all   time.Time                    // when to look at all tenants
	wake  chan struct{}
}

// Begin listens to the store until stop is called. It comes before Next and Schedule.
func (a *Agenda) Begin() (stop func()) {
	a.mu.Lock()
	a.due, a.order, a.all = map[scope.TenantID]time.Time{}, nil, time.Time{}
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
	old, known := a.due[tenant]
	if !known {
		a.order = append(a.order, tenant)
	}
	if !known || at.Before(old) {
		a.due[tenant] = at
	}
	a.mu.Unlock()
	a.wakeRunner()
}

// onChange is told of changes by the store.
func (a *Agenda) onChange(tenant scope.TenantID, name string) {
	switch {
	case name == a.Topic && tenant != "":
		a.Schedule(tenant, time.Time{})
	case tenant == "" && name == "": // anything may have been missed
		a.mu.Lock()
		a.all = time.Time{}
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

// listTenants puts all tenants on the list, when it is time to.
func (a *Agenda) listTenants(ctx context.Context) {
	now := a.Now()
	a.mu.Lock()
	late := !now.Before(a.all)
	if late {
		a.all = now.Add(a.Poll)
	}
	a.mu.Unlock()
	if !late {
		return
	}
	ids, err := a.Cluster.Tenants(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.Logger.Warn(a.Topic+": the tenants cannot be listed", "error", err)
		}
		a.mu.Lock()
		a.all = now.Add(min(a.Poll, 2*time.Second))
		a.mu.Unlock()
		return
	}
	for _, id := range ids {
		a.Schedule(id, time.Time{})
	}
}

// next takes the first tenant off the list whose time has come, or says how long
// there is none.
func (a *Agenda) next() (scope.TenantID, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	wait := a.all.Sub(now)
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

func (a *Agenda) sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-a.wake:
	}
}
