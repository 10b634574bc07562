package tenancy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// deployment is what a test looks at.
type deployment struct {
	ID            string `json:"deployment_id"`
	Status, Phase string
	Region        string
	Reason        *string
	Rows          int64   `json:"rows_copied"`
	Changes       int64   `json:"changes_copied"`
	Pause         int64   `json:"write_pause_ms"`
	CompletedAt   *string `json:"completed_at"`
	NewDomain     *string `json:"new_domain"`
	StartedAt     string  `json:"started_at"`
	Estimated     string  `json:"estimated_completion"`
	Progress      struct {
		Database string `json:"database_migration"`
		DNS      string `json:"dns_update"`
		SSL      string `json:"ssl_setup"`
	}
}

// deploy begins to move a company.
func deploy(t testing.TB, s *apptest.Server, c company, draft body) deployment {
	t.Helper()
	var d deployment
	s.Admin.Do(t, "POST", c.at("/deploy"), draft).Want(202).Into(&d)
	if d.Status != "in_progress" || d.ID == "" {
		t.Fatalf("the deployment began as %+v", d)
	}
	return d
}

// ended waits for the end of a deployment.
func ended(t testing.TB, s *apptest.Server, c company, id string) (d deployment) {
	t.Helper()
	apptest.Eventually(t, 3*time.Minute, func() error {
		s.Admin.Do(t, "GET", c.at("/deployments/"+id), nil).Want(200).Into(&d)
		if d.Status == "in_progress" {
			return fmt.Errorf("the deployment is in the phase %s", d.Phase)
		}
		return nil
	})
	return d
}

// load writes and decides until stop is called, and counts what was acknowledged. An answer
// other than success is an error, unless mayFail.
type load struct {
	mu        sync.Mutex
	users     []string // that were acknowledged
	decisions atomic.Int64
	refused   atomic.Int64
	stop      func()
}

func startLoad(t testing.TB, c company, prefix string, mayFail bool) *load {
	l := &load{}
	end := make(chan struct{})
	pace := time.NewTicker(3 * time.Millisecond)
	t.Cleanup(pace.Stop)
	var running sync.WaitGroup
	for w := range 3 {
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				case <-pace.C:
				}
				name := fmt.Sprintf("%s-%d-%d", prefix, w, n)
				res, err := c.admin.Try("POST", "/users", body{"username": name, "email": name + "@load.example", "roles": []string{"viewer"}})
				switch {
				case err == nil && res.Status == http.StatusCreated:
					l.mu.Lock()
					l.users = append(l.users, name)
					l.mu.Unlock()
				case mayFail && (err != nil || res.Status == 503):
				default:
					t.Errorf("a write was not taken: %v %s", err, answerOf(res))
				}
			}
		})
		running.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-pace.C:
				}
				res, err := c.key.Try("POST", "/decisions/evaluate", body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}})
				switch {
				case err == nil && res.Status == 200:
					l.decisions.Add(1)
				case mayFail && err != nil:
				default:
					l.refused.Add(1)
					t.Errorf("a decision was refused: %v %s", err, answerOf(res))
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { close(end); running.Wait() })
	t.Cleanup(l.stop)
	return l
}

// answerOf is an answer, if there was one.
func answerOf(r *apptest.Response) string {
	if r == nil {
		return "no answer"
	}
	return fmt.Sprintf("%d %s", r.Status, r.Body)
}

// complete checks that a tenant has all that was acknowledged.
func (l *load) complete(t testing.TB, s *apptest.Server, c company) {
	t.Helper()
	have := map[string]bool{}
	for skip := 0; ; skip += 1000 {
		var page struct{ Users []struct{ Username string } }
		c.admin.Do(t, "GET", fmt.Sprintf("/users?limit=1000&skip=%d", skip), nil).Want(200).Into(&page)
		for _, u := range page.Users {
			if have[u.Username] {
				t.Errorf("%s is there twice", u.Username)
			}
			have[u.Username] = true
		}
		if len(page.Users) < 1000 {
			break
		}
	}
	lost := 0
	for _, name := range l.users {
		if !have[name] {
			lost++
		}
	}
	if lost > 0 || len(l.users) == 0 {
		t.Errorf("%d of %d acknowledged writes are lost", lost, len(l.users))
	}
	apptest.Eventually(t, time.Minute, func() error {
		n, _ := c.admin.Do(t, "GET", "/decisions/audit?limit=1", nil).Want(200).Get("total").(float64)
		if int64(n) < l.decisions.Load() {
			return fmt.Errorf("the log has %v decisions of %d", n, l.decisions.Load())
		}
		return nil
	})
}

// TestMovesUnderLoad: a tenant moves between stores of both kinds while it is used: no
// acknowledged write is lost, no decision is refused, the logs' chains hold, and the ids go on.
func TestMovesUnderLoad(t *testing.T) {
	setting, dir := regions(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting, "GATEHOUSE_DEPLOY_KEEP=0s", "GATEHOUSE_BASE_DOMAIN=gate.test")
	c := found(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", "package p\n\nallow := true\n", nil)
	for n, to := range []string{serverRegion, fileRegion, serverRegion, fileRegion} {
		l := startLoad(t, c, fmt.Sprint("to-", to, n), false)
		apptest.Eventually(t, time.Minute, func() error {
			if l.decisions.Load() < 50 {
				return fmt.Errorf("no load yet")
			}
			return nil
		})
		began := deploy(t, s, c, body{"region": to})
		if r := s.Admin.Do(t, "POST", c.at("/deploy"), body{"region": to}); r.Status != 409 || r.Get("error") != "deployment_in_progress" {
			t.Errorf("a second deployment: %d %s", r.Status, r.Body)
		}
		d := ended(t, s, c, began.ID)
		if d.Status != "completed" || d.Phase != "done" || d.Progress.Database != "completed" || d.Progress.DNS != "completed" || d.Progress.SSL != "completed" || d.CompletedAt == nil || d.NewDomain == nil || *d.NewDomain != c.id+".gate.test" || d.Rows == 0 {
			t.Errorf("the deployment ended as %+v (%v)", d, d.Reason)
		}
		t.Logf("to %s: %d rows, %d changes, a pause of %d ms", to, d.Rows, d.Changes, d.Pause)
		l.stop()
		l.complete(t, s, c)
		if got := c.admin.Do(t, "GET", c.at(""), nil).Want(200).Get("region"); got != to {
			t.Errorf("the tenant is in %v", got)
		}
		if ok := c.admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); ok != true {
			t.Errorf("the audit chain is broken: %v", ok)
		}
		apptest.Eventually(t, time.Minute, func() error {
			files, err := filepath.Glob(filepath.Join(dir, fileRegion, c.id+".*db"))
			if there := len(files) == 1; err != nil || len(files) > 1 || there != (to == fileRegion) {
				return fmt.Errorf("the files of the tenant: %v %v", files, err)
			}
			return nil
		})
		for _, name := range l.users[:min(len(l.users), 1)] {
			c.admin.Do(t, "POST", "/users", body{"username": name, "email": "x@load.example", "password": apptest.Password}).Want(409)
		}
	}
}

// TestMovesWithoutRegions: on a deployment without further settings, a tenant moves to any
// region, also to the one that it is in; its purge leaves nothing.
func TestMovesWithoutRegions(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		c := found(t, s, body{"name": "Mover"})
		apptest.Activate(t, c.admin, "open", "production", "package p\n\nallow := true\n", nil)
		ask := body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}
		for n, draft := range []body{
			{"region": "eu-west-1", "migrate_data": true, "maintenance_window": "2024-02-01T02:00:00Z"},
			{"region": "eu-west-1"},
			{"region": "us-east-1"},
		} {
			began := deploy(t, s, c, draft)
			if began.Progress.Database == "completed" || began.Progress.DNS != "pending" || began.Progress.SSL != "pending" || began.Estimated == "" {
				t.Errorf("it began as %+v", began)
			}
			d := ended(t, s, c, began.ID)
			if d.Status != "completed" || d.Region != draft["region"] || d.CompletedAt == nil || d.StartedAt == "" || d.NewDomain == nil || *d.NewDomain == "" || d.Progress.DNS != "completed" {
				t.Errorf("to %v it ended as %+v (%v)", draft["region"], d, d.Reason)
			}
			if got := c.key.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got != "PERMIT" {
				t.Errorf("after the move to %v: %v", draft["region"], got)
			}
			c.admin.Do(t, "POST", "/users", body{"username": fmt.Sprint("ann", n), "email": fmt.Sprint("ann", n, "@example.com"), "password": apptest.Password}).Want(201)
			if total := c.admin.Do(t, "GET", "/users?limit=1", nil).Want(200).Get("total"); total.(float64) < float64(n+1) {
				t.Errorf("%v people after the move to %v", total, draft["region"])
			}
		}
		if got := c.admin.Do(t, "GET", c.at(""), nil).Want(200).Get("region"); got != "us-east-1" {
			t.Errorf("the tenant is in %v", got)
		}
		s.Admin.Do(t, "POST", c.at("/deploy"), body{"region": "mars-1"}).Want(422)
		s.Admin.Do(t, "DELETE", c.at("?hard_delete=true"), nil).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			files, err := filepath.Glob(filepath.Join(s.Dir, "own-regions", "*", c.id+".*"))
			if err != nil || len(files) > 0 {
				return fmt.Errorf("the purge left %v (%v)", files, err)
			}
			return nil
		})
	})
}

// TestMovesThroughKills: a server that is killed in any phase of a move goes on after its next
// start, and has everything that was acknowledged.
func TestMovesThroughKills(t *testing.T) {
	setting, _ := regions(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := found(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", "package p\n\nallow := true\n", nil)
	for n, phase := range []string{"copying", "catching_up", "paused", "done"} {
		to := []string{serverRegion, fileRegion}[n%2]
		l := startLoad(t, c, phase, true)
		apptest.Eventually(t, time.Minute, func() error {
			if l.decisions.Load() < 30 {
				return fmt.Errorf("no load yet")
			}
			return nil
		})
		began := deploy(t, s, c, body{"region": to})
		order := []string{"waiting", "copying", "catching_up", "paused", "switched", "done"}
		at := began.Phase
		for slices.Index(order, at) < slices.Index(order, phase) {
			at, _ = s.Admin.Do(t, "GET", c.at("/deployments/"+began.ID), nil).Want(200).Get("phase").(string)
		}
		s.Kill()
		t.Logf("killed in the phase %s", at)
		s.Start()
		if d := ended(t, s, c, began.ID); d.Status != "completed" {
			t.Errorf("killed in the phase %s, the deployment ended as %+v", at, d)
		}
		l.stop()
		l.complete(t, s, c)
		if ok := c.admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); ok != true {
			t.Errorf("the audit chain is broken")
		}
		if n := c.admin.Do(t, "GET", "/audit/events?type=TENANT_DEPLOYED&limit=1000", nil).Want(200).Get("events"); len(n.([]any)) != slices.Index([]string{"copying", "catching_up", "paused", "done"}, phase)+1 {
			t.Errorf("the log tells of the moves so: %v", n)
		}
	}
}

// TestMoveToARegionThatIsDown: the move fails with a reason, and the tenant is as it was.
func TestMoveToARegionThatIsDown(t *testing.T) {
	setting, dir := regions(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := found(t, s, body{"name": "Mover", "region": serverRegion})
	if err := os.RemoveAll(filepath.Join(dir, fileRegion)); err != nil {
		t.Fatal(err)
	}
	if r := s.Admin.Do(t, "POST", c.at("/deploy"), body{"region": "eu-north-1"}).Want(422); !strings.Contains(string(r.Body), "/region") {
		t.Errorf("a region that is not served: %s", r.Body)
	}
	c.admin.Do(t, "POST", c.at("/deploy"), body{"region": fileRegion}).Want(403)
	d := ended(t, s, c, deploy(t, s, c, body{"region": fileRegion}).ID)
	if d.Status != "failed" || d.Reason == nil || *d.Reason != "the store does not answer" || d.Progress.Database != "failed" {
		t.Errorf("it ended as %+v (%v)", d, d.Reason)
	}
	c.admin.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@example.com", "password": apptest.Password}).Want(201)
	if got := c.admin.Do(t, "GET", c.at("/deployments"), nil).Want(200).Get("total"); got != 1.0 {
		t.Errorf("%v deployments", got)
	}
}

// TestMoveWithoutData: the tenant starts empty, its credentials end, and its controls no
// longer decide, also in a server that had them in memory.
func TestMoveWithoutData(t *testing.T) {
	setting, _ := regions(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := found(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", "package p\n\nallow := true\n", nil)
	ask := body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}
	platform := s.Admin.With("X-Tenant-ID", c.id)
	if got := platform.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got != "PERMIT" {
		t.Errorf("before: %v", got)
	}
	d := ended(t, s, c, deploy(t, s, c, body{"region": serverRegion, "migrate_data": false}).ID)
	if d.Status != "completed" {
		t.Fatalf("it ended as %+v", d)
	}
	apptest.Eventually(t, time.Minute, func() error {
		if got := platform.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got == "PERMIT" {
			return fmt.Errorf("a control that is gone decides")
		}
		if res, err := c.key.Try("GET", "/policies", nil); err != nil || res.Status != 401 {
			return fmt.Errorf("a key that is gone works: %v %s", err, answerOf(res))
		}
		if res, err := c.admin.Try("GET", "/policies", nil); err != nil || res.Status != 401 {
			return fmt.Errorf("a session that is gone works: %v %s", err, answerOf(res))
		}
		return nil
	})
	if n := platform.Do(t, "GET", "/policies", nil).Want(200).Get("total"); n != 0.0 {
		t.Errorf("%v controls", n)
	}
	platform.Do(t, "POST", "/users", body{"username": "root", "email": "root@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
}
