// Package metering counts what tenants use, and computes what it costs.
//
// API calls are counted in files that are mapped into memory (package tally): a request adds to a
// number and waits for nothing, and the counts of a killed process are complete. The counts are
// copied from there into the tenants' stores. Controls, people, bouncers and storage are counted
// when they are requested.
package metering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/counterfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// copyEvery is how often counts are copied into the stores. The figures of other replicas are at
	// most that old.
	copyEvery = 15 * time.Second
	// keepSlot is how long a counter keeps its slot after its hour, for requests that began in that
	// hour.
	keepSlot = time.Hour
	// keepHours is how long calls are stored by the hour. Older ones are stored by the day.
	keepHours = 62 * 24 * time.Hour
)

// hour is the number of an hour since 1970, in UTC.
type hour int64

func hourOf(t time.Time) hour { return hour(t.Unix() / 3600) }

func (h hour) start() time.Time { return time.Unix(int64(h)*3600, 0).UTC() }

// call identifies a counter: an operation of a tenant in an hour.
type call struct {
	tenant    scope.TenantID
	operation string
	hour      hour
}

func (c call) key() string {
	return string(c.tenant) + " " + c.operation + " " + strconv.FormatInt(int64(c.hour), 10)
}

func parseCall(key string) (call, bool) {
	parts := strings.Split(key, " ")
	if len(parts) != 3 {
		return call{}, false
	}
	h, err := strconv.ParseInt(parts[2], 10, 64)
	return call{scope.TenantID(parts[0]), parts[1], hour(h)}, err == nil
}

// counted is the counter of a call in this process's book.
type counted struct {
	call
	*counterfile.Counter
	copied int64 // the count that is already in the store; guarded by Calls.copying
}

// meter counts one operation of one tenant.
type meter struct {
	calls     *Calls
	tenant    scope.TenantID
	operation string
	current   atomic.Pointer[counted]
}

// count counts a request that began at a time.
func (m *meter) count(at time.Time) {
	if c := m.current.Load(); c != nil && c.hour == hourOf(at) {
		c.Add(1)
		return
	}
	m.calls.counterFor(m, hourOf(at)).Add(1)
}

// Calls counts the calls of the API. It is safe for concurrent use.
type Calls struct {
	stores *db.Cluster
	book   *counterfile.Dir
	now    func() time.Time
	log    *slog.Logger

	mu     sync.Mutex
	meters map[call]*meter // the hour of each key is 0
	live   map[call]*counted
	left   []*counted // counters of an earlier process

	copying sync.Mutex
}

// NewCalls returns a Calls that counts in a book of its own. It takes over the counters that an
// earlier process left in the book.
func NewCalls(stores *db.Cluster, book *counterfile.Dir, now func() time.Time, log *slog.Logger) *Calls {
	s := &Calls{stores: stores, book: book, now: now, log: log, meters: map[call]*meter{}, live: map[call]*counted{}}
	for _, c := range book.Leftover() {
		if key, ok := parseCall(c.Key); ok {
			s.left = append(s.left, &counted{call: key, Counter: c})
		} else {
			book.Free(c)
		}
	}
	return s
}

// Meter returns the function that counts a tenant's calls of an operation. Its argument is the time
// at which the call began. The function usually costs one addition. Callers may keep it.
func (s *Calls) Meter(tenant scope.TenantID, operation string) func(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := call{tenant: tenant, operation: operation}
	m := s.meters[key]
	if m == nil {
		m = &meter{calls: s, tenant: tenant, operation: operation}
		s.meters[key] = m
	}
	return m.count
}

// counterFor returns a meter's counter of an hour, and makes it if there is none.
func (s *Calls) counterFor(m *meter, h hour) *counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := call{m.tenant, m.operation, h}
	c := s.live[key]
	if c == nil {
		slot, err := s.book.New(key.key())
		if err != nil {
			s.log.Warn("API calls are counted in memory only", "error", err)
		}
		c = &counted{call: key, Counter: slot}
		s.live[key] = c
	}
	if old := m.current.Load(); old == nil || old.hour < h {
		m.current.Store(c)
	}
	return c
}

// Run copies counts into the stores until ctx ends, and then once more.
func (s *Calls) Run(ctx context.Context) error {
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return s.Copy(last)
		case <-tick.C:
			if err := s.Copy(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("counts of API calls cannot be stored yet", "error", err)
			}
		}
	}
}

// Copy copies all counts into the stores, in one transaction for each tenant, and frees the counters
// of hours that are over.
func (s *Calls) Copy(ctx context.Context) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	byTenant := map[scope.TenantID][]*counted{}
	s.dropFolded()
	list := s.all() // before the tenants are read: a counter's tenant that is missing there was purged
	if len(list) == 0 {
		return nil
	}
	tenants, err := s.stores.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, c := range list {
		if _, found := slices.BinarySearch(tenants, c.tenant); !found {
			s.forget(c.tenant)
		} else if c.Count() != c.copied {
			byTenant[c.tenant] = append(byTenant[c.tenant], c)
		}
	}
	var failed error
	for tenant, list := range byTenant {
		failed = errors.Join(failed, s.copyTenant(ctx, tenant, list))
	}
	s.release()
	return failed
}

// CopyTenant copies the counts of one tenant into its store.
func (s *Calls) CopyTenant(ctx context.Context, tenant scope.TenantID) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	s.dropFolded()
	var list []*counted
	for _, c := range s.all() {
		if c.tenant == tenant && c.Count() != c.copied {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return s.copyTenant(ctx, tenant, list)
}

// all returns the counters of this process and those of an earlier one.
func (s *Calls) all() []*counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append(make([]*counted, 0, len(s.left)+len(s.live)), s.left...)
	for _, c := range s.live {
		out = append(out, c)
	}
	return out
}

// dropFolded frees the counters that an earlier process left and whose hours may be added up
// already. The earlier process copied them until it ended, and the sum of a day does not say which
// counters are in it: another copy would count them twice. So the calls after its last copy are lost,
// if the process stays down for so long. The caller holds copying.
func (s *Calls) dropFolded() {
	// Another replica folds, and its clock may be ahead.
	before := hourOf(foldedBefore(s.now()).Add(24 * time.Hour))
	s.mu.Lock()
	defer s.mu.Unlock()
	had := len(s.left)
	s.left = slices.DeleteFunc(s.left, func(c *counted) bool {
		if c.hour < before {
			s.book.Free(c.Counter)
		}
		return c.hour < before
	})
	if n := had - len(s.left); n > 0 {
		s.log.Warn("counters of API calls are too old to be stored: calls after the last copy of the earlier process are lost", "counters", n)
	}
}

// foldedBefore returns the day whose earlier hours are added up by the day.
func foldedBefore(now time.Time) time.Time { return now.Add(-keepHours).Truncate(24 * time.Hour) }

// copyTenant writes the counts of a tenant into its store. If the tenant does not exist any more, it
// drops them. The caller holds copying.
func (s *Calls) copyTenant(ctx context.Context, tenant scope.TenantID, list []*counted) error {
	rows := make([][]any, len(list))
	counts := make([]int64, len(list))
	for i, c := range list {
		counts[i] = c.Count()
		rows[i] = []any{int64(time.Hour / time.Microsecond), c.hour.start(), c.operation, c.Source, counts[i]}
	}
	err := s.stores.Write(ctx, tenant, func(tx *db.Tx) error { return putCalls(ctx, tx, rows) })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("tenant %s: %w", tenant, err)
	}
	for i, c := range list {
		c.copied = counts[i]
	}
	return nil
}

// forget frees the counters of a purged tenant, so that no file names it any more. The caller holds
// copying.
func (s *Calls) forget(tenant scope.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = slices.DeleteFunc(s.left, func(c *counted) bool {
		if c.tenant == tenant {
			s.book.Free(c.Counter)
		}
		return c.tenant == tenant
	})
	for key, c := range s.live {
		if c.tenant == tenant {
			s.free(key, c)
		}
	}
	maps.DeleteFunc(s.meters, func(c call, _ *meter) bool { return c.tenant == tenant })
}

// free frees a counter. The caller holds mu.
func (s *Calls) free(key call, c *counted) {
	if m := s.meters[call{tenant: c.tenant, operation: c.operation}]; m != nil {
		m.current.CompareAndSwap(c, nil)
	}
	delete(s.live, key)
	s.book.Free(c.Counter)
}

// release frees the counters of hours that ended more than keepSlot ago, if their counts are copied.
// The caller holds copying.
func (s *Calls) release() {
	over := hourOf(s.now().Add(-keepSlot))
	s.mu.Lock()
	defer s.mu.Unlock()
	done := func(c *counted) bool { return c.hour < over && c.Count() == c.copied }
	rest := s.left[:0]
	for _, c := range s.left {
		if done(c) {
			s.book.Free(c.Counter)
		} else {
			rest = append(rest, c)
		}
	}
	s.left = rest
	for key, c := range s.live {
		if done(c) {
			s.free(key, c)
		}
	}
}

// Fold adds up calls older than keepHours by the day, for all tenants. One replica at a time calls
// it. It can be repeated.
func (s *Calls) Fold(ctx context.Context) error {
	tenants, err := s.stores.Tenants(ctx)
	if err != nil {
		return err
	}
	before := foldedBefore(s.now())
	for _, id := range tenants {
		err := s.stores.Write(ctx, id, func(tx *db.Tx) error { return foldCalls(ctx, tx, before) })
		if err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("tenant %s: %w", id, err)
		}
	}
	return nil
}
