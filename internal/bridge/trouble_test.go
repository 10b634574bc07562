package bridge

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestTroubleAlert: a bouncer that reports trouble opens one alert, however often it reports it and
// whatever its log delivers meanwhile. The alert is resolved when the trouble ends or the bouncer
// is deleted. Other problems of a bouncer open no alert.
func TestTroubleAlert(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		g := h.bouncer(scope.Production, nil)
		g.fetch()
		h.until("it is connected", func() bool { return g.record().Status == bouncer.Connected })
		say := func(own string) {
			t.Helper()
			h.skip(time.Second)
			now := h.now()
			if err := h.Status(ctx, g.sc, g.token, []byte(`{"decision_logs":{},"gatehouse":{"version":"1","poll_interval_seconds":10`+own+`}}`)); err != nil {
				t.Fatal(err)
			}
			h.until("the report is stored", func() bool { seen, _ := g.presence(); return !seen.Before(now) })
		}
		alerts := func(what string, open, all int64) {
			t.Helper()
			of := `SELECT count(*) FROM tenant_alerts WHERE type = 'bouncer_trouble' AND severity = 'error' AND subject = '` + strconv.FormatInt(g.id, 10) + `'`
			if n := h.tally(of + ` AND resolved_at IS NULL`); n != open {
				t.Errorf("%s: %d open alerts", what, n)
			}
			if n := h.tally(of); n != all {
				t.Errorf("%s: %d alerts in all", what, n)
			}
		}
		say("")
		alerts("all is well", 0, 0)
		say(`,"target_app_reachable":false`)
		alerts("no application", 0, 0)
		for _, own := range []string{`,"log_trouble":"the decision log is full"`, `,"log_trouble":"the disk of the decision log is nearly full"`, `,"stale":true`} {
			say(own)
			alerts(own, 1, 1)
		}
		say(`,"log_trouble":"the decision log is full"`)
		g.deliver(t)
		say(`,"log_trouble":"the decision log is full"`)
		alerts("its log delivers", 1, 1)
		if r := g.record(); r.Status != bouncer.Degraded || r.StatusDetail != "the decision log is full" {
			t.Errorf("its status is %s: %s", r.Status, r.StatusDetail)
		}
		say("")
		alerts("well again", 0, 1)
		say(`,"stale":true`)
		alerts("in trouble again", 1, 2)
		if _, err := h.cfg.Bouncers.Delete(ctx, person(scope.DefaultTenant), g.id, 0); err != nil {
			t.Fatal(err)
		}
		alerts("deleted", 0, 2)
	})
}

// deliver sends a chunk of the bouncer's decision log.
func (g *client) deliver(t *testing.T) {
	t.Helper()
	chunk := strings.NewReader(`[{"decision_id":"d1","timestamp":"2026-01-01T00:00:00Z","result":{"decision":"PERMIT","allow":true}}]`)
	if _, err := g.h.Logs(context.Background(), g.sc, g.token, chunk); err != nil {
		t.Fatal(err)
	}
}
