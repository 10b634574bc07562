// Package db is the store: one database per tenant and one for the deployment, on SQLite (a file
// per tenant) or PostgreSQL (a schema and a role per tenant). Only this package knows the
// differences between the two. Every other package writes one SQL text for both.
//
//	Cluster ── System()          tenants, credentials, leases
//	        └─ Tenant(ctx, id)   everything a tenant owns
//	              ├─ Read(ctx, func(tx))    one snapshot, read only
//	              └─ Write(ctx, func(tx))   one transaction; retried after a conflict
//
// Queries have no tenant column: a handle reaches one tenant's tables only. Inside a transaction,
// One, All, Rows, Tx.Do and Tx.Exec run SQL that both backends understand ($1, RETURNING, ON CONFLICT,
// LIMIT, TRUE, CAST), and map rows to structs by their `db` tags.
//
// An SQL error ends a transaction on either backend: every later statement fails and Write rolls
// back, whatever its function returns. Errors are faults (package fault), except ErrNoRows and
// those of the context.
package db

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Config says where the data is. A limit of zero selects the default in parentheses.
type Config struct {
	// URL is a postgres:// address; empty means SQLite in Dir.
	URL string
	// Dir contains system.db and tenants/<id>.db; only used by SQLite.
	Dir string
	// Now is the clock; nil means the wall clock in UTC.
	Now func() time.Time
	// Logger receives the warnings of a lost connection; nil discards them.
	Logger *slog.Logger
	// MaxConns is the largest number of connections in the PostgreSQL pool (20).
	MaxConns int
	// MaxOpenTenants is how many SQLite tenant files stay open while idle (256).
	MaxOpenTenants int
	// Readers is how many readers a SQLite file may have at once (4).
	Readers int
	// SharedRole turns off the PostgreSQL role for each tenant, even if the login may create
	// roles. Then only schemas separate tenants.
	SharedRole bool
	// Regions are the stores of tenants that live in a region. The system store, and all
	// other tenants, are in the deployment's own store: URL or Dir.
	Regions map[string]Region
}

// Health is the state of one store, as the health operations report it.
type Health struct {
	Status      string  `json:"status" enum:"up,down" doc:"Whether the store answers"`
	LatencyMS   float64 `json:"latency_ms" doc:"Time of one round trip, in milliseconds"`
	Connections int     `json:"connections" doc:"Open connections"`
	Backend     string  `json:"backend" enum:"sqlite,postgres" doc:"Which kind of store"`
}

// txn is one transaction on either backend. Only one goroutine may use it.
type txn interface {
	exec(ctx context.Context, sql string, args []any) (int64, error)
	query(ctx context.Context, sql string, args []any) (cursor, error)
	lock(ctx context.Context, name string) error
	// announce sends payload to the other replicas when the transaction commits.
	announce(ctx context.Context, payload string) error
	commit(ctx context.Context) error
	rollback()
}

// cursor iterates over the rows of one query.
type cursor interface {
	// next returns the values of the next row, which are valid until the following call; nil at
	// the end.
	next(ctx context.Context) ([]any, error)
	// columns returns the names of the columns. Call next first.
	columns() []string
	close() error
}

// part identifies a store inside a backend: a tenant's store, or the system store if the tenant is
// empty. Each move of a tenant creates a new generation, whose file or schema has a new name.
// Because no name is used twice, a connection to an old store can never reach a new one.
type part struct {
	tenant     scope.TenantID
	generation string // empty: the tenant has never moved
}

// backend contains everything in which SQLite and PostgreSQL differ.
type backend interface {
	name() string
	begin(ctx context.Context, p part, write bool) (txn, error)
	// provision creates the store if it is missing, and migrates it. If check is not nil and
	// returns an error, a missing store is not created.
	provision(ctx context.Context, p part, check func() error) error
	// drop removes the store. If check is not nil and returns an error, the store stays. On
	// PostgreSQL, no other session creates or drops a store between check and the removal.
	drop(ctx context.Context, p part, check func() error) error
	// exists reports whether the store exists, migrated or not.
	exists(ctx context.Context, p part) (bool, error)
	// parts lists the tenant's stores in this backend, migrated or not.
	parts(ctx context.Context, id scope.TenantID) ([]part, error)
	// connections returns the number of open connections.
	connections() int
	// sizeQuery returns the SQL that computes the size of the current store in bytes.
	sizeQuery() string
	// ping checks that the store can be read.
	ping(ctx context.Context) error
	close() error
}

// Cluster holds the stores of a deployment. It is safe for concurrent use.
type Cluster struct {
	now     func() time.Time
	home    backend            // the system store, and tenants that are not in a region's store
	regions map[string]backend // the stores of regions
	cfg     Config
	system  *DB
	watch   watchers
	free    atomic.Pointer[func() bool] // see OnDiskFull

	mu      sync.Mutex
	tenants map[scope.TenantID]*tenantState
	implied map[string]backend // see impliedRegion
}

// OnDiskFull sets a function that frees disk space. It is called when a write fails because the
// store is full; if it returns true, the write runs once more. That does not help a store on
// another disk.
func (c *Cluster) OnDiskFull(free func() bool) { c.free.Store(&free) }

// freeDisk frees disk space. It returns false if there was nothing to free.
func (c *Cluster) freeDisk() bool {
	free := c.free.Load()
	return free != nil && (*free)()
}

// tenantState is what this replica knows about one tenant's store.
type tenantState struct {
	mu sync.Mutex // held while the store is provisioned
	at location   // empty until the store is ready
	db *DB
}

var validTenant = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// TenantsRevision is the counter in the system store that is incremented when a tenant is created
// or purged, or its store moves.
const TenantsRevision = "db.tenants"

const statusPurging = "purging"

// Open opens the deployment's store and migrates the system schema. Several replicas may do so at
// the same time. The caller must call Close. Error: ErrNewer if a newer program has changed the
// schema.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return time.Now().UTC() }
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.MaxConns = cmp.Or(max(cfg.MaxConns, 0), 20)
	cfg.MaxOpenTenants = cmp.Or(max(cfg.MaxOpenTenants, 0), 256)
	cfg.Readers = cmp.Or(max(cfg.Readers, 0), 4)
	c := &Cluster{now: cfg.Now, cfg: cfg, tenants: map[scope.TenantID]*tenantState{}, implied: map[string]backend{}}
	c.system = &DB{cluster: c}
	if err := c.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.watch.add(c.forget)
	return c, nil
}

// open opens the stores. After an error, the caller must close those that were opened.
func (c *Cluster) open(ctx context.Context, cfg Config) error {
	home, err := openBackend(ctx, cfg, Region{URL: cfg.URL, Dir: cfg.Dir}, "", c.onAnnouncement)
	if err != nil {
		return err
	}
	c.home = home
	for _, id := range []scope.TenantID{"", scope.DefaultTenant} {
		if err := refuseNewer(ctx, location{c.home, part{tenant: id}}); err != nil {
			return err
		}
	}
	if err := c.home.provision(ctx, part{}, nil); err != nil {
		return err
	}
	if c.regions, err = openRegions(ctx, cfg, c.onAnnouncement); err != nil {
		return err
	}
	at, err := c.locate(ctx, scope.DefaultTenant)
	if err != nil {
		return nil //nolint:nilerr // the tenant does not exist yet; the first use reports other errors
	}
	return refuseNewer(ctx, at)
}

// openBackend opens the store of a region, or the deployment's own store if name is empty.
func openBackend(ctx context.Context, cfg Config, where Region, name string, onMessage func(string)) (backend, error) {
	if where.URL != "" {
		return openPostgres(ctx, cfg, where.URL, name, onMessage)
	}
	b, err := openSQLite(cfg, where.Dir, name)
	if err != nil {
		return nil, err // b would be a backend that is not nil
	}
	return b, nil
}

// System returns the deployment's own store: tenants, credentials, leases.
func (c *Cluster) System() *DB { return c.system }

// Tenant returns the store of one tenant, and creates and migrates it at the first use. Fault:
// NotFound "tenant_not_found" if the system store has no row for the tenant, or the id is not a
// DNS label (RFC 1035 section 2.3.1).
func (c *Cluster) Tenant(ctx context.Context, id scope.TenantID) (*DB, error) {
	d, _, err := c.find(ctx, id)
	return d, err
}

// find returns a tenant's store and its location.
func (c *Cluster) find(ctx context.Context, id scope.TenantID) (d *DB, at location, err error) {
	err = retryConflicts(ctx, func() error {
		d, at, err = c.findOnce(ctx, id)
		return err
	})
	return d, at, err
}

func (c *Cluster) findOnce(ctx context.Context, id scope.TenantID) (*DB, location, error) {
	c.mu.Lock()
	st := c.tenants[id]
	if st == nil { // the map has valid names only
		if !validTenant.MatchString(string(id)) {
			c.mu.Unlock()
			return nil, location{}, unknownTenant(id)
		}
		st = &tenantState{db: &DB{cluster: c, tenant: id}}
		c.tenants[id] = st
	}
	c.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.at.backend != nil {
		return st.db, st.at, nil
	}
	at, err := c.locate(ctx, id)
	if err == nil {
		err = at.provision(ctx, at.part, func() error { return c.mayCreate(ctx, at) })
	}
	if err != nil {
		c.mu.Lock()
		if c.tenants[id] == st {
			delete(c.tenants, id)
		}
		c.mu.Unlock()
		return nil, location{}, err
	}
	st.at = at
	return st.db, at, nil
}

// CreateTenant inserts a minimal row for the tenant and creates its store. A caller that inserts
// the row in its own transaction of the system store calls Tenant afterwards instead. Faults:
// Conflict if the tenant exists; Invalid if the id is not a DNS label.
func (c *Cluster) CreateTenant(ctx context.Context, id scope.TenantID) error {
	if !validTenant.MatchString(string(id)) {
		return fault.Invalidf("/id", "a tenant id must be a DNS label: lower-case letters, digits and hyphens")
	}
	err := c.system.Write(ctx, func(tx *Tx) error {
		now := c.now()
		return tx.Do(ctx, `INSERT INTO tenants (id, name, created_at, updated_at) VALUES ($1, $2, $3, $3)`, id, id, now)
	})
	if err != nil {
		return err
	}
	_, err = c.Tenant(ctx, id)
	return err
}

// DropTenant purges a tenant: its credentials, its stores, and its row. It can be repeated after a
// failure. An unknown tenant is not an error, but an id that is not a DNS label is NotFound.
func (c *Cluster) DropTenant(ctx context.Context, id scope.TenantID) error {
	if !validTenant.MatchString(string(id)) {
		return unknownTenant(id)
	}
	err := c.system.Write(ctx, func(tx *Tx) error {
		if err := tx.Do(ctx, `DELETE FROM credentials WHERE tenant = $1`, id); err != nil {
			return err
		}
		if err := tx.Do(ctx, `UPDATE tenants SET status = $2 WHERE id = $1`, id, statusPurging); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, TenantsRevision)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.dropAll(ctx, id); err != nil {
		return err
	}
	return c.system.Write(ctx, func(tx *Tx) error {
		if err := tx.Do(ctx, `DELETE FROM deployments WHERE tenant = $1`, id); err != nil {
			return err
		}
		if err := tx.Do(ctx, `DELETE FROM tenants WHERE id = $1`, id); err != nil {
			return err
		}
		_, err := tx.Bump(ctx, TenantsRevision)
		return err
	})
}

// Read runs fn in a read transaction of one tenant's store (DB.Read).
func (c *Cluster) Read(ctx context.Context, id scope.TenantID, fn func(tx *Tx) error) error {
	store, err := c.Tenant(ctx, id)
	if err != nil {
		return err
	}
	return store.Read(ctx, fn)
}

// Read runs fn like Cluster.Read, and returns the value that fn returns.
func Read[T any](ctx context.Context, c *Cluster, id scope.TenantID, fn func(tx *Tx) (T, error)) (T, error) {
	var v T
	err := c.Read(ctx, id, func(tx *Tx) (err error) { v, err = fn(tx); return err })
	return v, err
}

// Write runs fn in a write transaction of one tenant's store (DB.Write).
func (c *Cluster) Write(ctx context.Context, id scope.TenantID, fn func(tx *Tx) error) error {
	store, err := c.Tenant(ctx, id)
	if err != nil {
		return err
	}
	return store.Write(ctx, fn)
}

// WriteBatches is DB.WriteBatches in one tenant's store.
func (c *Cluster) WriteBatches(ctx context.Context, id scope.TenantID, batch int64, step func(tx *Tx) (int64, error)) (int64, error) {
	store, err := c.Tenant(ctx, id)
	if err != nil {
		return 0, err
	}
	return store.WriteBatches(ctx, batch, step)
}

// WriteUnder is like Write, but holds the named lock (Tx.Lock) from the start.
func (c *Cluster) WriteUnder(ctx context.Context, id scope.TenantID, lock string, fn func(tx *Tx) error) error {
	return c.Write(ctx, id, func(tx *Tx) error {
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		return fn(tx)
	})
}

// Tenants lists the ids of all tenants that are not being purged, sorted.
func (c *Cluster) Tenants(ctx context.Context) ([]scope.TenantID, error) {
	ids, err := ReadStore(ctx, c.system, func(tx *Tx) ([]scope.TenantID, error) {
		return All[scope.TenantID](ctx, tx, `SELECT id FROM tenants WHERE status <> $1`, statusPurging)
	})
	slices.Sort(ids)
	return ids, err
}

// sweepShare is the minimum average time from one tenant to the next in a sweep. A sweep over all
// tenants only catches what a lost notification left undone, so it may be slow.
const sweepShare = 60 * time.Millisecond

// SweepInterval returns the time in which a sweep visits n tenants once: least, or longer if there
// are so many tenants that it would visit more than a thousand of them a minute.
func SweepInterval(n int, least time.Duration) time.Duration {
	return max(least, time.Duration(n)*sweepShare)
}

// Health reads one row from the deployment's own store. It waits a second at most.
func (c *Cluster) Health(ctx context.Context) Health { return healthOf(ctx, c.home) }

// Size returns the size of a tenant's store in bytes, including indexes.
func (c *Cluster) Size(ctx context.Context, id scope.TenantID) (int64, error) {
	return Read(ctx, c, id, func(tx *Tx) (int64, error) { return One[int64](ctx, tx, tx.at.sizeQuery()) })
}

// Close closes all connections. Callers must end their transactions first: Close does not wait for
// them.
func (c *Cluster) Close() error {
	var errs []error
	for _, b := range c.opened() {
		if b != nil {
			errs = append(errs, b.close())
		}
	}
	return errors.Join(errs...)
}

// forget discards what this replica knows about tenants that were dropped or placed in another
// store.
func (c *Cluster) forget(tenant scope.TenantID, name string) {
	if placed, ok := strings.CutPrefix(name, placedTopic); ok && tenant == "" {
		c.forgetPlace(scope.TenantID(placed))
		return
	}
	if tenant != "" || (name != TenantsRevision && name != "") {
		return
	}
	for _, b := range c.opened() {
		if pg, ok := b.(*pgBackend); ok {
			pg.unbind()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants = map[scope.TenantID]*tenantState{}
}

func unknownTenant(id scope.TenantID) error {
	return fault.New(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
}
