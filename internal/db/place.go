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

// openRegions opens the stores of all regions. If one fails, the others stay in the map, so
// that Close closes them.
func openRegions(ctx context.Context, cfg Config, announced func(payload string)) (map[string]backend, error) {
	regions := map[string]backend{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Regions)) {
		b, err := openBackend(ctx, cfg, cfg.Regions[name], name, announced)
		if err != nil {
			return regions, fmt.Errorf("the store of region %s: %w", name, err)
		}
		regions[name] = b
	}
	return regions, nil
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

// location is a store: where it is, and which one it is there.
type location struct {
	backend
	part part
}

// generationMark is between the name of a store's backend and its generation.
const generationMark = "#"

// NewStore names a store where the named one is, which no tenant has had before.
func NewStore(store string) string {
	base, _, _ := strings.Cut(store, generationMark)
	id := uuid.New()
	return base + generationMark + "g" + hex.EncodeToString(id[:generationBytes])
}

// A generation is g and this many random bytes in hexadecimal digits.
const generationBytes = 6

// storeOf is a tenant's store by its name in the system store.
func (c *Cluster) storeOf(id scope.TenantID, store string) (location, error) {
	base, generation, _ := strings.Cut(store, generationMark)
	b, err := c.backendOf(base)
	return location{b, part{id, generation}}, err
}

// backendOf is the backend with a name; the empty name is the deployment's own.
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

// impliedStore begins the names of stores that are parts of the deployment's own one. They
// differ from those of configured regions, so that a change of the configuration can never
// make an empty store out of one with data.
const impliedStore = "own/"

// StoreFor is the store of a region, as the system store names it; false if the region has
// none. If no regions are configured, each has a part of the deployment's own store.
func (c *Cluster) StoreFor(region string) (string, bool) {
	if len(c.regions) == 0 {
		return impliedStore + region, validTenant.MatchString(region)
	}
	return region, c.Serves(region)
}

// impliedRegion opens a region's part of the deployment's own store: a directory inside the
// data directory, or schemas with the region's name in its database.
func (c *Cluster) impliedRegion(name string) (backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.implied[name]; b != nil {
		return b, nil
	}
	var b backend
	switch home := c.home.(type) {
	case *pgBackend:
		b = home.inRegion(name)
	default:
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

// all are the configured backends of the deployment, its own first.
func (c *Cluster) all() []backend {
	out := []backend{c.home}
	for _, name := range c.Regions() {
		out = append(out, c.regions[name])
	}
	return out
}

// opened are all backends that are open.
func (c *Cluster) opened() []backend {
	out := c.all()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.implied {
		out = append(out, b)
	}
	return out
}

// dropAll drops all stores of a tenant: also what it had before it moved, and what a move that
// did not end left.
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

// StoresOf lists all stores that a tenant has, sorted: the one that it is in, those that it was
// in, and those that a move has begun to fill.
func (c *Cluster) StoresOf(ctx context.Context, id scope.TenantID) ([]string, error) {
	var named []string
	err := c.system.Read(ctx, func(tx *Tx) (err error) {
		named, err = All[string](ctx, tx, `SELECT store FROM tenants WHERE id = $1
			UNION SELECT source FROM deployments WHERE tenant = $1 UNION SELECT target FROM deployments WHERE tenant = $1`, id)
		return err
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
			continue // a region that is configured no longer
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

// placement is what the system store says of a tenant.
type placement struct {
	Status string `db:"status"`
	Store  string `db:"store"`
}

// mayCreate refuses to create a store that was dropped because the tenant has moved.
func (c *Cluster) mayCreate(ctx context.Context, at location) error {
	now, err := c.locate(ctx, at.part.tenant)
	switch {
	case err != nil:
		return err
	case now != at:
		return errMovedOn
	case at.part.generation != "": // only a move makes one
		return unavailable(errors.New("the store of tenant " + string(at.part.tenant) + " is missing"))
	}
	return nil
}

// errMovedOn says that a transaction met a store that the tenant no longer has. It may run
// again, in the present one.
var errMovedOn = errors.New("the tenant has moved to another store")

// elsewhere marks err as errMovedOn if the store is gone because the tenant has another one by
// now, of which this replica has not heard yet. cause is what the store said.
func (d *DB) elsewhere(ctx context.Context, at location, cause, err error) error {
	if d.at != nil || d.tenant == "" || !storeGone(cause) {
		return err
	}
	now, unknown := d.cluster.locate(ctx, d.tenant)
	if unknown != nil || now == at {
		return err
	}
	d.cluster.forgetPlace(d.tenant)
	return fmt.Errorf("%w: %w", errMovedOn, err)
}

// locate reads where a tenant's store is. Fault: NotFound tenant_not_found.
func (c *Cluster) locate(ctx context.Context, id scope.TenantID) (location, error) {
	var at placement
	err := c.system.Read(ctx, func(tx *Tx) (err error) {
		at, err = One[placement](ctx, tx, `SELECT status, store FROM tenants WHERE id = $1`, id)
		return err
	})
	if errors.Is(err, ErrNoRows) || err == nil && at.Status == statusPurging {
		return location{}, unknownTenant(id)
	}
	if err != nil {
		return location{}, err
	}
	return c.storeOf(id, at.Store)
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

// PlaceOf is the name of the store that a tenant is in; empty: the deployment's own. Fault:
// NotFound tenant_not_found.
func (c *Cluster) PlaceOf(ctx context.Context, tx *Tx, id scope.TenantID) (string, error) {
	at, err := One[placement](ctx, tx, `SELECT status, store FROM tenants WHERE id = $1`, id)
	if errors.Is(err, ErrNoRows) || err == nil && at.Status == statusPurging {
		return "", unknownTenant(id)
	}
	return at.Store, err
}

// At is a tenant's part of one store, whether or not the tenant is placed there. It is for
// moving the tenant: it neither creates the part nor waits for a move. Fault: Unavailable for a
// store that this server does not have.
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

// Provision creates the part of a handle from At and migrates it.
func (d *DB) Provision(ctx context.Context) error {
	if d.at == nil {
		return errNoPart
	}
	return d.at.provision(ctx, d.at.part, nil)
}

var errNoPart = errors.New("db: this is no handle from Cluster.At")

// Discard drops the part of a handle from At. check is asked first, if the part exists, and may
// refuse; nobody else creates or drops the part until it is gone.
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
	var file *fs.PathError
	if errors.As(err, &file) {
		return unavailable(err)
	}
	return err
}

// Kind is the kind of store of a handle from At: sqlite or postgres.
func (d *DB) Kind() string { return d.at.name() }

// While a tenant is moved, triggers in its store refuse writes with one of these: an error
// code of PostgreSQL, or a text of SQLite. DB.Write then waits, and looks the store up again.
const (
	MovingState = "GH001"
	MovingText  = "gatehouse: the tenant is being moved"
)

// errMoving says that a tenant's store takes no writes, because the tenant is being moved.
var errMoving = errors.New("the tenant is being moved")

// A writer waits this long for a move, and looks this often whether it has ended.
const (
	movePatience = 30 * time.Second
	movePause    = 20 * time.Millisecond
)

// moving is the fault for a writer who has waited long enough.
func moving(err error) error {
	return fault.New(fault.Unavailable, "tenant_moving", "the tenant is being moved to another region").After(2 * time.Second).Because(errors.Join(errMoving, err))
}

// onceMoved runs a write again until the tenant's store takes it.
func (d *DB) onceMoved(ctx context.Context, err error, write func() error) error {
	if d.at != nil {
		return err
	}
	for end := time.Now().Add(movePatience); errors.Is(err, errMoving) && time.Now().Before(end); {
		timer := time.NewTimer(movePause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		d.cluster.forgetPlace(d.tenant)
		err = retryLost(ctx, write)
	}
	return err
}
