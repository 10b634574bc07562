package delivery_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// revisions returns the revisions that a sandbox bouncer runs and refuses, and whether it has
// converged.
func revisions(t *testing.T, a *apptest.Client, id int64) (active, refused int64, converged bool) {
	t.Helper()
	var out struct {
		Bouncers []struct {
			ID        int64 `json:"bouncer_id"`
			Active    int64 `json:"active_revision"`
			Refused   int64 `json:"refused_revision"`
			Converged bool  `json:"converged"`
		} `json:"bouncers"`
	}
	a.Do(t, "GET", "/deployments/revisions/sandbox", nil).Want(200).Into(&out)
	for _, b := range out.Bouncers {
		if b.ID == id {
			return b.Active, b.Refused, b.Converged
		}
	}
	t.Fatalf("GET /deployments/revisions/sandbox has the bouncers %+v, want %d", out, id)
	return 0, 0, false
}

// TestBouncerVerifiesBundles (F10) checks that with the key of its registration, our bouncer accepts
// only signed bundles, from the server and from its disk. The last good bundle stays, and the control
// plane shows the refusal.
func TestBouncerVerifiesBundles(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	policy := apptest.Activate(t, a, "closed", "sandbox", closed, nil)
	apptest.Enforce(t, a, "sandbox")
	signed, plain := body{"configuration": body{"signing": "signed"}}, body{"configuration": body{}}
	made := a.Do(t, "POST", "/bouncers", body{"name": "edge", "hostname": "edge.example", "port": 8443, "environment": "sandbox", "configuration": body{"signing": "signed"}}).Want(201)
	key, _ := made.Get("verify_key").(string)
	token := made.Text("token")
	config, _ := made.Get("opa_config").(string)
	if !strings.HasPrefix(key, "-----BEGIN PUBLIC KEY-----\n") || !strings.Contains(config, "GATEHOUSE_BOUNCER_VERIFY_KEY") {
		t.Fatalf("POST /bouncers has the key %q and the configuration\n%s\nwant a public key and its setting", key, config)
	}
	if unsigned := a.Do(t, "POST", "/bouncers", body{"name": "plain", "hostname": "edge.example", "port": 8443, "environment": "sandbox"}).Want(201); unsigned.Get("verify_key") != nil {
		t.Errorf("a bouncer without signing gets the key %v, want none", unsigned.Get("verify_key"))
	}
	b := &apptest.BouncerProcess{ID: made.ID(), Token: token, Dir: t.TempDir()}
	at := fmt.Sprint("/bouncers/", b.ID)
	file := filepath.Join(t.TempDir(), "bundles.pem")
	errtest.Must(t, os.WriteFile(file, []byte(key), 0o600))
	waitForRevisions := func(what string, active, refused, converged bool) {
		t.Helper()
		apptest.Eventually(t, 30*time.Second, func() error {
			if r, no, ok := revisions(t, a, b.ID); r != 0 != active || no != 0 != refused || ok != converged {
				return fmt.Errorf("%s: the bouncer runs %d, refuses %d, converged %t, want some %t, some %t, %t", what, r, no, ok, active, refused, converged)
			}
			return nil
		})
	}

	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+file)
	through := &apptest.Client{Base: b.URL}
	apptest.WaitForStatus(t, through, "/x", 403, 10*time.Second)
	waitForRevisions("signed", true, false, true)

	// An unsigned bundle has a control that permits.
	a.Do(t, "PUT", at, plain).Want(200)
	a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": opened}).Want(200)
	waitForBouncer(t, a, b.ID, "degraded", "")
	apptest.WaitForOutput(t, b.Process, "the bundle's signature is not valid", 10*time.Second)
	waitForRevisions("unsigned", true, true, false)
	apptest.WaitForStatus(t, through, "/x", 403, time.Second)
	a.Do(t, "PUT", at, signed).Want(200)
	apptest.WaitForStatus(t, through, "/x", 200, 10*time.Second)
	waitForRevisions("signed again", true, false, true)
	waitForBouncer(t, a, b.ID, "connected", "")
	b.Process.Stop()

	// With another key, the bouncer accepts neither the disk's nor the server's bundle.
	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+strings.ReplaceAll(newPublicKey(t), "\n", `\n`))
	if got := (&apptest.Client{Base: b.URL}).Do(t, "GET", "/x", nil); got.Status != 503 || !strings.Contains(string(got.Body), "no_bundle") {
		t.Errorf("GET /x with another key = %d %s, want 503 no_bundle", got.Status, got.Body)
	}
	waitForRevisions("another key", false, true, false)
	b.Process.Stop()
	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+key)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/x", 200, 10*time.Second)
	waitForRevisions("the right key", true, false, true)

	for _, bad := range []string{"no such file", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", app.Addr} {
		cmd := exec.CommandContext(t.Context(), apptest.Binary(t), "bouncer")
		cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+s.URL, "GATEHOUSE_BOUNCER_TOKEN="+token, "GATEHOUSE_BOUNCER_DATA_DIR="+t.TempDir(), "GATEHOUSE_BOUNCER_VERIFY_KEY="+bad)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "GATEHOUSE_BOUNCER_VERIFY_KEY") {
			t.Errorf("gatehouse bouncer with the key %q = %v, want an error that names the setting\n%s", bad, err, out)
		}
	}
}

// TestHeadAndHosts (B4) checks that a control on GET also applies to HEAD, at the server and at the
// bouncer, and that no spelling of a host avoids its control.
func TestHeadAndHosts(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	id := a.Do(t, "POST", "/resources", body{"name": "app", "type": "api", "original_host": "app.example", "path": "/**", "methods": []string{"GET"}, "environment": "sandbox"}).Want(201).ID()
	apptest.Activate(t, a, "closed", "sandbox", closed, body{"resource_id": id})
	apptest.Enforce(t, a, "sandbox")
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox", "resource_ids": []int64{id}}, app.Addr)
	for method, want := range map[string]string{"GET": "closed 403", "HEAD": "closed 403", "POST": "No active control applies to the request 200"} {
		r := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"action": body{"method": method}, "resource": body{"host": "app.example", "path": "/x"}}).Want(200)
		req, err := http.NewRequestWithContext(t.Context(), method, b.URL+"/x", nil)
		errtest.Must(t, err)
		req.Host = "app.example"
		res, err := http.DefaultClient.Do(req)
		errtest.Must(t, err)
		res.Body.Close()
		if got := fmt.Sprint(r.Get("reason"), " ", res.StatusCode); got != want {
			t.Errorf("%s /x = %s, want %s", method, got, want)
		}
	}
	app.Take()
	for host, want := range map[string]string{
		"app.example": "403", "APP.EXAMPLE.": "403", "app.example:8081": "403", "other.example": "200",
		"app.example:80:90": "400", "app..example": "400", "[app.example]": "400", "app.example]": "400", ":80": "400",
		"app.example:x": "400", ":-1": "400", ":99999999": "400", "app.example:0": "400",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
		errtest.Must(t, err)
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		out, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(out), "HTTP/1.1 "+want) {
			t.Errorf("GET /x with the Host %q = %.60q, want %s", host, out, want)
		}
	}
	if seen := app.Take(); len(seen) != 1 || seen[0].Host != "other.example" {
		t.Errorf("the application got %d requests, want the one for another host", len(seen))
	}
}

// TestAuditShowsReasons checks that the audit shows the server's reason for a bouncer's decision and
// the refusal of a token, and that cache_ttl limits the cache.
func TestAuditShowsReasons(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app, is := s.Admin, apptest.NewBackend(t, nil), apptest.NewIssuer(t)
	resources := []int64{}
	for name, source := range map[string]string{"opened": opened, "crashing": crashing, "hanging": hanging} {
		id := a.Do(t, "POST", "/resources", body{"name": name, "type": "api", "path": "/" + name, "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, a, name, "sandbox", source, body{"resource_id": id})
		resources = append(resources, id)
	}
	apptest.Enforce(t, a, "sandbox")
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox", "resource_ids": resources, "configuration": body{"identity": is.Identity()}}, app.Addr, "GATEHOUSE_BOUNCER_METRICS_LISTEN=same")
	through := &apptest.Client{Base: b.URL}
	expired := through.With("Authorization", "Bearer "+is.With(t, "ann", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}))
	for name, c := range map[string]*apptest.Client{"hanging": through, "crashing": through, "opened": expired} {
		want := map[string]int{"opened": 401}[name]
		if want == 0 {
			want = 503
		}
		if got := c.With("X-Request-Id", name).Do(t, "GET", "/"+name, nil).Want(want); name != "opened" && got.Get("message") != "the request could not be decided" {
			t.Errorf("GET /%s = %s, want no reason for the caller", name, got.Body)
		}
	}
	reason := func(name string) any {
		return a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"action": body{"method": "GET", "name": "read"}, "resource": body{"path": "/" + name}}).Want(200).Get("reason")
	}
	wants := map[string]any{"hanging": "evaluation_limit", "crashing": reason("crashing"), "opened": "the bearer token is not valid"}
	if reason("hanging") != wants["hanging"] {
		t.Errorf("the server's reason for hanging is %v, want %v", reason("hanging"), wants["hanging"])
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		log := apptest.ByRequest(apptest.DecisionLog(t, a, "sandbox"))
		for name, want := range wants {
			if len(log[name]) != 1 {
				return fmt.Errorf("the decision log has %s as %+v, want one entry", name, log[name])
			}
			if e := log[name][0]; e.Reason != want || e.Effect != "DENY" || e.Decision != "DENY" {
				t.Errorf("the decision log has %s as %+v, want DENY with the reason %v", name, e, want)
			}
		}
		return nil
	})

	hits := func() string {
		t.Helper()
		for line := range strings.Lines(string(through.Do(t, "GET", "/_bouncer/metrics", nil).Want(200).Body)) {
			if rest, ok := strings.CutPrefix(line, "gatehouse_bouncer_decision_cache_hits_total "); ok {
				return strings.TrimSpace(rest)
			}
		}
		t.Fatal("the metrics lack the cache's hits")
		return ""
	}
	ask := func() (before, after string) {
		before = hits()
		for range 3 {
			through.Do(t, "GET", "/opened", nil).Want(200)
		}
		return before, hits()
	}
	through.Do(t, "GET", "/opened", nil).Want(200)
	if before, after := ask(); before == after {
		t.Fatalf("the cache has %s hits before and after three equal requests, want more", before)
	}
	a.Do(t, "PUT", fmt.Sprint("/bouncers/", b.ID), body{"configuration": body{"identity": is.Identity(), "cache_ttl": "1ns"}}).Want(200)
	apptest.Eventually(t, 30*time.Second, func() error {
		if before, after := ask(); before != after {
			return fmt.Errorf("with cache_ttl 1ns, the cache's hits go from %s to %s, want no more", before, after)
		}
		return nil
	})
}

// TestApplicationDown checks that a bouncer's record soon shows that its application is down, and that
// it is back.
func TestApplicationDown(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := app.Listener.Addr().String()
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox"}, addr)
	waitForBouncer(t, a, b.ID, "connected", "")
	app.Close()
	(&apptest.Client{Base: b.URL}).Do(t, "GET", "/x", nil).Want(502)
	waitForBouncer(t, a, b.ID, "degraded", "it cannot reach its application") // before the next regular report
	if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID, "/health"), nil).Want(200).Get("target_app_reachable"); v != false {
		t.Errorf("target_app_reachable is %v, want false", v)
	}
	l, err := net.Listen("tcp", addr)
	errtest.Must(t, err)
	back := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
	back.Start()
	defer back.Close()
	waitForBouncer(t, a, b.ID, "connected", "")
}
