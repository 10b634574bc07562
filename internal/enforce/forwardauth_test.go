package enforce

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// forwardHead sets the fields with which a proxy names the request that it asks about.
func forwardHead(method, host, uri string) func(*http.Request) {
	return func(r *http.Request) {
		for k, v := range map[string]string{"X-Forwarded-Method": method, "X-Forwarded-Host": host, "X-Forwarded-Uri": uri} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
	}
}

// originalURL sets the headers that ingress-nginx sends.
func originalURL(address string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("X-Original-Method", "GET")
		r.Header.Set("X-Original-URL", address)
	}
}

// both calls edit and sets one more header.
func both(edit func(*http.Request), name, value string) func(*http.Request) {
	return func(r *http.Request) {
		edit(r)
		r.Header.Set(name, value)
	}
}

// Forward-auth answers with the decision on the request that a trusted proxy names, whichever family
// of fields it uses. A request that two readers may understand differently is denied.
func TestForwardAuth(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	app := newApplication(t, nil)
	identity := is.config()
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": identity}, controls: []control{{id: 1, source: adminOnly}}}, trustLoopback)
	untrusting := start(t, p, "", nil).at(t, 1)
	wantAnswer(t, "without an application", fetch(t, "GET", untrusting.url+"/open", nil), 404)
	admin, staff := is.token(t, "ed", nil), is.token(t, "ed", map[string]any{"groups": []string{"staff"}})
	setting := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			forwardHead("GET", "app.test", "/open")(r)
			r.Header.Set(name, value)
		}
	}
	auth := func(token string, also func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			also(r)
		}
	}
	for name, tc := range map[string]struct {
		edit     func(*http.Request)
		want     int
		decision string
		status   string
	}{
		"open":                    {forwardHead("GET", "app.test", "/open"), 200, "PERMIT", "ok"},
		"denied":                  {forwardHead("GET", "app.test", "/admin"), 401, "DENY", "authentication_required"},
		"administrator":           {auth(admin, forwardHead("GET", "app.test", "/admin?x=1")), 200, "PERMIT", "ok"},
		"no administrator":        {auth(staff, forwardHead("GET", "app.test", "/admin")), 403, "DENY", "access_denied"},
		"bad token":               {auth("bad", forwardHead("GET", "app.test", "/admin")), 401, "DENY", "invalid_token"},
		"another way to write it": {forwardHead("GET", "app.test", "/%61dmin/"), 401, "DENY", "authentication_required"},
		"dot segments":            {forwardHead("GET", "app.test", "/admin/../open"), 403, "DENY", "bad_request"},
		"empty segments":          {forwardHead("GET", "app.test", "//open"), 403, "DENY", "bad_request"},
		"a slash at the end":      {forwardHead("GET", "app.test", "/open/"), 200, "PERMIT", "ok"},
		"ambiguous path":          {forwardHead("GET", "app.test", "/x/..;/admin"), 403, "DENY", "bad_request"},
		"ambiguous query":         {forwardHead("GET", "app.test", "/x?a;b"), 403, "DENY", "bad_request"},
		"TRACE":                   {forwardHead("TRACE", "app.test", "/x"), 403, "DENY", "method_not_allowed"},
		"no target":               {forwardHead("GET", "app.test", ""), 403, "DENY", "bad_request"},
		"no method":               {forwardHead("", "app.test", "/open"), 403, "DENY", "bad_request"},
		"no host":                 {forwardHead("GET", "", "/open"), 403, "DENY", "bad_request"},
		"nothing":                 {forwardHead("", "", ""), 403, "DENY", "bad_request"},
		"forged identity headers": {func(r *http.Request) {
			forwardHead("GET", "app.test", "/admin")(r)
			r.Header.Set("X-Auth-Request-User", "root")
			r.Header.Set("X-Auth-Request-Groups", "admin")
		}, 401, "DENY", "authentication_required"},
		"the other family": {func(r *http.Request) {
			r.Header.Set("X-Original-Method", "GET")
			r.Header.Set("X-Original-Host", "app.test")
			r.Header.Set("X-Original-URI", "/open")
		}, 200, "PERMIT", "ok"},
		"both and equal":     {setting("X-Original-URI", "/open"), 200, "PERMIT", "ok"},
		"both and different": {setting("X-Original-URI", "/admin"), 403, "DENY", "bad_request"},
		"two methods":        {setting("X-Original-Method", "DELETE"), 403, "DENY", "bad_request"},
		"the same header twice": {func(r *http.Request) {
			forwardHead("GET", "app.test", "/open")(r)
			r.Header.Add("X-Forwarded-Uri", "/admin")
		}, 403, "DENY", "bad_request"},
		"a whole address": {func(r *http.Request) {
			r.Header.Set("X-Original-Method", "GET")
			r.Header.Set("X-Original-URL", "https://app.test/admin")
		}, 401, "DENY", "authentication_required"},
		"a whole address, open":           {originalURL("https://app.test/open?x=https://b/admin"), 200, "PERMIT", "ok"},
		"a host in the scheme, open":      {originalURL("http://h/open"), 200, "PERMIT", "ok"},
		"a host in the scheme, closed":    {originalURL("https://ttps/admin"), 401, "DENY", "authentication_required"},
		"a host like the scheme":          {originalURL("http://http/open"), 200, "PERMIT", "ok"},
		"an address literal":              {originalURL("http://[fe80::1]:8080/open"), 200, "PERMIT", "ok"},
		"an address literal with a zone":  {originalURL("http://[fe80::1%25en0]/open"), 403, "DENY", "bad_request"},
		"an escaped host":                 {originalURL("https://%61bc.test/admin"), 403, "DENY", "bad_request"},
		"an escaped host, without a path": {originalURL("http://%61b.test"), 403, "DENY", "bad_request"},
		"a user before the host":          {originalURL("https://app.test@b/open"), 403, "DENY", "bad_request"},
		"an address without a path":       {originalURL("https://app.test"), 403, "DENY", "bad_request"},
		"an address without a scheme":     {originalURL("//app.test/open"), 403, "DENY", "bad_request"},
		"an address that is a path":       {originalURL("/open"), 403, "DENY", "bad_request"},
		"an address and another host":     {both(originalURL("https://app.test/open"), "X-Original-Host", "b.test"), 403, "DENY", "bad_request"},
		"an address and another target":   {both(originalURL("https://app.test/open"), "X-Original-URI", "/admin"), 403, "DENY", "bad_request"},
		"an address and the same host":    {both(originalURL("https://app.test/open"), "X-Original-Host", "APP.test"), 200, "PERMIT", "ok"},
		"an address and the same target":  {both(originalURL("https://app.test/open"), "X-Original-URI", "/open"), 200, "PERMIT", "ok"},
	} {
		got := fetch(t, "GET", b.url+"/_bouncer/auth?ignored;=%zz", tc.edit)
		if got.status != tc.want || got.header.Get("X-Decision") != tc.decision || got.header.Get("X-Gatehouse-Status") != tc.status {
			t.Errorf("%s: %d %v, want %d %s %s", name, got.status, got.header, tc.want, tc.decision, tc.status)
		}
		if got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the answer may be cached", name)
		}
		if name == "administrator" && (got.header.Get("X-Auth-Request-User") != "ann" || got.header.Get("X-Decision-Id") == "") {
			t.Errorf("the proxy gets %v, want the user and the decision", got.header)
		}
		wantVerdict(t, name+", from an untrusted proxy", fetch(t, "GET", untrusting.url+"/_bouncer/auth", tc.edit), 403, "untrusted_proxy")
	}
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application, want none", n)
	}
}

// A proxy that asks by forward-auth sends the answer itself, so what must be masked is denied.
func TestForwardAuthCannotMaskAndObeysShadow(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, enforcing(maskSSN), trustLoopback)
	wantVerdict(t, "a mask", fetch(t, "GET", b.url+"/_bouncer/auth", forwardHead("GET", "a", "/x")), 403, "mask_impossible")
	p.deploy(b, policySet{revision: 2, mode: "shadow", controls: []control{{id: 1, source: denyAll}}})
	if got := fetch(t, "GET", b.url+"/_bouncer/auth", forwardHead("GET", "a", "/x")); got.status != 200 || got.header.Get("X-Decision") != "SHADOW_WOULD_DENY" {
		t.Errorf("in shadow: %s %v, want 200 SHADOW_WOULD_DENY", got, got.header)
	}
}

// TestNginx runs nginx with auth_request, as docs/integrations/nginx.md configures it.
func TestNginx(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("nginx")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			apptest.SkipMissing(t, "nginx is not installed")
		}
	}
	is := newIssuer(t)
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": is.config()}, controls: []control{{id: 1, source: adminOnly}}}, trustLoopback)
	url := startNginx(t, bin, strings.TrimPrefix(b.url, "http://"), strings.TrimPrefix(app.URL, "http://"))

	admin := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+is.token(t, "rsa", nil)) }
	forge := func(r *http.Request) {
		r.Header.Set("X-Auth-Request-User", "root")
		r.Header.Set("X-Auth-Request-Groups", "admin")
		r.Header.Set("X-Original-URI", "/open")
		r.Header.Set("X-Forwarded-Uri", "/open")
		r.Header.Set("X-Forwarded-Method", "GET")
		r.Header.Set("X-Forwarded-Host", "open.test")
	}
	for _, tc := range []struct {
		name, method, path string
		edit               func(*http.Request)
		want               int
	}{
		{"open", "GET", "/open", nil, 200},
		{"denied", "GET", "/admin", nil, 401},
		{"denied, with a body", "POST", "/admin", nil, 401},
		{"administrator", "GET", "/admin/x?y=1", admin, 200},
		{"bad token", "GET", "/open", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		{"forged", "GET", "/admin", forge, 401},
		{"forged, open path", "GET", "/open", forge, 200},
		{"dot segments", "GET", "/open/../admin", nil, 403},
		{"encoded", "GET", "/%61dmin", nil, 401},
		{"two slashes", "GET", "//admin", nil, 403},
		{"encoded slash", "GET", "/open%2f..%2fadmin", nil, 403},
		{"backslash", "GET", "/open/..%5cadmin", nil, 403},
		{"parameter segment", "GET", "/open/..;/admin", nil, 403},
	} {
		app.take()
		got := fetch(t, tc.method, url+tc.path, tc.edit)
		wantAnswer(t, tc.name, got, tc.want)
		seen := app.take()
		if (len(seen) == 1) != (tc.want == 200) {
			t.Errorf("%s: %d requests reached the application", tc.name, len(seen))
		}
		if lines := got.header.Values("WWW-Authenticate"); (len(lines) == 1) != (tc.want == 401) {
			t.Errorf("%s: nginx sends the challenges %q, want one with 401 alone", tc.name, lines)
		}
		if tc.want != 200 {
			var why struct{ Error, Message string }
			if err := json.Unmarshal([]byte(got.body), &why); err != nil || why.Error == "" || why.Message == "" || got.header.Get("X-Gatehouse-Status") != why.Error {
				t.Errorf("%s: %s %v, want the reason in body and header: %v", tc.name, got, got.header, err)
			}
		}
		for _, r := range seen {
			if u := r.Header.Get("X-Auth-Request-User"); u == "root" || tc.name == "administrator" && u != "ann" {
				t.Errorf("%s: the application gets the user %q", tc.name, u)
			}
		}
	}
}

// The page about nginx shows the configuration that TestNginx uses.
func TestNginxPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/integrations/nginx.md")
	errtest.Must(t, err)
	conf, err := os.ReadFile("testdata/nginx.conf")
	errtest.Must(t, err)
	if !strings.Contains(string(page), string(conf)) {
		t.Error("docs/integrations/nginx.md does not contain testdata/nginx.conf unchanged")
	}
}

// startNginx runs nginx on a free port with the configuration of the page.
func startNginx(t *testing.T, bin, bouncer, app string) string {
	t.Helper()
	dir := t.TempDir()
	addr := freeport.Addr(t)
	conf, err := os.ReadFile("testdata/nginx.conf")
	errtest.Must(t, err)
	server := strings.NewReplacer("bouncer:8080", bouncer, "app:3000", app, "listen 80;", "listen "+addr+";").Replace(string(conf))
	whole := fmt.Sprintf("daemon off;\nmaster_process off;\npid %[1]s/pid;\nerror_log %[1]s/error.log;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path %[1]s/b;\nproxy_temp_path %[1]s/p;\nfastcgi_temp_path %[1]s/f;\nuwsgi_temp_path %[1]s/u;\nscgi_temp_path %[1]s/s;\n%[2]s}\n", dir, server)
	file := filepath.Join(dir, "nginx.conf")
	errtest.Must(t, os.WriteFile(file, []byte(whole), 0o600))
	cmd := exec.Command(bin, "-p", dir, "-c", file, "-e", filepath.Join(dir, "error.log"))
	cmd.Stderr = os.Stderr
	errtest.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "nginx to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return "http://" + addr
}
