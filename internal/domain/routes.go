package domain

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Route is what every replica holds in memory about a verified domain.
type Route struct {
	Domain string         `db:"domain"`
	Tenant scope.TenantID `db:"tenant"`
	// Status is the status of the tenant.
	Status string `db:"status"`
	// Pair is the fingerprint of the uploaded certificate, Issued that of the ordered one; empty:
	// there is none.
	Pair   string `db:"pair"`
	Issued string `db:"issued"`
	// ACME says that the server orders a certificate as long as there is no Pair.
	ACME bool `db:"acme"`
	// HSTS is the max-age of Strict-Transport-Security, in seconds; 0: not sent.
	HSTS int64 `db:"hsts"`
	// Challenge is the key authorization of the current order (RFC 8555, section 8.1); empty: none.
	Challenge string `db:"challenge"`
}

// Fingerprint returns the fingerprint of the certificate that TLS connections to the domain get. It
// is empty if they get the deployment's: if the domain has no certificate, or the tenant is not
// active.
func (r Route) Fingerprint() string {
	switch {
	case r.Status != tenant.Active:
		return ""
	case r.Pair != "":
		return r.Pair
	case r.ACME:
		return r.Issued
	}
	return ""
}

// refreshPause is the least time between two reads by Refresh.
const refreshPause = 250 * time.Millisecond

// Routes holds the routes of all verified domains in memory. It is safe for concurrent use.
type Routes struct {
	stores *db.Cluster
	log    *slog.Logger
	now    func() time.Time
	known  atomic.Pointer[map[string]Route]
	stale  chan struct{}

	mu   sync.Mutex
	read time.Time // when Refresh read last
}

// LoadRoutes reads the routes of all verified domains.
func LoadRoutes(ctx context.Context, stores *db.Cluster, now func() time.Time, log *slog.Logger) (*Routes, error) {
	r := &Routes{stores: stores, log: log, now: now, stale: make(chan struct{}, 1)}
	return r, r.load(ctx)
}

func (r *Routes) load(ctx context.Context) error {
	list, err := db.ReadStore(ctx, r.stores.System(), func(tx *db.Tx) ([]Route, error) { return selectRoutes(ctx, tx) })
	if err != nil {
		return err
	}
	known := make(map[string]Route, len(list))
	for _, one := range list {
		known[one.Domain] = one
	}
	r.known.Store(&known)
	return nil
}

// Find returns the route of a domain. name is in lower case.
func (r *Routes) Find(name string) (Route, bool) {
	route, ok := (*r.known.Load())[name]
	return route, ok
}

// Reload reads the routes again now.
func (r *Routes) Reload(ctx context.Context) error { return r.load(ctx) }

// Refresh reads the routes again, because another replica may just have changed them. However often
// it is called, it reads at most once in refreshPause.
func (r *Routes) Refresh(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.read).Abs() >= refreshPause {
		r.read = now
		if err := r.load(ctx); err != nil {
			r.log.Warn("the routes of domains cannot be loaded", "error", err)
		}
	}
}

// OnChange receives the notifications of changes in the stores. It makes Run read the routes again.
func (r *Routes) OnChange(id scope.TenantID, name string) {
	if id == "" && (name == Revision || name == tenant.Revision || name == "") {
		select {
		case r.stale <- struct{}{}:
		default: // Run has already been told
		}
	}
}

// Run reads the routes again after each change, and every few seconds in case a notification was
// missed, until ctx ends.
func (r *Routes) Run(ctx context.Context) error {
	tick := time.NewTicker(4 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.stale:
		case <-tick.C:
		}
		if err := r.load(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("the routes of domains cannot be loaded", "error", err)
		}
	}
}
