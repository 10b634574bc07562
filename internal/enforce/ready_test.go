package enforce

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// fill fills a bouncer's decision log. free makes room again.
func fill(t *testing.T, p *plane, b *running) (free func()) {
	t.Helper()
	// Events that are being shipped would make room when they are acknowledged.
	eventually(t, "an empty log", func() bool { return b.journal.Spool.Depth() == 0 })
	p.set(func() { p.down = true }) // nothing is shipped, so that nothing is trimmed
	st := b.state.Load()
	for _, path := range []string{"/" + strings.Repeat("x", 1000), "/"} { // fill the last gap with small events
		full := false
		for i := 0; i < 10_000 && !full; i++ {
			full = !b.recorder.Record(st, &request.Inbound{At: time.Now(), Path: path, Method: "GET"}, identity.Anonymous(), &judge.Verdict{Outcome: metrics.Permit, Pass: true})
		}
		if !full {
			t.Fatal("the log never fills up")
		}
	}
	return func() { p.set(func() { p.down = false }) }
}

// TestFullLog checks that a full log refuses requests if it is required, and lets them pass if not.
// Both are reported at once, and the log records how many decisions are missing as soon as it can be
// written again.
func TestFullLog(t *testing.T) {
	t.Parallel()
	for _, audit := range []string{"", "best_effort", "required"} {
		t.Run("audit="+audit, func(t *testing.T) {
			app, p := newApplication(t, nil), newPlane(t)
			config := map[string]any{}
			if audit != "" {
				config["audit"] = audit
			}
			p.publish(policySet{revision: 1, mode: "enforce", config: config, controls: []control{{id: 1, source: allowAll}}})
			b := start(t, p, app.URL, func(c *Config) {
				c.SpoolBytes = 64 << 10
				c.TrustedProxies = []string{"127.0.0.1"}
			}).at(t, 1)
			if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
				t.Fatalf("with room: %d", got.status)
			}
			free := fill(t, p, b)
			before := b.count.LogsDropped.Load()
			app.take()
			for range 5 {
				got := fetch(t, "GET", b.url+"/x", nil)
				auth := fetch(t, "GET", b.url+"/_bouncer/auth", forwardHead("GET", "a", "/x"))
				if audit == "required" {
					if got.status != 503 || !strings.Contains(got.body, "audit_unavailable") || got.header.Get("Retry-After") == "" {
						t.Errorf("the log is full: %d %s", got.status, got.body)
					}
					if auth.status != 403 || auth.header.Get("X-Gatehouse-Status") != "audit_unavailable" {
						t.Errorf("the log is full, forward-auth: %d %v", auth.status, auth.header)
					}
				} else if got.status != 200 || auth.status != 200 {
					t.Errorf("the log is full, and not required: %d %d", got.status, auth.status)
				}
			}
			if n := len(app.take()); n != map[bool]int{true: 0, false: 5}[audit == "required"] {
				t.Errorf("%d requests reached the application", n)
			}
			lost := b.count.LogsDropped.Load()
			if lost-before < 10 {
				t.Errorf("%d losses counted, want 10", lost-before)
			}
			st := b.reporter.Status(t.Context(), 0)
			if st.Gatehouse.Status != "degraded" || st.DecisionLogs["code"] != "decision_log_error" || st.Gatehouse.LogsDropped != lost {
				t.Errorf("the status says %+v %v", st.Gatehouse, st.DecisionLogs)
			}
			free()
			eventually(t, "room in the log", func() bool { return b.journal.Spool.Depth() == 0 })
			if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
				t.Errorf("with room again: %d %s", got.status, got.body)
			}
			eventually(t, "the log to say what is missing", func() bool {
				sum := 0.0 // a smaller event may have found room in between
				for _, e := range p.logged(1) {
					custom, _ := e["custom"].(map[string]any)
					if custom["event"] != "decisions_missing" {
						continue
					}
					missing, _ := custom["missing"].(float64)
					sum += missing
					if reason := fmt.Sprint(e["result"].(map[string]any)["reason"]); !strings.HasPrefix(reason, fmt.Sprint(missing, " decisions are missing (")) {
						t.Errorf("the log says %s", reason)
					}
				}
				return sum == float64(lost)
			})
		})
	}
}

// TestRefusalsLeaveRoom checks that a flood of refusals leaves room in the log for permitted
// requests, and does not make a bouncer with a required log refuse them.
func TestRefusalsLeaveRoom(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app, p := newApplication(t, nil), newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", config: map[string]any{"audit": "required"}, controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, func(c *Config) { c.SpoolBytes = 64 << 10 }).at(t, 1)
	p.set(func() { p.down = true })
	st, lost := b.state.Load(), false
	for i := 0; i < 10_000 && !lost; i++ {
		lost = !b.recorder.Record(st, &request.Inbound{At: time.Now(), Path: fmt.Sprint("/refused/", i), Method: "GET"}, identity.Anonymous(), &judge.Verdict{Outcome: metrics.Deny})
	}
	if !lost || b.count.LogsDropped.Load() != 1 {
		t.Fatalf("refusals fill the log: %t, %d dropped", lost, b.count.LogsDropped.Load())
	}
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 || b.count.LogsDropped.Load() != 1 {
		t.Errorf("a request that is permitted: %d, %d events dropped", got.status, b.count.LogsDropped.Load())
	}
}

// In shadow mode nothing is refused, even with a full log.
func TestShadowPassesWithAFullLog(t *testing.T) {
	t.Parallel()
	app, p := newApplication(t, nil), newPlane(t)
	p.publish(policySet{revision: 1, mode: "shadow", config: map[string]any{"audit": "required"}, controls: []control{{id: 1, source: denyAll}}})
	b := start(t, p, app.URL, func(c *Config) { c.SpoolBytes = 64 << 10 }).at(t, 1)
	fill(t, p, b)
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
		t.Errorf("in shadow: %d", got.status)
	}
}

// TestStopDelay checks that a stopping bouncer is not ready at once, closes the connections that it
// answers on, and serves for StopDelay.
func TestStopDelay(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app, p := newApplication(t, nil), newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b := start(t, p, app.URL, func(c *Config) { c.StopDelay = 2 * time.Second }).at(t, 1)
	if got := fetch(t, "GET", b.url+"/_bouncer/ready", nil); got.status != 200 {
		t.Fatalf("before: %d", got.status)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.stop() }()
	eventually(t, "not to be ready", func() bool {
		return fetch(t, "GET", b.url+"/_bouncer/ready", nil).status == 503
	})
	res, err := http.Get(b.url + "/x") //nolint:noctx // a test
	if err != nil {
		t.Fatalf("while stopping: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || !res.Close {
		t.Errorf("while stopping: %d, the connection ends: %v", res.StatusCode, res.Close)
	}
	<-stopped
	if _, err := http.Get(b.url + "/x"); err == nil { //nolint:noctx,bodyclose // a test
		t.Error("the bouncer answers after the stop")
	}
	if _, err := os.Stat(filepath.Join(b.cfg.DataDir, "decisions")); err != nil {
		t.Error(err)
	}
}
