package tail

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

var (
	ctx   = context.Background()
	admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}
	start = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
)

// logs are both logs of the default tenant.
type logs struct {
	testing.TB
	stores *db.Cluster
	log    *audit.DecisionLog
	spool  *spool.Log
	later  atomic.Int64 // time from start to the clock
	n      int
}

func newLogs(t testing.TB, c *db.Cluster) *logs {
	t.Helper()
	l := &logs{TB: t, stores: c}
	var err error
	if l.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), Sync: spool.SyncNever}); err != nil {
		t.Fatal(err)
	}
	l.log = audit.NewDecisionLog(audit.Config{Cluster: c, Spool: l.spool, SetAside: t.TempDir(), Now: func() time.Time { return start.Add(time.Duration(l.later.Load())) }, Logger: slog.New(slog.DiscardHandler)})
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.log.Run(running) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = l.spool.Close()
	})
	return l
}

// write adds a decision and an administrative entry of an environment, and waits until both are stored.
func (l *logs) write(env scope.Env, level audit.Level) {
	l.Helper()
	l.n++
	d := audit.Decision{DecisionID: fmt.Sprintf("d-%d", l.n), Decision: audit.Deny, Environment: env, AuditLevel: level, Timestamp: start, Input: json.RawMessage(`{}`)}
	errtest.Must(l, l.log.Record(scope.DefaultTenant, &d))
	err := l.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		return audit.Append(ctx, tx, admin, start, audit.Entry{Type: "TRIED", Object: "thing", ObjectID: fmt.Sprint(l.n), Env: env})
	})
	errtest.Must(l, err)
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	errtest.Must(l, l.spool.Wait(wait))
}

// newPlace returns the place of a follower that begins with the oldest entries, or now.
func (l *logs) newPlace(oldest bool) (p Place) {
	l.Helper()
	err := l.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		p, err = NewPlace(ctx, tx, oldest)
		return err
	})
	errtest.Must(l, err)
	return p
}

// read returns the lines after a place.
func (l *logs) read(env scope.Env, from Place, n int) (lines []Line, next Place) {
	l.Helper()
	err := l.stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		lines, next, err = Read(ctx, tx, scope.DefaultTenant, env, from, n, 1<<20)
		return err
	})
	errtest.Must(l, err)
	return lines, next
}

// behind reports whether there are entries after a place.
func (l *logs) behind(p Place) (behind bool) {
	l.Helper()
	err := l.stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		behind, err = Behind(ctx, tx, p)
		return err
	})
	errtest.Must(l, err)
	return behind
}

// chains returns the hash chains of both logs.
func (l *logs) chains() (chains map[string]chain) {
	l.Helper()
	err := l.stores.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
		chains, err = loadChains(ctx, tx)
		return err
	})
	errtest.Must(l, err)
	return chains
}

// checkLinks fails the test unless each line continues its chain after ends, which it updates.
func (l *logs) checkLinks(ends map[string]End, lines []Line) {
	l.Helper()
	for _, line := range lines {
		if end := ends[line.Chain]; line.Position != end.Position+1 || line.PreviousHash != end.Hash {
			l.Errorf("line %d of %s follows hash %q, want it after %+v", line.Position, line.Chain, line.PreviousHash, end)
		}
		ends[line.Chain] = End{line.Position, line.Hash}
	}
}

// TestReadInPieces: a follower that begins with the oldest entries gets each entry of both logs
// once, linked to the previous one, however few it reads at a time.
func TestReadInPieces(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := newLogs(t, c)
		levels := []audit.Level{audit.Basic, audit.Detailed}
		for i := range 7 {
			l.write(scope.Production, levels[i%2])
		}
		for _, n := range []int{1, 3, 100} {
			place := l.newPlace(true)
			ends, count := map[string]End{}, map[bool]int{}
			for name, c := range l.chains() {
				ends[name] = End{c.FirstPos - 1, c.Base}
			}
			for {
				lines, next := l.read(scope.AnyEnv, place, n)
				if len(lines) == 0 {
					break
				}
				if len(lines) > 2*n {
					t.Fatalf("Read by %d gives %d lines, want at most %d", n, len(lines), 2*n)
				}
				for _, line := range lines {
					if (line.Decision == nil) == (line.Event == nil) || line.Tenant != "default" || line.Environment != scope.Production || !line.At.Equal(start) {
						t.Errorf("line = %+v, want a decision or an event of production", line)
					}
					count[line.Event == nil]++
				}
				l.checkLinks(ends, lines)
				place = next
			}
			if count[true] != 7 || count[false] != 7 {
				t.Errorf("Read by %d gives %d decisions and %d events, want 7 of each", n, count[true], count[false])
			}
			for name, c := range l.chains() {
				if ends[name] != (End{c.LastPos, c.Head}) {
					t.Errorf("last line of %s = %+v, want %+v", name, ends[name], c)
				}
			}
			if l.behind(place) {
				t.Error("Behind after the last line = true, want false")
			}
		}
	})
}

// TestNewPlaceFromNow: a follower that begins now gets only later entries. The first ones link to
// the entries before them.
func TestNewPlaceFromNow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := newLogs(t, c)
		l.write(scope.Sandbox, audit.Basic)
		place := l.newPlace(false)
		if lines, _ := l.read(scope.AnyEnv, place, 10); len(lines) != 0 || l.behind(place) {
			t.Errorf("Read from now = %+v, behind: %t, want nothing", lines, l.behind(place))
		}
		if !l.behind(Place{}) {
			t.Error("Behind of a follower at the start = false, want true")
		}
		ends := map[string]End{}
		for name, c := range l.chains() {
			ends[name] = End{c.LastPos, c.Head}
		}
		l.write(scope.Sandbox, audit.Basic)
		if !l.behind(place) {
			t.Error("Behind after a new entry = false, want true")
		}
		lines, next := l.read(scope.AnyEnv, place, 10)
		if len(lines) != 2 || l.behind(next) {
			t.Errorf("Read after a new entry = %+v, behind: %t, want 2 lines", lines, l.behind(next))
		}
		l.checkLinks(ends, lines)
	})
}

// TestReadOneEnvironment: entries of the other environment have links but no content.
func TestReadOneEnvironment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := newLogs(t, c)
		for _, env := range []scope.Env{scope.Sandbox, scope.Production, scope.Sandbox} {
			l.write(env, audit.Basic)
		}
		ends := map[string]End{}
		for name, c := range l.chains() {
			ends[name] = End{c.FirstPos - 1, c.Base}
		}
		lines, _ := l.read(scope.Sandbox, Place{}, 10)
		l.checkLinks(ends, lines)
		with := map[bool]int{}
		for _, line := range lines {
			content := line.Decision != nil || line.Event != nil
			if content != (line.Environment == scope.Sandbox) {
				t.Errorf("line = %+v, want content only in sandbox", line)
			}
			with[content]++
		}
		if with[true] != 4 || with[false] != 2 {
			t.Errorf("%d lines with content and %d without, want 4 and 2", with[true], with[false])
		}
	})
}

// TestReadAfterRetention: if retention removes the oldest entries before a follower reads them, it
// continues at the base of the chain, and the gap in the positions is visible.
func TestReadAfterRetention(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		l := newLogs(t, c)
		l.write(scope.Production, audit.Basic)
		l.later.Store(int64(audit.Basic.Keep() + 48*time.Hour))
		errtest.Must(t, errtest.Of(l.log.Retain(ctx, scope.DefaultTenant)))
		l.write(scope.Production, audit.Basic)
		name := audit.DecisionsChain(audit.Basic)
		chain := l.chains()[name]
		lines, _ := l.read(scope.AnyEnv, Place{}, 10)
		for _, line := range lines {
			if line.Chain != name {
				continue
			}
			if line.Position != 2 || chain.FirstPos != 2 || line.PreviousHash != chain.Base || chain.Base == "" {
				t.Errorf("first line = %+v of the chain %+v, want position 2 after the base", line, chain)
			}
			return
		}
		t.Errorf("Read = %+v, want a decision", lines)
	})
}
