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
)

// refusedRevision is what the convergence says of a sandbox bouncer.
func refusedRevision(t *testing.T, a *apptest.Client, id int64) (active, refused int64, converged bool) {
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
	t.Fatalf("bouncer %d is not among %+v", id, out)
	return 0, 0, false
}

// TestBouncerVerifiesBundles (F10): with the key that registering answers with, our
// bouncer takes signed bundles alone; the last good one stays, the refusal shows,
// and what lies on the disk is held to the same key.
func TestBouncerVerifiesBundles(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	policy := apptest.Activate(t, a, "closed", "sandbox", closed, nil)
	apptest.Enforce(t, a, "sandbox")
	signed, plain := body{"configuration": body{"signing": "signed"}}, body{"configuration": body{}}
	made := a.Do(t, "POST", "/bouncers", body{"name": "edge", "hostname": "edge.example", "port": 8443, "environment": "sandbox", "configuration": body{"signing": "signed"}}).Want(201)
	key, _ := made.Get("verify_key").(string)
	token, _ := made.Get("token").(string)
	config, _ := made.Get("opa_config").(string)
	if !strings.HasPrefix(key, "-----BEGIN PUBLIC KEY-----\n") || !strings.Contains(config, "GATEHOUSE_BOUNCER_VERIFY_KEY") {
		t.Fatalf("registering answers with the key %q and the configuration\n%s", key, config)
	}
	if unsigned := a.Do(t, "POST", "/bouncers", body{"name": "plain", "hostname": "edge.example", "port": 8443, "environment": "sandbox"}).Want(201); unsigned.Get("verify_key") != nil {
		t.Errorf("a bouncer without signing is given the key %v", unsigned.Get("verify_key"))
	}
	b := &apptest.BouncerProcess{ID: made.ID(), Token: token, Dir: t.TempDir()}
	at := fmt.Sprint("/bouncers/", b.ID)
	file := filepath.Join(t.TempDir(), "bundles.pem")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	is := func(what string, active, refused, converged bool) {
		t.Helper()
		apptest.Eventually(t, 30*time.Second, func() error {
			if r, no, ok := refusedRevision(t, a, b.ID); r != 0 != active || no != 0 != refused || ok != converged {
				return fmt.Errorf("%s: it runs %d, refused %d, converged %t", what, r, no, ok)
			}
			return nil
		})
	}

	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+file)
	through := &apptest.Client{Base: b.URL}
	apptest.WaitForStatus(t, through, "/x", 403, 10*time.Second)
	is("signed", true, false, true)

	// The control opens, in a bundle that nobody signed.
	a.Do(t, "PUT", at, plain).Want(200)
	a.Do(t, "PUT", fmt.Sprint("/policies/", policy), body{"rego_code": opened}).Want(200)
	bouncerIs(t, a, b.ID, "degraded", "")
	apptest.WaitForOutput(t, b.Process, "the bundle's signature is not valid", 10*time.Second)
	is("unsigned", true, true, false)
	apptest.WaitForStatus(t, through, "/x", 403, time.Second)
	a.Do(t, "PUT", at, signed).Want(200)
	apptest.WaitForStatus(t, through, "/x", 200, 10*time.Second)
	is("signed again", true, false, true)
	bouncerIs(t, a, b.ID, "connected", "")
	b.Process.Stop()

	// Restarted with another key it takes neither the disk's nor the server's.
	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+strings.ReplaceAll(anotherKey(t), "\n", `\n`))
	if got := (&apptest.Client{Base: b.URL}).Do(t, "GET", "/x", nil); got.Status != 503 || !strings.Contains(string(got.Body), "no_bundle") {
		t.Errorf("with another key: %d %s", got.Status, got.Body)
	}
	is("another key", false, true, false)
	b.Process.Stop()
	b.StartDetached(t, s.URL, app.Addr, "GATEHOUSE_BOUNCER_VERIFY_KEY="+key)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/x", 200, 10*time.Second)
	is("the right key", true, false, true)

	for _, bad := range []string{"no such file", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", app.Addr} {
		cmd := exec.CommandContext(t.Context(), apptest.Binary(t), "bouncer")
		cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+s.URL, "GATEHOUSE_BOUNCER_TOKEN="+token, "GATEHOUSE_BOUNCER_DATA_DIR="+t.TempDir(), "GATEHOUSE_BOUNCER_VERIFY_KEY="+bad)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "GATEHOUSE_BOUNCER_VERIFY_KEY") {
			t.Errorf("started with the key %q: %v\n%s", bad, err, out)
		}
	}
}

// TestHeadAndHosts: a control on GET holds for HEAD, at the server and at the
// bouncer; a host that is written so that no control of it is found does not pass (B4).
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
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "app.example"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := fmt.Sprint(r.Get("reason"), " ", res.StatusCode); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
	app.Take()
	for host, want := range map[string]string{
		"app.example": "403", "APP.EXAMPLE.": "403", "app.example:8081": "403", "other.example": "200",
		"app.example:80:90": "400", "app..example": "400", "[app.example]": "400", "app.example]": "400", ":80": "400",
		"app.example:x": "400", ":-1": "400", ":99999999": "400", "app.example:0": "400",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		out, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(out), "HTTP/1.1 "+want) {
			t.Errorf("Host %q: %.60q, want %s", host, out, want)
		}
	}
	if seen := app.Take(); len(seen) != 1 || seen[0].Host != "other.example" {
		t.Errorf("the application saw %d requests, want the one for another host", len(seen))
	}
}

// TestAuditTellsWhy: the audit's reason of a decision at a bouncer is the server's
// own word for it, and a refused token is no ALLOW; cache_ttl bounds what is reused.
func TestAuditTellsWhy(t *testing.T) {
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
			t.Errorf("%s: the caller is told %s", name, got.Body)
		}
	}
	reason := func(name string) any {
		return a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"action": body{"method": "GET", "name": "read"}, "resource": body{"path": "/" + name}}).Want(200).Get("reason")
	}
	wants := map[string]any{"hanging": "evaluation_limit", "crashing": reason("crashing"), "opened": "the bearer token is not valid"}
	if reason("hanging") != wants["hanging"] {
		t.Errorf("the server's reason is %v", reason("hanging"))
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		log := apptest.ByRequest(apptest.DecisionLog(t, a, "sandbox"))
		for name, want := range wants {
			if len(log[name]) != 1 {
				return fmt.Errorf("%s is in the log as %+v", name, log[name])
			}
			if e := log[name][0]; e.Reason != want || e.Effect != "DENY" || e.Decision != "DENY" {
				t.Errorf("%s is in the log as %+v, want the reason %v", name, e, want)
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
		t.Fatal("no figure of the cache")
		return ""
	}
	ask := func() string {
		before := hits()
		for range 3 {
			through.Do(t, "GET", "/opened", nil).Want(200)
		}
		return before + " to " + hits()
	}
	through.Do(t, "GET", "/opened", nil).Want(200)
	if first := ask(); strings.Split(first, " to ")[0] == strings.Split(first, " to ")[1] {
		t.Fatalf("the cache has no hits: %s", first)
	}
	a.Do(t, "PUT", fmt.Sprint("/bouncers/", b.ID), body{"configuration": body{"identity": is.Identity(), "cache_ttl": "1ns"}}).Want(200)
	apptest.Eventually(t, 30*time.Second, func() error {
		if got := ask(); strings.Split(got, " to ")[0] != strings.Split(got, " to ")[1] {
			return fmt.Errorf("with cache_ttl 1ns, hits go from %s", got)
		}
		return nil
	})
}

// TestApplicationGone: the record says so within moments, and that it is back.
func TestApplicationGone(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a := s.Admin
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := app.Listener.Addr().String()
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox"}, addr)
	bouncerIs(t, a, b.ID, "connected", "")
	app.Close()
	(&apptest.Client{Base: b.URL}).Do(t, "GET", "/x", nil).Want(502)
	bouncerIs(t, a, b.ID, "degraded", "it cannot reach its application") // within ten seconds, not the next report in turn
	if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID, "/health"), nil).Want(200).Get("target_app_reachable"); v != false {
		t.Errorf("target_app_reachable is %v", v)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	back := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}}
	back.Start()
	defer back.Close()
	bouncerIs(t, a, b.ID, "connected", "")
}
