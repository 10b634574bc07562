package bridge

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// presence is when a bouncer was seen, and how long it may then be silent.
func (g *guard) presence() (seen time.Time, silent time.Duration) {
	g.h.t.Helper()
	row := struct {
		Seen time.Time `db:"seen_at"`
		Due  time.Time `db:"due_at"`
	}{}
	err := g.h.stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		row, err = db.One[struct {
			Seen time.Time `db:"seen_at"`
			Due  time.Time `db:"due_at"`
		}](context.Background(), tx, `SELECT seen_at, due_at FROM bridge_presence WHERE bouncer_id = $1`, g.id)
		return err
	})
	if err != nil {
		g.h.t.Fatal(err)
	}
	return row.Seen, row.Due.Sub(row.Seen)
}

func (h *house) tally(sql string) int64 {
	h.t.Helper()
	var n int64
	err := h.stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, sql)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// TestLastSign: a bouncer is gone three of its own poll intervals after it was
// last heard of, whatever it was that was heard last. That raises the event and
// an alert of the tenant, which ends when the bouncer is back.
func TestLastSign(t *testing.T) {
	ctx := context.Background()
	each(t, func(t *testing.T, h *house) {
		h.control(scope.Production, "orders", 0, alice)
		goes := int64(0)
		for what, send := range map[string]func(g *guard) error{
			"a poll": func(g *guard) error { _, err := g.poll(10*time.Second, "another"); return err },
			"a log":  func(g *guard) error { _, err := h.Logs(ctx, g.sc, g.token, strings.NewReader("[]")); return err },
			"OPA's status": func(g *guard) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"labels":{"id":"x"},"bundles":{}}`))
			},
			"our status without an interval": func(g *guard) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"gatehouse":{"version":"1"}}`))
			},
			"our status": func(g *guard) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"gatehouse":{"version":"1","poll_interval_seconds":10}}`))
			},
			"hosts": func(g *guard) error { g.report(resource.Sighting{Host: "seen.example.com"}); return nil },
			"its configuration": func(g *guard) error {
				_, err := h.Discovery(ctx, g.sc, Poll{BouncerID: g.id, Token: g.token})
				return err
			},
		} {
			g := h.bouncer(scope.Production, nil)
			g.fetch()
			h.until(what+": connected", func() bool { return g.record().Status == bouncer.Connected })
			h.skip(5 * time.Second)
			now := h.now()
			if err := send(g); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			h.until(what+": seen", func() bool { seen, _ := g.presence(); return !seen.Before(now) })
			if _, silent := g.presence(); silent != 30*time.Second {
				t.Errorf("%s came last: it may be silent for %s", what, silent)
			}
			h.skip(31 * time.Second)
			h.until(what+": disconnected", func() bool { return g.record().Status == bouncer.Disconnected })
			goes++
			if n := h.tally(`SELECT count(*) FROM events WHERE type = 'bouncer.disconnected'`); n < goes {
				t.Errorf("%s: %d events for %d bouncers", what, n, goes)
			}
			if n := h.tally(`SELECT count(*) FROM tenant_alerts WHERE type = 'bouncer_disconnected' AND resolved_at IS NULL`); n != 1 {
				t.Errorf("%s: %d open alerts", what, n)
			}
			if _, err := g.poll(10*time.Second, "one more"); err != nil {
				t.Fatal(err)
			}
			h.until(what+": back", func() bool { return g.record().Status == bouncer.Connected })
			h.until(what+": resolved", func() bool {
				return h.tally(`SELECT count(*) FROM tenant_alerts WHERE resolved_at IS NULL`) == 0
			})
			if _, err := h.cfg.Bouncers.Delete(ctx, person(scope.DefaultTenant), g.id, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestApart: how far apart the polls are of a client that does not wait is seen
// by them, and a retry that comes at once does not shorten it.
func TestApart(t *testing.T) {
	d := newDesk(1)
	at := time.Unix(1e9, 0)
	for i, c := range []struct{ gap, want time.Duration }{
		{0, 0},
		{20 * time.Second, 20 * time.Second},
		{25 * time.Second, 25 * time.Second},
		{time.Millisecond, 25 * time.Second},
		{time.Millisecond, 25 * time.Second},
		{time.Millisecond, pollsAtLeast},
		{time.Hour, pollsAtMost},
	} {
		at = at.Add(c.gap)
		if got := d.pollGap(at); got != c.want {
			t.Errorf("poll %d: %s apart, not %s", i, got, c.want)
		}
	}
}
