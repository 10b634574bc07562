package decisions_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const (
	endlessControl   = "package endless\n\nl := numbers.range(1, 3000)\n\nallow if count([1 | some a in l; some b in l; some c in l; a + b + c < 0]) > 0\n"
	voraciousControl = "package voracious\n\nallow if count([[a, b] | some a in numbers.range(1, 5000); some b in numbers.range(1, 5000)]) > 0\n"
)

// TestSimulationLimits checks that a control that does not end, or takes all memory, ends with 400 at its
// deadline and is in the history and the audit. The next run is not affected, also after the kill of a
// worker.
func TestSimulationLimits(t *testing.T) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			const deadline = 2 * time.Second
			s := apptest.StartServer(t, backend, "GATEHOUSE_SIMULATION_DEADLINE="+deadline.String())
			d := newSimulator(t, s, "draft")
			slow := d.addControl(body{"name": "endless", "rego_code": endlessControl})
			hungry := d.addControl(body{"name": "voracious", "rego_code": voraciousControl})
			d.run(body{"user": body{"role": "hr"}}) // a warm worker
			for policy, want := range map[int64]string{slow: "did not finish within 2s and was cancelled", hungry: "evaluation"} {
				began := time.Now()
				if detail := wantRefused(t, d.a.Within(deadline+5*time.Second).Do(t, "POST", d.path(policy), body{"input_json": body{}}), 400); !strings.Contains(detail, want) {
					t.Errorf("the detail is %q, want %q", detail, want)
				}
				if took := time.Since(began); policy == slow && took < deadline {
					t.Errorf("the run ended after %s, want its whole deadline of %s", took, deadline)
				}
				h := d.a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", policy), nil).Want(200)
				if h.Get("total") != 1.0 || !bytes.Contains(h.Body, []byte(`"decision":"DENY"`)) {
					t.Errorf("the history is %s, want one DENY", h.Body)
				}
				run := d.a.Do(t, "GET", fmt.Sprintf("/audit/events?type=POLICY_SIMULATION_RUN&object_id=%d", policy), nil).Want(200)
				if !bytes.Contains(run.Body, []byte(want)) {
					t.Errorf("the audit is %s, want %q", run.Body, want)
				}
			}
			// A run whose worker is killed starts again. It keeps its deadline.
			var once sync.Once
			stop := make(chan struct{})
			killed := 0
			var killer sync.WaitGroup
			killer.Go(func() {
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					if n == 10 {
						once.Do(func() {
							for _, pid := range apptest.Children(t, s.Pid()) {
								killed++
								_ = syscall.Kill(pid, syscall.SIGKILL)
							}
						})
					}
				}
			})
			wantRefused(t, d.a.Do(t, "POST", d.path(slow), body{"input_json": body{}}), 400)
			close(stop)
			killer.Wait()
			if killed == 0 {
				t.Error("the server had no worker to kill")
			}
			if got := d.run(body{"user": body{"role": "hr", "clearance": 1}}); got.Decision != "ALLOW" {
				t.Errorf("the run after the kill = %+v, want ALLOW", got)
			}
		})
	}
}

// TestSimulationAtLength checks the default limit: the caller gets 400 after 30 seconds.
func TestSimulationAtLength(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	d := newSimulator(t, s, "draft")
	slow := d.addControl(body{"name": "endless", "rego_code": endlessControl})
	d.run(body{"user": body{"role": "hr"}})
	began := time.Now()
	detail := wantRefused(t, d.a.Do(t, "POST", d.path(slow), body{"input_json": body{}}), 400)
	if took := time.Since(began); !strings.Contains(detail, "did not finish within 30s and was cancelled") || took < 30*time.Second {
		t.Errorf("the simulation after %s = %s, want its end after 30 s", took, detail)
	}
	if h := d.a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", slow), nil).Want(200); h.Get("total") != 1.0 {
		t.Errorf("the history is %s, want one run", h.Body)
	}
}

// TestSimulationHangUp checks that the evaluation ends when its caller leaves, and that the history keeps
// the run.
func TestSimulationHangUp(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite)
	d := newSimulator(t, s, "draft")
	slow := d.addControl(body{"name": "endless", "rego_code": endlessControl})
	ctx, hangUp := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer hangUp()
	req, err := http.NewRequestWithContext(ctx, "POST", d.a.Base+d.path(slow), strings.NewReader(`{"input_json":{}}`))
	errtest.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+d.a.Bearer)
	req.Header.Set("Content-Type", "application/json")
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Fatalf("the simulation ended with %d before its caller left", res.StatusCode)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		h := d.a.Do(t, "GET", fmt.Sprintf("/pis/policies/%d/test-history", slow), nil).Want(200)
		if h.Get("total") != 1.0 {
			return fmt.Errorf("the history is %s, want one run", h.Body)
		}
		return nil
	})
	d.a = d.a.Within(10 * time.Second) // the next run does not wait for the abandoned one
	d.run(body{"user": body{"role": "hr"}})
}

// TestParallelSimulations checks that parallel runs do not mix, and that the history has each once.
func TestParallelSimulations(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newSimulator(t, s, "draft")
		scenario := d.a.Do(t, "POST", "/pis/scenarios", body{"policy_id": d.policy, "name": "hr", "attributes": body{"user.role": "hr"}}).Want(201).ID()
		const n = 12
		var all sync.WaitGroup
		var mu sync.Mutex
		seen := map[float64]bool{}
		for i := range n {
			all.Go(func() {
				in, want := body{"scenario_id": scenario}, "MASK"
				switch i % 3 {
				case 1:
					in, want = body{"input_json": body{"user": body{"role": "hr", "clearance": i}}}, "ALLOW"
				case 2:
					in, want = body{"input_json": body{"user": body{"role": fmt.Sprint("intern-", i)}}}, "DENY"
				}
				res, err := d.a.Try("POST", d.path(d.policy), in)
				if err != nil {
					t.Error(err)
					return
				}
				var got body
				if err := res.Decode(&got); err != nil || res.Status != 200 || got["decision"] != want {
					t.Errorf("the simulation of %v = %d %s, want 200 %s", in, res.Status, res.Body, want)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				id, _ := got["simulation_id"].(float64)
				if seen[id] {
					t.Errorf("two runs have the id %v", id)
				}
				seen[id] = true
			})
		}
		all.Wait()
		if total := d.a.Do(t, "GET", "/pis/test-history", nil).Want(200).Get("total"); total != float64(n) {
			t.Errorf("the history has %v runs, want %d", total, n)
		}
		if v := d.a.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("GET /audit/verify = %v, want it valid", v)
		}
	})
}
