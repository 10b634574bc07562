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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// openPolicy permits everything.
const openPolicy = "package p\n\nallow := true\n"

// deployment has the members of a deployment that tests check.
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

// startMove starts to move a company.
func startMove(t testing.TB, s *apptest.Server, c company, draft body) deployment {
	t.Helper()
	var d deployment
	s.Admin.Do(t, "POST", c.path("/deploy"), draft).Want(202).Into(&d)
	if d.Status != "in_progress" || d.ID == "" {
		t.Fatalf("the deployment started as %+v, want in_progress with an id", d)
	}
	return d
}

// waitForMove waits for the end of a deployment.
func waitForMove(t testing.TB, s *apptest.Server, c company, id string) (d deployment) {
	t.Helper()
	apptest.Eventually(t, 3*time.Minute, func() error {
		s.Admin.Do(t, "GET", c.path("/deployments/"+id), nil).Want(200).Into(&d)
		if d.Status == "in_progress" {
			return fmt.Errorf("the deployment is in the phase %s", d.Phase)
		}
		return nil
	})
	return d
}

// load creates users and makes decisions until stop is called, and counts the successes. Any other
// answer is an error, unless mayFail is set.
type load struct {
	mu        sync.Mutex
	users     []string // the users that were created
	decisions atomic.Int64
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
					t.Errorf("POST /users during the move = %v %s, want 201", err, describe(res))
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
					t.Errorf("POST /decisions/evaluate during the move = %v %s, want 200", err, describe(res))
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { close(end); running.Wait() })
	t.Cleanup(l.stop)
	return l
}

// waitForDecisions waits until the load has made n decisions.
func (l *load) waitForDecisions(t testing.TB, n int64) {
	t.Helper()
	apptest.Eventually(t, time.Minute, func() error {
		if made := l.decisions.Load(); made < n {
			return fmt.Errorf("the load has made %d decisions, want %d", made, n)
		}
		return nil
	})
}

// describe returns the status and the body of an answer, if there is one.
func describe(r *apptest.Response) string {
	if r == nil {
		return "no answer"
	}
	return fmt.Sprintf("%d %s", r.Status, r.Body)
}

// wantComplete checks that a tenant has all users that were created and all decisions.
func (l *load) wantComplete(t testing.TB, s *apptest.Server, c company) {
	t.Helper()
	have := map[string]bool{}
	for skip := 0; ; skip += 1000 {
		var page struct{ Users []struct{ Username string } }
		c.admin.Do(t, "GET", fmt.Sprintf("/users?limit=1000&skip=%d", skip), nil).Want(200).Into(&page)
		for _, u := range page.Users {
			if have[u.Username] {
				t.Errorf("GET /users lists %s twice", u.Username)
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
		t.Errorf("%d of %d acknowledged writes are lost, want none", lost, len(l.users))
	}
	apptest.Eventually(t, time.Minute, func() error {
		n, _ := c.admin.Do(t, "GET", "/decisions/audit?limit=1", nil).Want(200).Get("total").(float64)
		if int64(n) < l.decisions.Load() {
			return fmt.Errorf("the decision log has %v decisions, want %d", n, l.decisions.Load())
		}
		return nil
	})
}

// TestMovesUnderLoad checks that a tenant that moves between stores of both kinds during use loses
// no acknowledged write and no decision, keeps the chains of its logs, and continues its ids.
func TestMovesUnderLoad(t *testing.T) {
	setting, dir := regionSetting(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting, "GATEHOUSE_DEPLOY_KEEP=0s", "GATEHOUSE_BASE_DOMAIN=gate.test")
	c := newCompany(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", openPolicy, nil)
	for n, to := range []string{serverRegion, fileRegion, serverRegion, fileRegion} {
		l := startLoad(t, c, fmt.Sprint("to-", to, n), false)
		l.waitForDecisions(t, 50)
		began := startMove(t, s, c, body{"region": to})
		s.Admin.Do(t, "POST", c.path("/deploy"), body{"region": to}).ExpectError("a second deployment", 409, "deployment_in_progress")
		d := waitForMove(t, s, c, began.ID)
		if d.Status != "completed" || d.Phase != "done" || d.Progress.Database != "completed" || d.Progress.DNS != "completed" || d.Progress.SSL != "completed" || d.CompletedAt == nil || d.NewDomain == nil || *d.NewDomain != c.id+".gate.test" || d.Rows == 0 {
			t.Errorf("the deployment ended as %+v (%s), want completed", d, reasonOf(d))
		}
		t.Logf("to %s: %d rows, %d changes, a pause of %d ms", to, d.Rows, d.Changes, d.Pause)
		l.stop()
		l.wantComplete(t, s, c)
		if got := c.admin.Do(t, "GET", c.path(""), nil).Want(200).Get("region"); got != to {
			t.Errorf("the tenant's region is %v, want %s", got, to)
		}
		verifyAudit(t, c)
		apptest.Eventually(t, time.Minute, func() error {
			files, err := filepath.Glob(filepath.Join(dir, fileRegion, c.id+".*db"))
			if there := len(files) == 1; err != nil || len(files) > 1 || there != (to == fileRegion) {
				return fmt.Errorf("the tenant in %s has the files %v (%v), want one in %s", to, files, err, fileRegion)
			}
			return nil
		})
		for _, name := range l.users[:min(len(l.users), 1)] {
			c.admin.Do(t, "POST", "/users", body{"username": name, "email": "x@load.example", "password": apptest.Password}).Want(409)
		}
	}
}

// TestMovesWithoutRegions checks that on a deployment without settings for regions, a tenant moves
// to any region, also to its own, and that its purge leaves nothing.
func TestMovesWithoutRegions(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		c := newCompany(t, s, body{"name": "Mover"})
		apptest.Activate(t, c.admin, "open", "production", openPolicy, nil)
		ask := body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}
		for n, draft := range []body{
			{"region": "eu-west-1", "migrate_data": true, "maintenance_window": "2024-02-01T02:00:00Z"},
			{"region": "eu-west-1"},
			{"region": "us-east-1"},
		} {
			began := startMove(t, s, c, draft)
			if began.Progress.Database == "completed" || began.Progress.DNS != "pending" || began.Progress.SSL != "pending" || began.Estimated == "" {
				t.Errorf("the deployment started as %+v, want DNS and SSL pending", began)
			}
			d := waitForMove(t, s, c, began.ID)
			if d.Status != "completed" || d.Region != draft["region"] || d.CompletedAt == nil || d.StartedAt == "" || d.NewDomain == nil || *d.NewDomain == "" || d.Progress.DNS != "completed" {
				t.Errorf("the deployment to %v ended as %+v (%s), want completed", draft["region"], d, reasonOf(d))
			}
			if got := c.key.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got != "PERMIT" {
				t.Errorf("the decision after the move to %v = %v, want PERMIT", draft["region"], got)
			}
			c.admin.Do(t, "POST", "/users", body{"username": fmt.Sprint("ann", n), "email": fmt.Sprint("ann", n, "@example.com"), "password": apptest.Password}).Want(201)
			if total := c.admin.Do(t, "GET", "/users?limit=1", nil).Want(200).Get("total"); total.(float64) < float64(n+1) {
				t.Errorf("the tenant has %v people after the move to %v, want at least %d", total, draft["region"], n+1)
			}
		}
		if got := c.admin.Do(t, "GET", c.path(""), nil).Want(200).Get("region"); got != "us-east-1" {
			t.Errorf("the tenant's region is %v, want us-east-1", got)
		}
		s.Admin.Do(t, "POST", c.path("/deploy"), body{"region": "mars-1"}).Want(422)
		s.Admin.Do(t, "DELETE", c.path("?hard_delete=true"), nil).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			files, err := filepath.Glob(filepath.Join(s.Dir, "own-regions", "*", c.id+".*"))
			if err != nil || len(files) > 0 {
				return fmt.Errorf("the purge left the files %v (%v)", files, err)
			}
			return nil
		})
	})
}

// TestMovesThroughKills checks that a server that is killed in any phase of a move continues it
// after its next start, and has everything that it acknowledged.
func TestMovesThroughKills(t *testing.T) {
	setting, _ := regionSetting(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := newCompany(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", openPolicy, nil)
	phases := []string{"copying", "catching_up", "paused", "done"}
	for n, phase := range phases {
		to := []string{serverRegion, fileRegion}[n%2]
		l := startLoad(t, c, phase, true)
		l.waitForDecisions(t, 30)
		began := startMove(t, s, c, body{"region": to})
		order := []string{"waiting", "copying", "catching_up", "paused", "switched", "done"}
		at := began.Phase
		for slices.Index(order, at) < slices.Index(order, phase) {
			at, _ = s.Admin.Do(t, "GET", c.path("/deployments/"+began.ID), nil).Want(200).Get("phase").(string)
		}
		s.Kill()
		t.Logf("killed in the phase %s", at)
		s.Start()
		if d := waitForMove(t, s, c, began.ID); d.Status != "completed" {
			t.Errorf("the deployment, killed in the phase %s, ended as %+v, want completed", at, d)
		}
		l.stop()
		l.wantComplete(t, s, c)
		verifyAudit(t, c)
		if moves := c.admin.Do(t, "GET", "/audit/events?type=TENANT_DEPLOYED&limit=1000", nil).Want(200).Get("events"); len(moves.([]any)) != n+1 {
			t.Errorf("the audit has the moves %v, want %d", moves, n+1)
		}
	}
}

// verifyAudit checks the chain of the company's audit.
func verifyAudit(t *testing.T, c company) {
	t.Helper()
	if res := c.admin.Do(t, "GET", "/audit/verify", nil).Want(200); res.Get("valid") != true {
		t.Errorf("GET /audit/verify = %s, want it valid", res.Body)
	}
}

// reasonOf returns why a deployment failed.
func reasonOf(d deployment) string {
	if d.Reason == nil {
		return "no reason"
	}
	return *d.Reason
}

// TestMoveToARegionThatIsDown checks that a move to a region that is down fails with a reason and
// changes nothing.
func TestMoveToARegionThatIsDown(t *testing.T) {
	setting, dir := regionSetting(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := newCompany(t, s, body{"name": "Mover", "region": serverRegion})
	errtest.Must(t, os.RemoveAll(filepath.Join(dir, fileRegion)))
	if r := s.Admin.Do(t, "POST", c.path("/deploy"), body{"region": "eu-north-1"}).Want(422); !strings.Contains(string(r.Body), "/region") {
		t.Errorf("a move to an unknown region = %s, want the pointer /region", r.Body)
	}
	c.admin.Do(t, "POST", c.path("/deploy"), body{"region": fileRegion}).Want(403)
	d := waitForMove(t, s, c, startMove(t, s, c, body{"region": fileRegion}).ID)
	if d.Status != "failed" || d.Reason == nil || *d.Reason != "the store does not answer" || d.Progress.Database != "failed" {
		t.Errorf("the deployment ended as %+v (%s), want failed because the store does not answer", d, reasonOf(d))
	}
	c.admin.Do(t, "POST", "/users", body{"username": "ann", "email": "ann@example.com", "password": apptest.Password}).Want(201)
	if got := c.admin.Do(t, "GET", c.path("/deployments"), nil).Want(200).Get("total"); got != 1.0 {
		t.Errorf("the tenant has %v deployments, want 1", got)
	}
}

// TestMoveWithoutData checks that after a move without data the tenant is empty, its credentials
// have ended, and its controls no longer decide, also in a server that has them in memory.
func TestMoveWithoutData(t *testing.T) {
	setting, _ := regionSetting(t)
	s := apptest.StartServer(t, dbtest.SQLite, setting)
	c := newCompany(t, s, body{"name": "Mover", "region": fileRegion})
	apptest.Activate(t, c.admin, "open", "production", openPolicy, nil)
	ask := body{"user": body{"id": "ann"}, "resource": body{"type": "api", "path": "/x"}}
	platform := s.Admin.With("X-Tenant-ID", c.id)
	if got := platform.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got != "PERMIT" {
		t.Errorf("the decision before the move = %v, want PERMIT", got)
	}
	d := waitForMove(t, s, c, startMove(t, s, c, body{"region": serverRegion, "migrate_data": false}).ID)
	if d.Status != "completed" {
		t.Fatalf("the deployment ended as %+v, want completed", d)
	}
	apptest.Eventually(t, time.Minute, func() error {
		if got := platform.Do(t, "POST", "/decisions/evaluate", ask).Want(200).Get("decision"); got == "PERMIT" {
			return fmt.Errorf("the decision after the move = %v, want no permit", got)
		}
		if res, err := c.key.Try("GET", "/policies", nil); err != nil || res.Status != 401 {
			return fmt.Errorf("GET /policies with the old key = %v %s, want 401", err, describe(res))
		}
		if res, err := c.admin.Try("GET", "/policies", nil); err != nil || res.Status != 401 {
			return fmt.Errorf("GET /policies with the old session = %v %s, want 401", err, describe(res))
		}
		return nil
	})
	if n := platform.Do(t, "GET", "/policies", nil).Want(200).Get("total"); n != 0.0 {
		t.Errorf("the tenant has %v controls after the move, want none", n)
	}
	platform.Do(t, "POST", "/users", body{"username": "root", "email": "root@example.com", "password": apptest.Password, "roles": []string{"admin"}}).Want(201)
}
