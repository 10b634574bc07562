package bridge

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestTroubleAlert checks that a bouncer that reports trouble opens one alert, however often it reports it and
// whatever its log delivers meanwhile. The alert is resolved when the trouble ends or the bouncer
// is deleted. Other problems of a bouncer open no alert.
func TestTroubleAlert(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		g := h.bouncer(scope.Production, nil)
		g.fetch()
		h.until("status connected", func() bool { return g.record().Status == bouncer.Connected })
		report := func(own string) {
			t.Helper()
			h.skip(time.Second)
			now := h.now()
			errtest.Must(t, h.Status(ctx, g.sc, g.token, []byte(`{"decision_logs":{},"gatehouse":{"version":"1","poll_interval_seconds":10`+own+`}}`)))
			h.until("the report to be stored", func() bool { seen, _ := g.presence(); return !seen.Before(now) })
		}
		wantAlerts := func(what string, open, all int64) {
			t.Helper()
			of := `SELECT count(*) FROM tenant_alerts WHERE type = 'bouncer_trouble' AND severity = 'error' AND subject = '` + strconv.FormatInt(g.id, 10) + `'`
			if n := h.countRows(of + ` AND resolved_at IS NULL`); n != open {
				t.Errorf("%s: %d open alerts, want %d", what, n, open)
			}
			if n := h.countRows(of); n != all {
				t.Errorf("%s: %d alerts in all, want %d", what, n, all)
			}
		}
		report("")
		wantAlerts("without trouble", 0, 0)
		report(`,"target_app_reachable":false`)
		wantAlerts("no application", 0, 0)
		for _, own := range []string{`,"log_trouble":"the decision log is full"`, `,"log_trouble":"the disk of the decision log is nearly full"`, `,"stale":true`} {
			report(own)
			wantAlerts(own, 1, 1)
		}
		report(`,"log_trouble":"the decision log is full"`)
		g.deliver(t)
		report(`,"log_trouble":"the decision log is full"`)
		wantAlerts("after a delivery of its log", 1, 1)
		if r := g.record(); r.Status != bouncer.Degraded || r.StatusDetail != "the decision log is full" {
			t.Errorf("the status is %s (%s), want degraded by the full log", r.Status, r.StatusDetail)
		}
		report("")
		wantAlerts("after the trouble", 0, 1)
		report(`,"stale":true`)
		wantAlerts("in trouble again", 1, 2)
		errtest.Must(t, errtest.Of(h.cfg.Bouncers.Delete(ctx, person(scope.DefaultTenant), g.id, 0)))
		wantAlerts("deleted", 0, 2)
	})
}

// deliver sends a chunk of the bouncer's decision log.
func (g *client) deliver(t *testing.T) {
	t.Helper()
	chunk := strings.NewReader(`[{"decision_id":"d1","timestamp":"2026-01-01T00:00:00Z","result":{"decision":"PERMIT","allow":true}}]`)
	errtest.Must(t, errtest.Of(g.h.Logs(context.Background(), g.sc, g.token, chunk)))
}
