package faults_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// notBelow permits everything that is not below a path.
func notBelow(path string) string {
	return "package p\n\nallow if not startswith(input.resource.path, \"" + path + "\")\n"
}

// guarded returns a server with a bouncer that enforces: everything except /closed is permitted.
func guarded(t *testing.T, s *apptest.Server, members body) (b *apptest.BouncerProcess, app *apptest.Backend, policy int64) {
	t.Helper()
	app = apptest.NewBackend(t, nil)
	apptest.Enforce(t, s.Admin, "sandbox")
	policy = apptest.Activate(t, s.Admin, "not closed", "sandbox", notBelow("/closed"), nil)
	full := body{"name": "guard", "environment": "sandbox"}
	maps.Copy(full, members)
	b = s.Bouncer(t, s.Admin, full, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/closed", 403, 5*time.Second)
	return b, app, policy
}

// decides checks a bouncer's decisions a number of times.
func decides(t *testing.T, b *apptest.BouncerProcess, open, closed string) {
	t.Helper()
	c := &apptest.Client{Base: b.URL}
	for range 20 {
		c.Do(t, "GET", open, nil).Want(200)
		c.Do(t, "GET", closed, nil).Want(403)
	}
}

// TestCutOff (F8) checks that a bouncer without its server decides as before, also after its own
// restart, that it is up to date within ten seconds when the server is back, and that the log has
// all decisions.
func TestCutOff(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	b, _, policy := guarded(t, s, nil)
	decides(t, b, "/open", "/closed")
	s.Kill()
	decides(t, b, "/open", "/closed")
	b.Kill()
	b.Start() // which waits until it is ready
	decides(t, b, "/open", "/closed")
	b.Stop()
	b.Start()
	decides(t, b, "/open", "/closed")
	s.Start()
	began := time.Now()
	s.Admin.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": notBelow("/open")}).Want(200)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/open", 403, 10*time.Second)
	t.Logf("back in touch and up to date %s after the server", time.Since(began).Round(time.Millisecond))
	decides(t, b, "/closed", "/open")
	apptest.Eventually(t, 15*time.Second, func() error {
		n := map[string]int{}
		for _, e := range apptest.DecisionLog(t, s.Admin, "sandbox") {
			n[e.Decision]++
		}
		if n["PERMIT"] < 100 || n["DENY"] < 100 {
			return fmt.Errorf("the log has %v, want at least 100 of each", n)
		}
		return nil
	})
}

// TestMaxStale (F8) checks that with configuration.max_stale, a bouncer that is cut off for longer
// refuses and says so, and that a connected one is never stale.
func TestMaxStale(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	b, _, _ := guarded(t, s, body{"configuration": body{"max_stale": "3s"}})
	c := &apptest.Client{Base: b.URL}
	began := time.Now()
	apptest.Eventually(t, 20*time.Second, func() error {
		c.Do(t, "GET", "/open", nil).Want(200)
		if held := time.Since(began); held < 5*time.Second {
			return fmt.Errorf("the bouncer has held for %s, want 5 s", held)
		}
		return nil
	})
	s.Kill()
	res := apptest.WaitForStatus(t, c, "/open", 503, 10*time.Second)
	if !strings.Contains(string(res.Body), "policy_stale") {
		t.Errorf("the stale bouncer answers %s, want policy_stale", res.Body)
	}
	apptest.WaitForStatus(t, c, "/_bouncer/ready", 503, time.Second)
	s.Start()
	apptest.WaitForStatus(t, c, "/open", 200, 10*time.Second)
	apptest.WaitForStatus(t, c, "/_bouncer/ready", 200, time.Second)
}

// TestFirstStart (F9) checks that without a bundle and a server a bouncer refuses everything and is
// not ready. With shadow as its start, it forwards and logs everything. With the server it decides.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	app := apptest.NewBackend(t, nil)
	apptest.Enforce(t, s.Admin, "sandbox")
	apptest.Activate(t, s.Admin, "not closed", "sandbox", notBelow("/closed"), nil)
	strict := s.Register(t, s.Admin, body{"name": "strict", "environment": "sandbox"}, app.Addr)
	lenient := s.Register(t, s.Admin, body{"name": "lenient", "environment": "sandbox"}, app.Addr)
	s.Kill()
	strict.StartDetached(t, s.URL, app.Addr)
	lenient.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_INITIAL_MODE=shadow")
	c := &apptest.Client{Base: strict.URL}
	for i := range 200 {
		res := c.Do(t, "GET", fmt.Sprint("/open/", i), nil).Want(503)
		if res.Get("error") != "no_bundle" {
			t.Fatalf("the answer without a bundle = %s, want no_bundle", res.Body)
		}
	}
	forward := c.With("X-Forwarded-Method", "GET").With("X-Forwarded-Host", "a.test").With("X-Forwarded-Uri", "/open")
	if res := forward.Do(t, "GET", "/_bouncer/auth", nil).Want(403); res.Header.Get("X-Gatehouse-Status") != "no_bundle" {
		t.Errorf("forward-auth without a bundle has the headers %v, want no_bundle", res.Header)
	}
	if seen := app.Take(); len(seen) != 0 {
		t.Errorf("%d requests reached the application, want none", len(seen))
	}
	lent := (&apptest.Client{Base: lenient.URL}).With("X-Request-Id", "lent")
	lent.Do(t, "GET", "/closed", nil).Want(200)
	for _, b := range []*apptest.BouncerProcess{strict, lenient} {
		(&apptest.Client{Base: b.URL}).Do(t, "GET", "/_bouncer/ready", nil).Want(503)
	}
	s.Start()
	for _, b := range []*apptest.BouncerProcess{strict, lenient} {
		apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/_bouncer/ready", 200, 10*time.Second)
		decides(t, b, "/open", "/closed")
	}
	apptest.Eventually(t, 15*time.Second, func() error {
		if e := apptest.ByRequest(apptest.DecisionLog(t, s.Admin, "sandbox"))["lent"]; len(e) != 1 || e[0].Effect != "SHADOW_WOULD_DENY" || e[0].Error == "" {
			return fmt.Errorf("the log has %+v, want one SHADOW_WOULD_DENY with an error", e)
		}
		return nil
	})
}

// TestDiskCopy (F10) checks that a bouncer does not use a damaged bundle from its disk: it fetches
// another one, and refuses everything until then.
func TestDiskCopy(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	b, app, _ := guarded(t, s, nil)
	other := s.Bouncer(t, s.Admin, body{"name": "other", "environment": "sandbox"}, app.Addr)
	other.Stop()
	file := filepath.Join(b.Dir, "last-good.bundle")
	good, err := os.ReadFile(file)
	errtest.Must(t, err)
	foreign, err := os.ReadFile(filepath.Join(other.Dir, "last-good.bundle"))
	errtest.Must(t, err)
	flipped := func(at int) []byte {
		out := append([]byte(nil), good...)
		out[at] ^= 0x10
		return out
	}
	for name, data := range map[string][]byte{
		"first byte": flipped(0), "in the middle": flipped(len(good) / 2), "last byte": flipped(len(good) - 1),
		"cut": good[:len(good)-7], "more": append(append([]byte(nil), good...), 0), "empty": {}, "another bouncer's": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			b.Kill()
			errtest.Must(t, os.WriteFile(file, data, 0o600))
			b.Start()
			apptest.Eventually(t, 10*time.Second, func() error { // a foreign copy is known as such once the server was asked
				mended, err := os.ReadFile(file)
				if err != nil || len(mended) < len(good)/2 || string(mended) == string(data) {
					return fmt.Errorf("the copy on the disk is not repaired: %d bytes, %v", len(mended), err)
				}
				return nil
			})
			apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/closed", 403, 10*time.Second)
			decides(t, b, "/open", "/closed")
		})
	}
	b.Kill()
	s.Kill()
	errtest.Must(t, os.WriteFile(file, flipped(len(good)/3), 0o600))
	cut := &apptest.BouncerProcess{ID: b.ID, Token: b.Token, Dir: b.Dir}
	cut.StartDetached(t, s.URL, app.Addr)
	app.Take()
	(&apptest.Client{Base: cut.URL}).Do(t, "GET", "/_bouncer/ready", nil).Want(503)
	(&apptest.Client{Base: cut.URL}).Do(t, "GET", "/open", nil).Want(503)
	if seen := app.Take(); len(seen) != 0 {
		t.Errorf("%d requests passed with a damaged bundle, want none", len(seen))
	}
}

// TestDecisionsSurvive checks that after kills of the bouncer and the server under load, the log
// has each answered request once.
func TestDecisionsSurvive(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		b, _, _ := guarded(t, s, nil)
		var mu sync.Mutex
		answered := map[string]bool{}
		var count atomic.Int64
		var load sync.WaitGroup
		stop := make(chan struct{})
		for w := range 4 {
			load.Go(func() {
				c := &apptest.Client{Base: b.URL}
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					id, path := fmt.Sprintf("w%d-%d", w, i), "/open"
					if i%8 == 0 { // the log folds equal refusals beyond a thousand
						path = "/closed"
					}
					if _, err := c.With("X-Request-Id", id).Try("GET", path, nil); err != nil {
						continue // killed: whether it was decided on, nobody knows
					}
					mu.Lock()
					answered[id] = true
					mu.Unlock()
					count.Add(1)
				}
			})
		}
		more := func() {
			t.Helper()
			enough := count.Load() + 100
			apptest.Eventually(t, 20*time.Second, func() error {
				if n := count.Load(); n < enough {
					return fmt.Errorf("%d of %d requests are answered", n, enough)
				}
				return nil
			})
		}
		more()
		for range 3 {
			b.Kill()
			b.Start()
			more()
			s.Kill()
			more()
			b.Kill()
			s.Start()
			b.Start()
			more()
		}
		close(stop)
		load.Wait()
		apptest.Eventually(t, 30*time.Second, func() error {
			log := apptest.ByRequest(apptest.DecisionLog(t, s.Admin, "sandbox"))
			for id, entries := range log {
				if id != "" && len(entries) > 1 {
					t.Fatalf("the log has %s %d times, want once: %+v", id, len(entries), entries)
				}
			}
			missing := 0
			for id := range answered {
				if len(log[id]) == 0 {
					missing++
				}
			}
			if missing > 0 {
				return fmt.Errorf("the log lacks %d of %d answered requests", missing, len(answered))
			}
			return nil
		})
		t.Logf("%d requests were answered across nine kills; each is in the log once", len(answered))
		if v := s.Admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
			t.Errorf("the audit is not valid")
		}
	})
}

// TestCredentialEnds checks that a bouncer with a replaced token, a deleted registration or a
// suspended tenant gets nothing within five seconds, which shows on both sides, and that it goes on
// enforcing its bundle.
func TestCredentialEnds(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	b, app, policy := guarded(t, s, nil)
	at := fmt.Sprint("/bouncers/", b.ID)
	var issued struct {
		Token string `json:"token"`
	}
	s.Admin.Do(t, "POST", at+"/rotate-token", body{}).Want(200, 201).Into(&issued)
	apptest.WaitForOutput(t, b.Process, "the control plane answered 401", 5*time.Second)
	apptest.Eventually(t, 5*time.Second, func() error {
		if r := s.Admin.Do(t, "GET", at, nil).Want(200); r.Get("status") != "degraded" {
			return fmt.Errorf("the bouncer = %s, want it degraded", r.Body)
		}
		return nil
	})
	s.Admin.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": notBelow("/open")}).Want(200)
	decides(t, b, "/open", "/closed")
	// With its new token, the bouncer is connected and up to date again.
	b.Kill()
	fresh := &apptest.BouncerProcess{ID: b.ID, Token: issued.Token, Dir: b.Dir}
	fresh.StartDetached(t, s.URL, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: fresh.URL}, "/open", 403, 5*time.Second)
	apptest.Eventually(t, 5*time.Second, func() error {
		if r := s.Admin.Do(t, "GET", at, nil).Want(200); r.Get("status") != "connected" {
			return fmt.Errorf("the bouncer = %s, want it connected", r.Body)
		}
		return nil
	})
	decides(t, fresh, "/closed", "/open")
	s.Admin.Do(t, "DELETE", at, nil).Want(200)
	apptest.WaitForOutput(t, fresh.Process, "the control plane answered 401", 5*time.Second)
	decides(t, fresh, "/closed", "/open")
	// A new registration on the same disk is another bouncer with its own data.
	again := s.Register(t, s.Admin, body{"name": "again", "environment": "sandbox"}, app.Addr)
	fresh.Kill()
	again.Dir = b.Dir
	again.StartDetached(t, s.URL, app.Addr)
	apptest.Eventually(t, 5*time.Second, func() error {
		if r := s.Admin.Do(t, "GET", fmt.Sprint("/bouncers/", again.ID), nil).Want(200); r.Get("status") != "connected" {
			return fmt.Errorf("the new bouncer = %s, want it connected\n%s", r.Body, again.Log)
		}
		return nil
	})
	apptest.WaitForStatus(t, &apptest.Client{Base: again.URL}, "/open", 403, 5*time.Second)
	decides(t, again, "/closed", "/open")
}

// TestSuspendedTenant checks that the bouncers of a suspended tenant get nothing within five
// seconds, enforce their bundles, and connect again with the tenant.
func TestSuspendedTenant(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	inside := *s
	inside.Admin = s.Admin.With("X-Tenant-ID", "t2")
	b, _, policy := guarded(t, &inside, nil)
	s.Admin.Do(t, "PUT", "/tenants/t2", body{"status": "suspended"}).Want(200)
	apptest.WaitForOutput(t, b.Process, "the control plane answered 40", 5*time.Second)
	decides(t, b, "/open", "/closed")
	s.Admin.Do(t, "PUT", "/tenants/t2", body{"status": "active"}).Want(200)
	inside.Admin.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": notBelow("/open")}).Want(200)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/open", 403, 10*time.Second)
}
