package bridge

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// presence returns when a bouncer was last seen, and how long it may be silent after that.
func (g *client) presence() (seen time.Time, silent time.Duration) {
	g.h.t.Helper()
	type presence struct {
		Seen time.Time `db:"seen_at"`
		Due  time.Time `db:"due_at"`
	}
	var row presence
	err := g.h.stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		row, err = db.One[presence](context.Background(), tx, `SELECT seen_at, due_at FROM bridge_presence WHERE bouncer_id = $1`, g.id)
		return err
	})
	if err != nil {
		g.h.t.Fatal(err)
	}
	return row.Seen, row.Due.Sub(row.Seen)
}

// countRows returns the count that a query selects.
func (h *fixture) countRows(sql string) int64 {
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

// TestDisconnectedAfterMissedPolls checks that a bouncer is disconnected three poll intervals after its last
// request, of whatever kind. This emits the event and opens an alert, which is resolved when the
// bouncer reports again.
func TestDisconnectedAfterMissedPolls(t *testing.T) {
	ctx := context.Background()
	each(t, func(t *testing.T, h *fixture) {
		h.control(scope.Production, "orders", 0, alice)
		disconnects := int64(0)
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
			h.until("connected before "+what, func() bool { return g.record().Status == bouncer.Connected })
			h.skip(5 * time.Second)
			now := h.now()
			if err := send(g); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			h.until(what+" to count", func() bool { seen, _ := g.presence(); return !seen.Before(now) })
			if _, silent := g.presence(); silent != 30*time.Second {
				t.Errorf("after %s it may be silent for %s, want 30s", what, silent)
			}
			h.skip(31 * time.Second)
			h.until("disconnected after "+what, func() bool { return g.record().Status == bouncer.Disconnected })
			disconnects++
			if n := h.countRows(`SELECT count(*) FROM events WHERE type = 'bouncer.disconnected'`); n < disconnects {
				t.Errorf("%s: %d events, want one for each of %d bouncers", what, n, disconnects)
			}
			if n := h.countRows(`SELECT count(*) FROM tenant_alerts WHERE type = 'bouncer_disconnected' AND resolved_at IS NULL`); n != 1 {
				t.Errorf("%s: %d open alerts, want 1", what, n)
			}
			errtest.Must(t, errtest.Of(g.poll(10*time.Second, "one more")))
			h.until("connected again after "+what, func() bool { return g.record().Status == bouncer.Connected })
			h.until("the alert to be resolved after "+what, func() bool {
				return h.countRows(`SELECT count(*) FROM tenant_alerts WHERE resolved_at IS NULL`) == 0
			})
			errtest.Must(t, errtest.Of(h.cfg.Bouncers.Delete(ctx, person(scope.DefaultTenant), g.id, 0)))
		}
	})
}

// TestPollGap checks that the interval of a client without long polls is derived from its polls. An immediate
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
			t.Errorf("poll %d: an interval of %s, want %s", i, got, c.want)
		}
	}
}
