package db

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Region is where the tenants of one region are stored: a PostgreSQL database or a directory
// of SQLite files. One of the two is set.
type Region struct {
	// URL is a postgres:// address. Regions may share a database: each has schemas of its own.
	URL string
	// Dir contains <region>/<tenant>.db. Only one server process may use it.
	Dir string
}

// placedTopic begins the name of the notification that a tenant has another store.
const placedTopic = "db.placed/"

// openRegions opens the stores of all regions.
func (c *Cluster) openRegions(ctx context.Context, cfg Config) error {
	c.regions = map[string]backend{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Regions)) {
		b, err := openBackend(ctx, cfg, cfg.Regions[name], name, c.onAnnouncement)
		if err != nil {
			return fmt.Errorf("the store of region %s: %w", name, err)
		}
		c.regions[name] = b
	}
	return nil
}

// Regions lists the regions with a store of their own, sorted; empty if all tenants are in
// the deployment's own store.
func (c *Cluster) Regions() []string { return slices.Sorted(maps.Keys(c.regions)) }

// Serves reports whether the region has a store.
func (c *Cluster) Serves(region string) bool { return c.regions[region] != nil }

// RegionHealth is the state of the store of each region.
func (c *Cluster) RegionHealth(ctx context.Context) map[string]Health {
	type answer struct {
		region string
		health Health
	}
	answers := make(chan answer, len(c.regions))
	for name, b := range c.regions {
		go func() { answers <- answer{name, healthOf(ctx, b)} }()
	}
	out := make(map[string]Health, len(c.regions))
	for range c.regions {
		a := <-answers
		out[a.region] = a.health
	}
	return out
}

// healthOf asks a store for one row, within at most a second.
func healthOf(ctx context.Context, b backend) Health {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h := Health{Status: "up", Backend: b.name()}
	start := time.Now()
	if err := b.ping(ctx); err != nil {
		h.Status = "down"
	}
	h.LatencyMS = float64(time.Since(start).Microseconds()) / 1000
	h.Connections = b.connections()
	return h
}

// pingSystem reads one row from a backend's system store.
func pingSystem(ctx context.Context, b backend) error {
	t, err := b.begin(ctx, "", false)
	if err != nil {
		return err
	}
	defer t.rollback()
	cur, err := t.query(ctx, `SELECT 1`, nil)
	if err != nil {
		return err
	}
	return each(ctx, cur, func(int64) bool { return true })
}

// backendOf is the backend of a store by its name in the system store; the empty name is the
// deployment's own.
func (c *Cluster) backendOf(store string) (backend, error) {
	if store == "" {
		return c.home, nil
	}
	if b := c.regions[store]; b != nil {
		return b, nil
	}
	return nil, fault.New(fault.Unavailable, "store_unavailable", "the tenant's data is in region "+store+", which this server is not configured for").After(time.Minute)
}

// all are the backends of the deployment, its own first.
func (c *Cluster) all() []backend {
	out := []backend{c.home}
	for _, name := range c.Regions() {
		out = append(out, c.regions[name])
	}
	return out
}

// placement is what the system store says of a tenant.
type placement struct {
	Status string `db:"status"`
	Store  string `db:"store"`
}

// locate reads which backend a tenant is in. Fault: NotFound tenant_not_found.
func (c *Cluster) locate(ctx context.Context, id scope.TenantID) (backend, error) {
	var at placement
	err := c.system.Read(ctx, func(tx *Tx) (err error) {
		at, err = One[placement](ctx, tx, `SELECT status, store FROM tenants WHERE id = $1`, id)
		return err
	})
	if errors.Is(err, ErrNoRows) || err == nil && at.Status == statusPurging {
		return nil, unknownTenant(id)
	}
	if err != nil {
		return nil, err
	}
	return c.backendOf(at.Store)
}

// Place sets the store of a tenant in a transaction of the system store, and has all replicas
// look it up again once that has committed; the empty store is the deployment's own. It
// reports false for an unknown tenant.
func (c *Cluster) Place(ctx context.Context, tx *Tx, id scope.TenantID, store string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE tenants SET store = $2 WHERE id = $1 AND status <> $3`, id, store, statusPurging)
	if err != nil || n == 0 {
		return false, err
	}
	return true, tx.Notify(ctx, placedTopic+string(id))
}

// forgetPlace has the store of a tenant looked up again.
func (c *Cluster) forgetPlace(id scope.TenantID) {
	c.mu.Lock()
	delete(c.tenants, id)
	c.mu.Unlock()
}
