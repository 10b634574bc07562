package gateways_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// program runs a gateway until the test ends, and waits until it listens.
func program(t *testing.T, addr string, cmd *exec.Cmd) {
	t.Helper()
	log := &apptest.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	errtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	apptest.Eventually(t, 30*time.Second, func() error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, log)
		}
		return c.Close()
	})
}

func nginx(t *testing.T, bouncer, app string) (url string) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		bin = "/usr/sbin/nginx"
	}
	if _, err := os.Stat(bin); err != nil {
		apptest.SkipMissing(t, "nginx is not installed")
	}
	dir, addr := t.TempDir(), freeport.Addr(t)
	server := strings.NewReplacer("bouncer:8080", bouncer, "app:3000", app, "listen 80;", "listen "+addr+";").Replace(apptest.Blocks(apptest.Page(t, "integrations/nginx.md"), "nginx")[0])
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	conf := filepath.Join(dir, "nginx.conf")
	whole := fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", dir, temp.String(), server)
	errtest.Must(t, os.WriteFile(conf, []byte(whole), 0o600))
	program(t, addr, exec.Command(bin, "-p", dir, "-c", conf, "-e", filepath.Join(dir, "error.log")))
	return "http://" + addr
}

func caddy(t *testing.T, bouncer, app string) (url string) {
	bin, err := filepath.Abs("../../../bin/caddy")
	errtest.Must(t, err)
	if _, err := os.Stat(bin); err != nil {
		apptest.SkipMissing(t, "there is no bin/caddy; make bin/caddy builds it")
	}
	dir, addr := t.TempDir(), freeport.Addr(t)
	site := strings.NewReplacer("bouncer:8080", bouncer, "app:3000", app, "shop.example {", "http://"+addr+" {").Replace(apptest.Blocks(apptest.Page(t, "integrations/caddy.md"), "caddyfile")[0])
	conf := filepath.Join(dir, "Caddyfile")
	errtest.Must(t, os.WriteFile(conf, []byte("{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n}\n"+site), 0o600))
	cmd := exec.Command(bin, "run", "--config", conf, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	program(t, addr, cmd)
	return "http://" + addr
}

func traefik(t *testing.T, bouncer, app string) (url string) {
	return startTraefik(t, bouncer, app, func(static string) string { return static })
}

func startTraefik(t *testing.T, bouncer, app string, edit func(static string) string) (url string) {
	bin, err := filepath.Abs("../../../bin/traefik")
	errtest.Must(t, err)
	if _, err := os.Stat(bin); err != nil {
		apptest.SkipMissing(t, "there is no bin/traefik; make bin/traefik builds it")
	}
	dir, addr := t.TempDir(), freeport.Addr(t)
	shown := apptest.Blocks(apptest.Page(t, "integrations/traefik.md"), "yaml")
	dynamic := strings.NewReplacer("bouncer:8080", bouncer, "app:3000", app, "Host(`shop.example`)", "PathPrefix(`/`)").Replace(shown[0])
	static := strings.NewReplacer(`":80"`, `"`+addr+`"`, "/etc/traefik", dir).Replace(edit(shown[1]))
	for name, text := range map[string]string{"gatehouse.yaml": dynamic, "traefik.yaml": static} {
		errtest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cmd := exec.Command(bin, "--configFile="+filepath.Join(dir, "traefik.yaml"))
	cmd.Dir = dir
	program(t, addr, cmd)
	url = "http://" + addr
	// It listens before it has read who stands behind.
	apptest.Eventually(t, 30*time.Second, func() error {
		if res := (&apptest.Client{Base: url}).Do(t, "GET", "/open", nil); res.Status != 200 {
			return fmt.Errorf("Traefik = %d, want 200", res.Status)
		}
		return nil
	})
	return url
}

// gateways are the proxies whose pages have a configuration for forward-auth.
var gateways = map[string]func(t *testing.T, bouncer, app string) string{"nginx": nginx, "caddy": caddy, "traefik": traefik}

// TestGateways runs the unchanged configurations of the pages in a real nginx, Caddy and Traefik,
// with a real bouncer.
func TestGateways(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app, is := s.Admin, apptest.NewBackend(t, nil), apptest.NewIssuer(t)
	apptest.Enforce(t, a, "sandbox")
	apptest.Activate(t, a, "administrators", "sandbox", `package admin

allow if not startswith(input.resource.path, "/admin")

allow if "admin" in input.user.roles

mask contains "ssn" if startswith(input.resource.path, "/masked")
`, nil)
	b := s.Bouncer(t, a, body{"name": "gateway", "environment": "sandbox", "configuration": body{"identity": is.Identity()}}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/admin", 401, 5*time.Second)
	bouncer := strings.TrimPrefix(b.URL, "http://")
	admin, staff := is.Token(t, "ann", "admin"), is.Token(t, "ben", "staff")
	forged := map[string]string{
		"X-Auth-Request-User": "root", "X-Auth-Request-Groups": "admin", "X-Auth-Request-Email": "root@app.test", "X-Original-URI": "/open", "X-Original-Method": "GET",
		"X-Original-URL": "http://app.test/open", "X-Forwarded-Uri": "/open", "X-Forwarded-Method": "GET", "X-Forwarded-Host": "open.test", "x_auth_request_user": "root",
	}
	for name, start := range gateways {
		t.Run(name, func(t *testing.T) {
			url := start(t, bouncer, app.Addr)
			app.Take()
			ids := map[string]string{} // decision ids and what they must be in the log
			for i, c := range []struct {
				what, method, path, token string
				header                    map[string]string
				status                    int
			}{
				{"open", "GET", "/open?x=1", "", nil, 200},
				{"denied", "GET", "/admin", "", nil, 401},
				{"denied, with a body", "POST", "/admin", "", nil, 401},
				{"an administrator", "GET", "/admin/x?y=1", admin, nil, 200},
				{"an administrator's body", "PUT", "/admin/x", admin, nil, 200},
				{"no administrator", "GET", "/admin", staff, nil, 403},
				{"a bad token", "GET", "/open", "bad", nil, 401},
				{"forged", "GET", "/admin", "", forged, 401},
				{"forged, and open", "GET", "/open", "", forged, 200},
				{"dot segments", "GET", "/open/../admin", "", nil, 403},
				{"encoded", "GET", "/%61dmin", "", nil, 401},
				{"two slashes", "GET", "//admin", "", nil, 403},
				{"an encoded slash", "GET", "/open%2f..%2fadmin", "", nil, 403},
				{"what must be masked", "GET", "/masked", "", nil, 403},
			} {
				client := &apptest.Client{Base: url}
				id := fmt.Sprintf("%s-%d", name, i)
				client = client.With("X-Request-Id", id)
				for k, v := range c.header {
					client = client.With(k, v)
				}
				if c.token != "" {
					client.Bearer = c.token
				}
				var sent any
				if c.method != "GET" {
					sent = []byte(`{"a":1}`)
				}
				res := client.Do(t, c.method, c.path, sent)
				seen := app.Take()
				odd := map[string]bool{"dot segments": true, "two slashes": true, "an encoded slash": true}
				refused := res.Status >= 400 && res.Status < 500 // which of them refuses an odd path, proxy or bouncer, differs
				if res.Status != c.status && (c.status == 200 || !refused || !odd[c.what]) || (len(seen) == 1) != (res.Status == 200) {
					t.Errorf("%s = %d, want %d, with %d requests at the application: %s", c.what, res.Status, c.status, len(seen), res.Body)
				}
				if got := res.Header.Get("X-Decision-Id"); got != "" {
					ids[got] = c.what
				} else if c.status == 200 && name == "nginx" {
					t.Errorf("%s: the answer has no X-Decision-Id", c.what)
				}
				for _, r := range seen {
					user := strings.Join(append(r.Header["X-Auth-Request-User"], r.Header["X_auth_request_user"]...), ",")
					if want := map[bool]string{true: "ann"}[c.token == admin]; user != want || r.RequestURI != c.path {
						t.Errorf("%s: the application gets %s as %q, want %s as %q", c.what, r.RequestURI, user, c.path, want)
					}
					if groups := r.Header.Get("X-Auth-Request-Groups"); strings.Contains(groups, "admin") && c.token != admin {
						t.Errorf("%s: the application gets the groups %q, want no administrators", c.what, groups)
					}
				}
			}
			apptest.Eventually(t, 30*time.Second, func() error {
				log := map[string]apptest.LogEntry{}
				for _, e := range apptest.DecisionLog(t, a, "sandbox") {
					log[e.ID] = e
				}
				for id, what := range ids {
					if log[id].BouncerID != b.ID {
						return fmt.Errorf("%s: the decision log lacks %s", what, id)
					}
				}
				return nil
			})
		})
	}
}
