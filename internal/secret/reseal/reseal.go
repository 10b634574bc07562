// Package reseal seals stored secrets again after a rotation of the encryption key, so that the
// operator can drop the old key. Each package that stores secrets for longer than a day declares
// them as a list of Columns; a Sealer goes over all of them.
package reseal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

const (
	batch  = 100 // how many values one transaction reads, and another one replaces
	rounds = 5   // how often a column is checked if others change it at the same time
	listed = 50  // how many values a line of the log names
)

// Column declares one column of a table with sealed values. Empty values are not secrets.
type Column struct {
	Table, Name string
	// Key is the unique column that identifies a row: an integer or a text.
	Key string
	// Tenant is the column with the tenant of a row. Columns with it, and those with System, are in
	// the system store. All others are in the tenants' stores.
	Tenant string
	System bool
	Box    *secret.Box
	// Place returns what the value of a row is bound to: see ByID and ByName.
	Place func(tenant scope.TenantID, key any) string
	// List and Replace are set for values that are not a column of their own. Key is then empty.
	// List returns all values. Replace stores a value, and reports whether it did: not if the value
	// has changed since it was listed.
	List    func(ctx context.Context, tx *db.Tx) ([]Value, error)
	Replace func(ctx context.Context, tx *db.Tx, v Value, again []byte) (bool, error)
}

// Value is a sealed value in the store.
type Value struct {
	Key    any // int64 or string
	Tenant scope.TenantID
	Sealed []byte
}

// ByID is the place of values in a table whose key is an integer.
func ByID(place func(scope.TenantID, int64) string) func(scope.TenantID, any) string {
	return func(t scope.TenantID, key any) string { return place(t, key.(int64)) }
}

// ByName is the place of values in a table whose key is a text.
func ByName(place func(scope.TenantID, string) string) func(scope.TenantID, any) string {
	return func(t scope.TenantID, key any) string { return place(t, key.(string)) }
}

// ByTenant is the place of values of which a tenant has one.
func ByTenant(place func(scope.TenantID) string) func(scope.TenantID, any) string {
	return func(t scope.TenantID, _ any) string { return place(t) }
}

// Counts are the numbers of values that a run left as they were.
type Counts struct {
	Old        int64 // under a key that is not the first
	Unreadable int64 // under none of the keys, or damaged
}

// Sealer seals the values of all columns again. Several replicas may do so at once, because a
// value is replaced only if it is still the one that was read.
type Sealer struct {
	Stores  *db.Cluster
	Columns []Column
	Logger  *slog.Logger

	counts atomic.Pointer[Counts]
}

// Counts returns the counts of the last run; false if there was no run yet, or if the last one
// could not read all stores.
func (s *Sealer) Counts() (Counts, bool) {
	if c := s.counts.Load(); c != nil {
		return *c, true
	}
	return Counts{}, false
}

// Run goes over the system store and the stores of all tenants once. After an error, it goes on
// with the next store.
func (s *Sealer) Run(ctx context.Context) error {
	r := &run{log: s.Logger}
	err := r.seal(ctx, s.Stores.System(), "", s.Columns)
	tenants, listErr := s.Stores.Tenants(ctx)
	err = errors.Join(err, listErr)
	for _, t := range tenants {
		store, storeErr := s.Stores.Tenant(ctx, t)
		if storeErr == nil {
			storeErr = r.seal(ctx, store, t, s.Columns)
		}
		if storeErr != nil && !fault.Is(storeErr, fault.NotFound) { // NotFound: it was deleted meanwhile
			err = errors.Join(err, fmt.Errorf("tenant %s: %w", t, storeErr))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if r.resealed > 0 {
		s.Logger.Info("secrets were encrypted with the current key", "count", r.resealed)
	}
	if r.Unreadable > 0 {
		s.Logger.Error("some secrets cannot be decrypted with any configured key", "count", r.Unreadable, "values", r.names)
	}
	if err != nil {
		s.counts.Store(nil)
		return err
	}
	s.counts.Store(&r.Counts)
	return nil
}

// run is the state of one run.
type run struct {
	Counts
	resealed int64
	names    []string // of the first values that do not open
	log      *slog.Logger
}

// seal seals those columns again that are in a store. tenant is "" for the system store.
func (r *run) seal(ctx context.Context, store *db.DB, tenant scope.TenantID, columns []Column) error {
	var mine []Column
	for _, c := range columns {
		if (c.System || c.Tenant != "") == (tenant == "") {
			mine = append(mine, c)
		}
	}
	pages, err := db.ReadStore(ctx, store, func(tx *db.Tx) ([][]Value, error) { return firstPages(ctx, tx, mine) })
	if err != nil {
		pages = make([][]Value, len(mine)) // each column reads for itself, so that the error names it
	}
	err = nil
	for i, c := range mine {
		if e := r.column(ctx, store, tenant, c, pages[i]); e != nil {
			err = errors.Join(err, fmt.Errorf("%s.%s: %w", c.Table, c.Name, e))
		}
	}
	return err
}

// column goes over a column until all its values are under the first key. first are the values of its
// first rows; nil: they are not read yet. It repeats only if somebody else changed values in the
// meantime.
func (r *run) column(ctx context.Context, store *db.DB, tenant scope.TenantID, c Column, first []Value) error {
	for left := rounds; ; left-- {
		missed, unreadable, err := r.pass(ctx, store, tenant, c, first)
		first = nil
		if err != nil {
			return err
		}
		if missed > 0 && left > 1 {
			continue
		}
		r.Old += missed
		r.Unreadable += int64(len(unreadable))
		for _, v := range unreadable[:min(len(unreadable), listed-len(r.names))] {
			r.names = append(r.names, fmt.Sprintf("%s.%s %v of tenant %q", c.Table, c.Name, v.Key, v.Tenant))
		}
		return nil
	}
}

// change is a value with what replaces it.
type change struct {
	Value
	again []byte
}

// pass goes over a column once. It returns how many values somebody else changed before they were
// replaced, and the values that do not open. values are those of the first rows; nil: they are not
// read yet.
func (r *run) pass(ctx context.Context, store *db.DB, tenant scope.TenantID, c Column, values []Value) (missed int64, unreadable []Value, err error) {
	var after any
	for {
		if values == nil {
			values, err = db.ReadStore(ctx, store, func(tx *db.Tx) ([]Value, error) { return c.list(ctx, tx, after) })
		}
		if err != nil {
			return missed, unreadable, err
		}
		var changes []change
		for _, v := range values {
			if len(v.Sealed) == 0 {
				continue
			}
			if c.Tenant == "" {
				v.Tenant = tenant
			}
			again, err := c.Box.Reseal(v.Sealed, c.Place(v.Tenant, v.Key))
			switch {
			case errors.Is(err, secret.ErrOpen):
				unreadable = append(unreadable, v)
			case err != nil:
				return missed, unreadable, err
			case again != nil:
				changes = append(changes, change{v, again})
			}
		}
		done, err := replaceAll(ctx, store, c, changes)
		if err != nil {
			return missed, unreadable, err
		}
		r.resealed += done
		missed += int64(len(changes)) - done
		if c.List != nil || len(values) < batch {
			return missed, unreadable, nil
		}
		after, values = values[len(values)-1].Key, nil
	}
}

// replaceAll stores changes in one transaction. It returns how many values were still the same.
func replaceAll(ctx context.Context, store *db.DB, c Column, changes []change) (done int64, err error) {
	if len(changes) == 0 {
		return 0, nil
	}
	err = store.Write(ctx, func(tx *db.Tx) error {
		done = 0 // the transaction may run again
		for _, ch := range changes {
			ok, err := c.replace(ctx, tx, ch.Value, ch.again)
			if err != nil {
				return err
			}
			if ok {
				done++
			}
		}
		return nil
	})
	return done, err
}
