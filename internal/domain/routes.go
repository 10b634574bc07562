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

// Route is what every replica knows of a verified domain.
type Route struct {
	Domain string         `db:"domain"`
	Tenant scope.TenantID `db:"tenant"`
	// Status is that of the tenant.
	Status string `db:"status"`
	// Pair is the fingerprint of the certificate that was sent, Issued that of the one that
	// was ordered; empty for none.
	Pair   string `db:"pair"`
	Issued string `db:"issued"`
	// ACME is set where a certificate is to be ordered while there is no Pair.
	ACME bool `db:"acme"`
	// HSTS is the max-age of Strict-Transport-Security, in seconds.
	HSTS int64 `db:"hsts"`
	// Challenge is the key authorization of an order under way (RFC 8555, section 8.1).
	Challenge string `db:"challenge"`
}

// Fingerprint is that of the certificate which TLS connections to the domain get; empty
// where that is the deployment's: without a certificate, and while the tenant is suspended
// or deleted.
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

// refreshPause is the least time between two readings that Refresh causes.
const refreshPause = 250 * time.Millisecond

// Routes is what this replica knows of verified domains. It is safe for concurrent use.
type Routes struct {
	stores *db.Cluster
	log    *slog.Logger
	now    func() time.Time
	known  atomic.Pointer[map[string]Route]
	stale  chan struct{}

	mu   sync.Mutex
	read time.Time // when Refresh read last
}

// LoadRoutes reads whose each verified domain is.
func LoadRoutes(ctx context.Context, stores *db.Cluster, now func() time.Time, log *slog.Logger) (*Routes, error) {
	r := &Routes{stores: stores, log: log, now: now, stale: make(chan struct{}, 1)}
	return r, r.load(ctx)
}

func (r *Routes) load(ctx context.Context) error {
	var list []Route
	err := r.stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		list, err = selectRoutes(ctx, tx)
		return err
	})
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

// Find finds the verified domain of a name in lower case.
func (r *Routes) Find(name string) (Route, bool) {
	route, ok := (*r.known.Load())[name]
	return route, ok
}

// Reload reads the routes again now.
func (r *Routes) Reload(ctx context.Context) error { return r.load(ctx) }

// Refresh reads the routes again, for a question that another replica has just caused. It
// does so a few times a second at most, however often it is called.
func (r *Routes) Refresh(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.read).Abs() >= refreshPause {
		r.read = now
		if err := r.load(ctx); err != nil {
			r.log.Warn("the routes of domains cannot be read", "error", err)
		}
	}
}

// Changed is told of changes in the stores.
func (r *Routes) Changed(id scope.TenantID, name string) {
	if id == "" && (name == Revision || name == tenant.Revision || name == "") {
		select {
		case r.stale <- struct{}{}:
		default: // it will be looked at anyway
		}
	}
}

// Run reads the routes again when they have changed, and every few seconds where no
// change is told of, until ctx ends.
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
			r.log.Warn("the routes of domains cannot be read", "error", err)
		}
	}
}
