package db

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Region is where the tenants of one region are stored: a PostgreSQL database or a directory of
// SQLite files. Set one of the two.
type Region struct {
	// URL is a postgres:// address. Regions may share a database, because each has its own schemas.
	URL string
	// Dir contains <region>/<tenant>.db. Only one server process may use it.
	Dir string
}

// placedTopic is the prefix of the notification that a tenant has another store. The tenant's id
// follows it.
const placedTopic = "db.placed/"

// openRegions opens the stores of all regions. After an error, the map has those that were opened,
// so that Close can close them.
func openRegions(ctx context.Context, cfg Config, onMessage func(payload string)) (map[string]backend, error) {
	regions := map[string]backend{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Regions)) {
		b, err := openBackend(ctx, cfg, cfg.Regions[name], name, onMessage)
		if err != nil {
			return regions, fmt.Errorf("open the store of region %s: %w", name, err)
		}
		regions[name] = b
	}
	return regions, nil
}

// Regions lists the configured regions, sorted. It is empty if all tenants are in the deployment's
// own store.
func (c *Cluster) Regions() []string { return slices.Sorted(maps.Keys(c.regions)) }

// Serves reports whether a store is configured for the region.
func (c *Cluster) Serves(region string) bool { return c.regions[region] != nil }

// RegionHealth returns the state of the store of each configured region.
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

// healthOf pings a store. It waits a second at most.
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
	t, err := b.begin(ctx, part{}, false)
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

// location is the address of a store: its backend, and its part of it.
type location struct {
	backend
	part part
}

// generationMark separates the name of a store's backend from its generation.
const generationMark = "#"

// NewStore returns a new, unique name for a store in the same backend as the named store.
func NewStore(store string) string {
	base, _, _ := strings.Cut(store, generationMark)
	id := uuid.New()
	return base + generationMark + "g" + hex.EncodeToString(id[:generationBytes])
}

// generationBytes is the number of random bytes in a generation. Its name is "g" and their
// hexadecimal digits.
const generationBytes = 6

// storeOf returns the location of a tenant's store by its name in the system store.
func (c *Cluster) storeOf(id scope.TenantID, store string) (location, error) {
	base, generation, _ := strings.Cut(store, generationMark)
	b, err := c.backendOf(base)
	return location{b, part{id, generation}}, err
}

// backendOf returns the backend with a name; the empty name is the deployment's own.
func (c *Cluster) backendOf(store string) (backend, error) {
	if store == "" {
		return c.home, nil
	}
	if b := c.regions[store]; b != nil {
		return b, nil
	}
	if name, ok := strings.CutPrefix(store, impliedStore); ok && validTenant.MatchString(name) {
		return c.impliedRegion(name)
	}
	return nil, fault.New(fault.Unavailable, "store_unavailable", "the tenant's data is in region "+store+", which this server is not configured for").After(time.Minute)
}

// impliedStore is the prefix of the names of stores of regions that are inside the deployment's own
// store. It keeps them apart from the stores of configured regions: if a region is configured
// later, its name must not suddenly refer to an empty store.
const impliedStore = "own/"

// StoreFor returns the name of the store of a region, as the system store records it; false if the
// region has no store. If no regions are configured, every region is inside the deployment's own
// store.
func (c *Cluster) StoreFor(region string) (string, bool) {
	if len(c.regions) == 0 {
		return impliedStore + region, validTenant.MatchString(region)
	}
	return region, c.Serves(region)
}

// impliedRegion opens the store of a region inside the deployment's own store: a directory of the
// data directory, or schemas with a prefix in its database.
func (c *Cluster) impliedRegion(name string) (backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.implied[name]; b != nil {
		return b, nil
	}
	var b backend
	if home, ok := c.home.(*pgBackend); ok {
		b = home.inRegion(name)
	} else {
		lite, err := openSQLite(c.cfg, filepath.Join(c.cfg.Dir, ownRegions), name)
		if err != nil {
			return nil, unavailable(err)
		}
		lite.saved = ownRegions
		b = lite
	}
	c.implied[name] = b
	return b, nil
}

// all returns the configured backends, the deployment's own first.
func (c *Cluster) all() []backend {
	out := []backend{c.home}
	for _, name := range c.Regions() {
		out = append(out, c.regions[name])
	}
	return out
}

// opened returns all open backends. The deployment's own is nil if Open could not open it.
func (c *Cluster) opened() []backend {
	out := c.all()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.AppendSeq(out, maps.Values(c.implied))
}

// dropAll drops all stores of a tenant, including those of earlier and unfinished moves.
func (c *Cluster) dropAll(ctx context.Context, id scope.TenantID) error {
	stores, err := c.StoresOf(ctx, id)
	if err != nil {
		return err
	}
	for _, store := range stores {
		at, err := c.storeOf(id, store)
		if err == nil {
			err = at.drop(ctx, at.part, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StoresOf lists the names of all stores of a tenant, sorted: the current one, earlier ones that
// still exist, and targets of moves.
func (c *Cluster) StoresOf(ctx context.Context, id scope.TenantID) ([]string, error) {
	named, err := ReadStore(ctx, c.system, func(tx *Tx) ([]string, error) {
		return All[string](ctx, tx, `SELECT store FROM tenants WHERE id = $1
			UNION SELECT source FROM deployments WHERE tenant = $1 UNION SELECT target FROM deployments WHERE tenant = $1`, id)
	})
	if err != nil {
		return nil, err
	}
	bases := append(c.Regions(), "")
	for _, store := range named {
		base, _, _ := strings.Cut(store, generationMark)
		bases = append(bases, base)
	}
	slices.Sort(bases)
	var out []string
	for _, base := range slices.Compact(bases) {
		b, err := c.backendOf(base)
		if err != nil {
			continue // the region is no longer configured
		}
		parts, err := b.parts(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p.generation != "" {
				p.generation = generationMark + p.generation
			}
			out = append(out, base+p.generation)
		}
	}
	slices.Sort(out)
	return out, nil
}

// placement is what the system store records about where a tenant is.
type placement struct {
	Status string `db:"status"`
	Store  string `db:"store"`
}

// mayCreate returns an error if a missing store must not be created: the tenant has moved and the
// store was dropped, or the store was made by a move, which only a move can do.
func (c *Cluster) mayCreate(ctx context.Context, at location) error {
	now, err := c.locate(ctx, at.part.tenant)
	switch {
	case err != nil:
		return err
	case now != at:
		return errMoved
	case at.part.generation != "": // only a move creates it
		return unavailable(errors.New("the store of tenant " + string(at.part.tenant) + " is missing"))
	}
	return nil
}

// errMoved means that a transaction used a store that the tenant no longer has. It may run again, in
// the current store.
var errMoved = errors.New("the tenant has moved to another store")

// markMoved marks err as errMoved if the store no longer exists because the tenant has moved, and
// this replica did not know it yet. cause is the error of the store.
func (d *DB) markMoved(ctx context.Context, at location, cause, err error) error {
	if d.at != nil || d.tenant == "" || !storeGone(cause) {
		return err
	}
	now, unknown := d.cluster.locate(ctx, d.tenant)
	if unknown != nil || now == at {
		return err
	}
	d.cluster.forgetPlace(d.tenant)
	return fmt.Errorf("%w: %w", errMoved, err)
}

// locate reads from the system store where a tenant's store is. Fault: NotFound
// "tenant_not_found".
func (c *Cluster) locate(ctx context.Context, id scope.TenantID) (location, error) {
	store, err := ReadStore(ctx, c.system, func(tx *Tx) (string, error) { return c.PlaceOf(ctx, tx, id) })
	if err != nil {
		return location{}, err
	}
	return c.storeOf(id, store)
}

// Place sets the store of a tenant, in a transaction of the system store; the empty name is the
// deployment's own store. After the commit, all replicas look the store up again. It returns false
// if the tenant is unknown or being purged.
func (c *Cluster) Place(ctx context.Context, tx *Tx, id scope.TenantID, store string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE tenants SET store = $2 WHERE id = $1 AND status <> $3`, id, store, statusPurging)
	if err != nil || n == 0 {
		return false, err
	}
	return true, tx.Notify(ctx, placedTopic+string(id))
}

// forgetPlace makes this replica look up the tenant's store again at the next use.
func (c *Cluster) forgetPlace(id scope.TenantID) {
	c.mu.Lock()
	delete(c.tenants, id)
	c.mu.Unlock()
}

// PlaceOf returns the name of a tenant's store; empty for the deployment's own. tx is a transaction
// of the system store. Fault: NotFound "tenant_not_found".
func (c *Cluster) PlaceOf(ctx context.Context, tx *Tx, id scope.TenantID) (string, error) {
	at, err := One[placement](ctx, tx, `SELECT status, store FROM tenants WHERE id = $1`, id)
	if errors.Is(err, ErrNoRows) || err == nil && at.Status == statusPurging {
		return "", unknownTenant(id)
	}
	return at.Store, err
}

// At returns a handle for the named store of a tenant, whether or not the tenant is placed there.
// Moves use it: unlike Tenant, it does not create the store, and its writes do not wait for a move
// to end. Faults: NotFound "tenant_not_found" if the id is not a DNS label; Unavailable if the store
// is in a region that this server is not configured for.
func (c *Cluster) At(id scope.TenantID, store string) (*DB, error) {
	if !validTenant.MatchString(string(id)) {
		return nil, unknownTenant(id)
	}
	at, err := c.storeOf(id, store)
	if err != nil {
		return nil, err
	}
	return &DB{cluster: c, tenant: id, at: &at}, nil
}

// Provision creates and migrates the store of a handle from At.
func (d *DB) Provision(ctx context.Context) error {
	if d.at == nil {
		return errNoPart
	}
	return d.at.provision(ctx, d.at.part, nil)
}

var errNoPart = errors.New("db: the handle does not come from Cluster.At")

// Discard drops the store of a handle from At. If the store exists, check runs first; its error
// keeps the store. On PostgreSQL, no other session creates or drops the store meanwhile.
func (d *DB) Discard(ctx context.Context, check func(tx *Tx) error) error {
	if d.at == nil {
		return errNoPart
	}
	err := d.at.drop(ctx, d.at.part, func() error {
		found, err := d.at.exists(ctx, d.at.part)
		if err != nil || !found {
			return err
		}
		return d.Read(ctx, check)
	})
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return unavailable(err)
	}
	return err
}

// Kind returns the kind of store of a handle from At: "sqlite" or "postgres".
func (d *DB) Kind() string { return d.at.name() }

// Near the end of a tenant's move, triggers in its old store refuse writes with one of these: a
// PostgreSQL error code or an SQLite error text. DB.Write then waits, and looks the store up again.
const (
	MovingState = "GH001"
	MovingText  = "gatehouse: the tenant is being moved"
)

// errMoving means that the store refused a write because its tenant is being moved.
var errMoving = errors.New("the tenant is being moved")

// A write waits this long for a move to end, and retries this often.
const (
	moveTimeout = 30 * time.Second
	movePoll    = 20 * time.Millisecond
)

// movingFault returns the fault for a write to a store whose tenant is being moved.
func movingFault(err error) error {
	return fault.New(fault.Unavailable, "tenant_moving", "the tenant is being moved to another region").After(2 * time.Second).Because(errors.Join(errMoving, err))
}

// retryWhileMoving repeats a write while the tenant is being moved, for at most moveTimeout. err is
// the error of the first attempt.
func (d *DB) retryWhileMoving(ctx context.Context, err error, write func() error) error {
	if d.at != nil {
		return err
	}
	for end := time.Now().Add(moveTimeout); errors.Is(err, errMoving) && time.Now().Before(end); {
		if !pause.For(ctx, movePoll) {
			return ctx.Err()
		}
		d.cluster.forgetPlace(d.tenant)
		err = retryConflicts(ctx, write)
	}
	return err
}
