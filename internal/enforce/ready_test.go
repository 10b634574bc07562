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
			t.Fatal("10000 events do not fill the log")
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
			app := newApplication(t, nil)
			config := map[string]any{}
			if audit != "" {
				config["audit"] = audit
			}
			p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: config, controls: []control{{id: 1, source: allowAll}}}, func(c *Config) {
				c.SpoolBytes = 64 << 10
				c.TrustedProxies = []string{"127.0.0.1"}
			})
			wantAnswer(t, "with room", fetch(t, "GET", b.url+"/x", nil), 200)
			free := fill(t, p, b)
			before := b.count.LogsDropped.Load()
			app.take()
			for range 5 {
				got := fetch(t, "GET", b.url+"/x", nil)
				auth := fetch(t, "GET", b.url+"/_bouncer/auth", forwardHead("GET", "a", "/x"))
				if audit == "required" {
					if wantAnswer(t, "without room", got, 503, "audit_unavailable"); got.header.Get("Retry-After") == "" {
						t.Error("without room: the refusal has no Retry-After")
					}
					wantVerdict(t, "without room", auth, 403, "audit_unavailable")
				} else {
					wantAnswer(t, "without room, which is not required", got, 200)
					wantAnswer(t, "without room, which is not required", auth, 200)
				}
			}
			if n, want := len(app.take()), map[bool]int{true: 0, false: 5}[audit == "required"]; n != want {
				t.Errorf("%d requests reached the application, want %d", n, want)
			}
			lost := b.count.LogsDropped.Load()
			if lost-before < 10 {
				t.Errorf("%d losses are counted, want at least 10", lost-before)
			}
			st := b.reporter.Status(t.Context(), 0)
			if st.Gatehouse.Status != "degraded" || st.DecisionLogs["code"] != "decision_log_error" || st.Gatehouse.LogsDropped != lost {
				t.Errorf("the status is %+v %v, want degraded by the log, with %d losses", st.Gatehouse, st.DecisionLogs, lost)
			}
			free()
			eventually(t, "room in the log", func() bool { return b.journal.Spool.Depth() == 0 })
			wantAnswer(t, "with room again", fetch(t, "GET", b.url+"/x", nil), 200)
			eventually(t, "events that count the missing decisions", func() bool {
				sum := 0.0 // a smaller event may have found room in between
				for _, e := range p.logged(1) {
					custom, _ := e["custom"].(map[string]any)
					if custom["event"] != "decisions_missing" {
						continue
					}
					missing, _ := custom["missing"].(float64)
					sum += missing
					if reason := fmt.Sprint(field(e, "result", "reason")); !strings.HasPrefix(reason, fmt.Sprint(missing, " decisions are missing (")) {
						t.Errorf("the reason is %q, want it to begin with the number of missing decisions, %v", reason, missing)
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
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"audit": "required"}, controls: []control{{id: 1, source: allowAll}}}, func(c *Config) { c.SpoolBytes = 64 << 10 })
	p.set(func() { p.down = true })
	st, lost := b.state.Load(), false
	for i := 0; i < 10_000 && !lost; i++ {
		lost = !b.recorder.Record(st, &request.Inbound{At: time.Now(), Path: fmt.Sprint("/refused/", i), Method: "GET"}, identity.Anonymous(), &judge.Verdict{Outcome: metrics.Deny})
	}
	if !lost || b.count.LogsDropped.Load() != 1 {
		t.Fatalf("10000 refusals: lost %t, %d events dropped, want the first loss", lost, b.count.LogsDropped.Load())
	}
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 || b.count.LogsDropped.Load() != 1 {
		t.Errorf("a permitted request: %s, %d events dropped, want 200 and no more than before", got, b.count.LogsDropped.Load())
	}
}

// In shadow mode nothing is refused, even with a full log.
func TestShadowPassesWithAFullLog(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "shadow", config: map[string]any{"audit": "required"}, controls: []control{{id: 1, source: denyAll}}}, func(c *Config) { c.SpoolBytes = 64 << 10 })
	fill(t, p, b)
	wantAnswer(t, "in shadow", fetch(t, "GET", b.url+"/x", nil), 200)
}

// TestStopDelay checks that a stopping bouncer is not ready at once, closes the connections that it
// answers on, and serves for StopDelay.
func TestStopDelay(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), func(c *Config) { c.StopDelay = 2 * time.Second })
	wantAnswer(t, "before the stop", fetch(t, "GET", b.url+"/_bouncer/ready", nil), 200)
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.stop() }()
	eventually(t, "the bouncer not to be ready", func() bool {
		return fetch(t, "GET", b.url+"/_bouncer/ready", nil).status == 503
	})
	res, err := http.Get(b.url + "/x") //nolint:noctx // a test
	if err != nil {
		t.Fatalf("while stopping: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || !res.Close {
		t.Errorf("while stopping: %d, the connection ends: %v, want 200 and true", res.StatusCode, res.Close)
	}
	<-stopped
	if _, err := http.Get(b.url + "/x"); err == nil { //nolint:noctx,bodyclose // a test
		t.Error("the bouncer answers after the stop")
	}
	if _, err := os.Stat(filepath.Join(b.cfg.DataDir, "decisions")); err != nil {
		t.Errorf("the decision log after the stop: %v", err)
	}
}
