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

// presence returns when a bouncer was last seen, and how long it may be silent after that.
func (g *client) presence() (seen time.Time, silent time.Duration) {
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

func (h *fixture) tally(sql string) int64 {
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

// TestDisconnectedAfterMissedPolls: a bouncer is disconnected three poll intervals after its last
// request, of whatever kind. This emits the event and opens an alert, which is resolved when the
// bouncer reports again.
func TestDisconnectedAfterMissedPolls(t *testing.T) {
	ctx := context.Background()
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		goes := int64(0)
		for what, send := range map[string]func(g *client) error{
			"a poll": func(g *client) error { _, err := g.poll(10*time.Second, "another"); return err },
			"a log":  func(g *client) error { _, err := h.Logs(ctx, g.sc, g.token, strings.NewReader("[]")); return err },
			"OPA's status": func(g *client) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"labels":{"id":"x"},"bundles":{}}`))
			},
			"our status without an interval": func(g *client) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"gatehouse":{"version":"1"}}`))
			},
			"our status": func(g *client) error {
				return h.Status(ctx, g.sc, g.token, []byte(`{"gatehouse":{"version":"1","poll_interval_seconds":10}}`))
			},
			"hosts": func(g *client) error { g.report(resource.Sighting{Host: "seen.example.com"}); return nil },
			"its configuration": func(g *client) error {
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

// TestPollGap: the interval of a client without long polls is derived from its polls. An immediate
// retry does not shorten it.
func TestPollGap(t *testing.T) {
	d := newBouncerState(1)
	at := time.Unix(1e9, 0)
	for i, c := range []struct{ gap, want time.Duration }{
		{0, 0},
		{20 * time.Second, 20 * time.Second},
		{25 * time.Second, 25 * time.Second},
		{time.Millisecond, 25 * time.Second},
		{time.Millisecond, 25 * time.Second},
		{time.Millisecond, minPollInterval},
		{time.Hour, maxPollInterval},
	} {
		at = at.Add(c.gap)
		if got := d.pollGap(at); got != c.want {
			t.Errorf("poll %d: %s apart, not %s", i, got, c.want)
		}
	}
}
