package controls_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// slowRun starts a run whose decisions each take until their limit, and waits until it has done
// some.
func slowRun(t *testing.T, a *apptest.Client, policy int64, most int) (at string) {
	t.Helper()
	r := a.Do(t, "POST", "/compliance/replays", body{
		"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": endlessInvoices}}, "max_decisions": most,
	}).Want(202)
	at = fmt.Sprint("/compliance/replays/", r.ID())
	waitForProgress(t, a, at)
	return at
}

// waitForProgress waits until a run shows progress.
func waitForProgress(t *testing.T, a *apptest.Client, at string) {
	t.Helper()
	apptest.Eventually(t, 60*time.Second, func() error {
		r := a.Do(t, "GET", at+"?wait=2", nil).Want(200)
		if r.Get("status") != "running" {
			t.Fatalf("the run ended before it made progress: %s", r.Body)
		}
		if r.Get("progress", "evaluated") == 0.0 {
			return fmt.Errorf("the run has made no progress: %s", r.Body)
		}
		return nil
	})
}

// TestReplaySurvives checks that another server continues a run, whether its server was stopped,
// which returns the run at once, or killed, which leaves it until its lease ends, and that another
// run can start meanwhile.
func TestReplaySurvives(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := apptest.StartServer(t, backend)
			a := s.Admin
			_, policy := apptest.RecordDecisions(t, a, "production", 200, 12)
			at := slowRun(t, a, policy, 24)
			s.Stop()
			s.Start()
			waitForProgress(t, a, at)
			s.Kill()
			s.Start()
			if r := a.Do(t, "GET", at, nil).Want(200); r.Get("status") != "running" {
				t.Errorf("the run after the kill = %s, want it running", r.Body)
			}
			other := a.Do(t, "POST", "/compliance/replays", body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}).Want(202)
			if done := waitForEnd(t, a, fmt.Sprint("/compliance/replays/", other.ID()), "completed"); done.Get("result", "newly_blocked") != 12.0 {
				t.Errorf("the other run = %s, want 12 newly blocked", done.Body)
			}
			waitForProgress(t, a, at)
			done := waitForEnd(t, a, at, "completed")
			if done.Get("result", "evaluated") != 24.0 || done.Get("result", "newly_blocked") != 24.0 || done.Get("result", "truncated") != true {
				t.Errorf("the continued run = %s, want 24 newly blocked, truncated", done.Body)
			}
		})
	}
}

// TestReplayKillsItsServer checks that a run whose server is killed in each attempt fails with the
// reason, and does not start again.
func TestReplayKillsItsServer(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	_, policy := apptest.RecordDecisions(t, s.Admin, "production", 1000, 0)
	at := slowRun(t, s.Admin, policy, 1000)
	for range 2 {
		s.Kill()
		s.Start()
		evaluated := s.Admin.Do(t, "GET", at, nil).Want(200).Get("progress", "evaluated")
		apptest.Eventually(t, time.Minute, func() error { // the next attempt has its own progress
			if r := s.Admin.Do(t, "GET", at, nil).Want(200); r.Get("progress", "evaluated") == evaluated {
				return fmt.Errorf("the run has not started again: %s", r.Body)
			}
			return nil
		})
	}
	s.Kill()
	s.Start()
	failed := waitForEnd(t, s.Admin, at, "failed")
	if !strings.Contains(fmt.Sprint(failed.Get("error")), "was interrupted too often") || failed.Get("finished_at") == nil {
		t.Errorf("the failed run = %s, want that it was interrupted too often", failed.Body)
	}
}

// TestReplayTruncated checks that a preview with more decisions than it may take, or can take in
// its time, says so and replays the newest.
func TestReplayTruncated(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	_, policy := apptest.RecordDecisions(t, a, "production", 300, 12)
	apptest.Decide(t, a, "production", 1500, 5)
	ask := body{"environment": "production", "window_hours": 1, "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}
	if r := a.Do(t, http.MethodPost, "/compliance/impact-preview", ask).Want(200); r.Get("truncated") != false || r.Get("evaluated") != 1800.0 || r.Get("changed") != 17.0 || r.Get("note") != nil {
		t.Errorf("the preview of all = %s, want 1800 decisions", r.Body)
	}
	ask["max_decisions"] = 1500
	r := a.Do(t, http.MethodPost, "/compliance/impact-preview", ask).Want(200)
	if r.Get("truncated") != true || r.Get("evaluated") != 1500.0 || r.Get("recorded") != 1800.0 || r.Get("without_input") != 0.0 || r.Get("changed") != 5.0 ||
		!strings.Contains(fmt.Sprint(r.Get("note")), "the newest 1500 decisions of the window; max_decisions leaves out 300 older ones") {
		t.Errorf("the preview of 1500 = %s, want a note about 300 older ones", r.Body)
	}
	ask["max_decisions"] = 1800
	if r := a.Do(t, http.MethodPost, "/compliance/impact-preview", ask).Want(200); r.Get("truncated") != false || r.Get("evaluated") != 1800.0 {
		t.Errorf("the preview of exactly all = %s, want 1800 decisions", r.Body)
	}
	delete(ask, "max_decisions")
	ask["candidates"] = []body{{"policy_id": policy, "rego_code": endlessInvoices}}
	r = a.Within(30*time.Second).Do(t, http.MethodPost, "/compliance/impact-preview", ask).Want(200)
	if n, _ := r.Get("evaluated").(float64); r.Get("truncated") != true || n == 0 || n >= 1800 || r.Get("recorded") != 1800.0 || !strings.Contains(fmt.Sprint(r.Get("note")), "time ran out") {
		t.Errorf("the preview of slow decisions = %s, want a note about the time", r.Body)
	}
}

// TestReplayInterrupted checks that Ctrl-C ends the command with 130 and cancels the run on the
// server, also before the start was answered.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	_, policy := apptest.RecordDecisions(t, s.Admin, "production", 1000, 0)
	file := filepath.Join(t.TempDir(), "invoices.rego")
	errtest.Must(t, os.WriteFile(file, []byte(endlessInvoices), 0o600))
	env := []string{"GATEHOUSE_URL=" + s.URL, "GATEHOUSE_API_KEY=" + s.Key(t, s.Admin, "production", "policies:write").APIKey}
	for i, what := range []string{"under way", "just begun"} {
		c := apptest.Launch(t, "", "", env, "replay", "--control="+file, fmt.Sprint("--policy-id=", policy))
		at := fmt.Sprint("/compliance/replays/", i+1)
		apptest.Eventually(t, 30*time.Second, func() error {
			if r := s.Admin.Do(t, "GET", at, nil); r.Status != 200 {
				return fmt.Errorf("the server has no run: %s", c.Log)
			}
			return nil
		})
		if i == 0 {
			waitForProgress(t, s.Admin, at)
			apptest.Eventually(t, 30*time.Second, func() error {
				if !strings.Contains(c.Log.String(), "of 1000 decisions") {
					return fmt.Errorf("the command shows no progress: %s", c.Log)
				}
				return nil
			})
		}
		c.Interrupt()
		if code := c.Wait(10 * time.Second); code != 130 || !strings.Contains(c.Log.String(), fmt.Sprintf("replay %d is cancelled", i+1)) {
			t.Errorf("%s: the command ended with %d, want 130 and the cancelled run: %s", what, code, c.Log)
		}
		if r := s.Admin.Do(t, "GET", at, nil).Want(200); r.Get("status") != "cancelled" {
			t.Errorf("%s: the run = %s, want it cancelled", what, r.Body)
		}
	}
}
