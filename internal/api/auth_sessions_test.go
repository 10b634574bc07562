package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const sameOriginHeader = "Sec-Fetch-Site"

// browser sends a request like a page of our own origin, and returns the body and the
// cookies that the answer sets.
func (w *town) browser(want int, method, path, body, cookie string, more ...string) (map[string]any, []*http.Cookie) {
	w.t.Helper()
	c := resttest.Call{Method: method, Path: "/api/v1" + path, Body: body, Headers: append([]string{sameOriginHeader, "same-origin", "User-Agent", "Mozilla/5.0 (X11; Linux) Firefox/140.0"}, more...)}
	if cookie != "" {
		c.Headers = append(c.Headers, "Cookie", "gatehouse="+cookie)
	}
	rec := w.Do(w.t, c.Request())
	if rec.Code != want {
		w.t.Errorf("%s %s = %d, want %d: %s", method, path, rec.Code, want, rec.Body)
	}
	out := map[string]any{}
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
			w.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	return out, rec.Result().Cookies()
}

// signIn signs the administrator in with a browser.
func (w *town) signIn() (cookie string, session map[string]any) {
	w.t.Helper()
	session, cookies := w.browser(200, "POST", "/auth/sessions", `{"username":"admin","password":"`+adminPassword+`"}`, "")
	if len(cookies) != 1 {
		w.t.Fatalf("the sign-in sets the cookies %v, want one", cookies)
	}
	return cookies[0].Value, session
}

// TestBrowserSession: a browser signs in, lists and ends sessions, and signs out with a cookie.
func TestBrowserSession(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		w := newTown(t, c)
		session, cookies := w.browser(200, "POST", "/auth/sessions", `{"username":"admin","password":"`+adminPassword+`"}`, "")
		if len(cookies) != 1 {
			t.Fatalf("the sign-in sets the cookies %v, want one", cookies)
		}
		set := cookies[0]
		if set.Name != "gatehouse" || !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.Secure || set.Path != "/" || set.Domain != "" || set.MaxAge != int(12*time.Hour/time.Second) {
			t.Errorf("cookie of the sign-in = %+v", set)
		}
		text, _ := json.Marshal(session)
		if strings.Contains(string(text), set.Value) || session["kind"] != "browser" || session["current"] != true || session["device"] != "Firefox on Linux" {
			t.Errorf("session of the sign-in = %s", text)
		}
		w.browser(401, "POST", "/auth/sessions", `{"username":"admin","password":"not it"}`, "")
		me, _ := w.browser(200, "GET", "/auth/me", "", set.Value)
		if me["username"] != "admin" || me["kind"] != "user" {
			t.Errorf("GET /auth/me = %v, want the user admin", me)
		}
		list, _ := w.browser(200, "GET", "/auth/sessions", "", set.Value)
		if got, ok := list["sessions"].([]any); !ok || len(got) != 2 { // the other is that of the fixture's token
			t.Fatalf("GET /auth/sessions = %v, want 2", list)
		}
		w.browser(404, "DELETE", "/auth/sessions/unknown", "", set.Value)
		other, info := w.signIn()
		w.browser(204, "DELETE", "/auth/sessions/"+info["id"].(string), "", set.Value)
		w.browser(401, "GET", "/auth/me", "", other)
		if ended, _ := w.browser(200, "DELETE", "/auth/sessions", "", set.Value); ended["ended"] != 1.0 {
			t.Errorf("DELETE /auth/sessions = %v, want 1 ended", ended)
		}
		w.as(w.admin, 401, "GET", "/auth/me", "")
		_, cookies = w.browser(200, "POST", "/auth/logout", "", set.Value)
		if len(cookies) != 1 || cookies[0].Name != "gatehouse" || cookies[0].MaxAge >= 0 || cookies[0].Value != "" {
			t.Errorf("the sign-out sets the cookies %v, want one that removes it", cookies)
		}
		w.browser(401, "GET", "/auth/me", "", set.Value)
	})
}

// TestSignInAnew: a new sign-in ends the browser's earlier session.
func TestSignInAnew(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	first, _ := w.signIn()
	_, cookies := w.browser(200, "POST", "/auth/sessions", `{"username":"admin","password":"`+adminPassword+`"}`, first)
	w.browser(401, "GET", "/auth/me", "", first)
	w.browser(200, "GET", "/auth/me", "", cookies[0].Value)
}

// TestHeaderBeforeCookie: a credential in a header counts instead of the cookie that the
// browser adds.
func TestHeaderBeforeCookie(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	cookie, _ := w.signIn()
	w.browser(401, "GET", "/auth/me", "", cookie, "X-API-Key", "nonsense")
	w.browser(401, "GET", "/auth/me", "", cookie, "Authorization", "Bearer nonsense")
	me, _ := w.browser(200, "GET", "/auth/me", "", "nonsense", "Authorization", "Bearer "+w.admin)
	if me["username"] != "admin" {
		t.Errorf("GET /auth/me = %v, want admin", me)
	}
	// With a credential in a header, a request may come from any origin.
	w.as(w.admin, 200, "GET", "/auth/me", "", sameOriginHeader, "cross-site", "Cookie", "gatehouse="+cookie)
}

// TestCrossOrigin: with a cookie, requests from pages of another origin are refused, for
// each method and each path. Without any header by which a browser names the origin, changes
// are refused.
func TestCrossOrigin(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	cookie, _ := w.signIn()
	for _, tc := range []struct {
		what    string
		headers []string
		// read and change say whether a GET and a change are accepted.
		read, change bool
	}{
		{"own page", []string{sameOriginHeader, "same-origin"}, true, true},
		{"own page without TLS", []string{"Origin", "http://example.com"}, true, true},
		{"address bar", []string{sameOriginHeader, "none"}, true, false},
		{"no header", nil, true, false},
		{"another site", []string{sameOriginHeader, "cross-site"}, false, false},
		{"a sibling subdomain", []string{sameOriginHeader, "same-site"}, false, false},
		{"several values", []string{sameOriginHeader, "same-origin", sameOriginHeader, "cross-site"}, false, false},
		{"empty", []string{sameOriginHeader, ""}, false, false},
		{"another origin", []string{"Origin", "http://evil.example"}, false, false},
		{"another port", []string{"Origin", "http://example.com:81"}, false, false},
		{"no origin", []string{"Origin", "null"}, false, false},
		{"another scheme", []string{"Origin", "file://example.com"}, false, false},
		{"origin and more", []string{"Origin", "http://example.com.evil.example"}, false, false},
		{"both headers", []string{sameOriginHeader, "cross-site", "Origin", "http://example.com"}, false, false},
		{"an address, not an origin", []string{"Origin", "http://example.com/path"}, false, false},
		{"an origin with a user", []string{"Origin", "http://evil.example@example.com"}, false, false},
		{"own host as a user", []string{"Origin", "http://example.com@evil.example"}, false, false},
		{"an origin with a query", []string{"Origin", "http://example.com?x"}, false, false},
		{"an origin without a scheme", []string{"Origin", "//example.com"}, false, false},
		{"several origins", []string{"Origin", "http://example.com", "Origin", "http://evil.example"}, false, false},
		{"an empty origin", []string{"Origin", ""}, false, false},
		{"in capitals", []string{sameOriginHeader, "Same-Origin"}, false, false},
		{"a list", []string{sameOriginHeader, "same-origin, cross-site"}, false, false},
		{"a forwarded host of a stranger", []string{"Origin", "http://evil.example", "X-Forwarded-Host", "evil.example"}, false, false},
		{"a referer alone", []string{"Referer", "http://example.com/"}, true, false},
	} {
		try := func(method, path, body string, headers ...string) int {
			all := slices.Concat(tc.headers, headers, []string{"Cookie", "gatehouse=" + cookie})
			return w.Do(t, resttest.Call{Method: method, Path: path, Body: body, Headers: all}.Request()).Code
		}
		want := func(what string, got int, through bool) {
			t.Helper()
			if (got != 403) != through {
				t.Errorf("%s from %s = %d, want accepted: %t", what, tc.what, got, through)
			}
		}
		want("read", try("GET", "/api/v1/auth/me", ""), tc.read)
		want("socket", try("GET", "/api/v1/auth/me", "", "Upgrade", "websocket"), tc.change)
		want("create", try("POST", "/api/v1/users", `{}`), tc.change)
		want("delete", try("DELETE", "/api/v1/users/nobody", ""), tc.change)
		want("put", try("PUT", "/api/v1/users/nobody", `{}`), tc.change)
		want("alias", try("POST", "/api/users", `{}`), tc.change)
		want("simple form", try("POST", "/api/v1/users", `a=b`, "Content-Type", "application/x-www-form-urlencoded"), tc.change)
		want("simple text", try("POST", "/api/v1/users", `{}`, "Content-Type", "text/plain"), tc.change)
		want("method override", try("POST", "/api/v1/users/nobody", `{}`, "X-HTTP-Method-Override", "DELETE"), true) // a path without POST: 405 for all
		want("sign in", try("POST", "/api/v1/auth/sessions", `{"username":"x","password":"y"}`), tc.change)
		want("redeem", try("POST", "/api/v1/auth/sessions/redeem", `{"link":"x"}`), tc.change)
	}
	w.browser(200, "GET", "/auth/me", "", cookie)
}

// TestCookieOverTLS: over TLS, the cookie is Secure and bound to the host, and the cookie
// without the prefix does not count. X-Forwarded-Proto of an untrusted peer is ignored.
func TestCookieOverTLS(t *testing.T) {
	towns := map[string]*town{}
	for _, public := range []string{"", "https://example.com", "https://other.example"} {
		towns[public] = newTown(t, dbtest.Open(t, dbtest.SQLite), func(s *Config) {
			s.Kit.TrustedProxies, s.PublicURL = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, public
			s.Kit.Console = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		})
	}
	for _, tc := range []struct {
		what, peer, proto, public string
		tls, secure               bool
	}{
		{"plain", "192.0.2.1:5", "", "", false, false},
		{"TLS", "192.0.2.1:5", "", "", true, true},
		{"trusted proxy", "10.1.2.3:5", "https", "", false, true},
		{"trusted proxy without TLS", "10.1.2.3:5", "http", "https://example.com", false, false},
		{"untrusted proxy", "192.0.2.1:5", "https", "", false, false},
		{"public address with https", "192.0.2.1:5", "", "https://example.com", false, true},
		{"public address of another host", "192.0.2.1:5", "", "https://other.example", false, false},
	} {
		w := towns[tc.public]
		var header http.Header
		send := func(method, path, body string, headers ...string) (int, []*http.Cookie) {
			req := resttest.Call{Method: method, Path: path, Body: body, Headers: append(headers, sameOriginHeader, "same-origin")}.Request()
			req.RemoteAddr = tc.peer
			if tc.proto != "" {
				req.Header.Set("X-Forwarded-Proto", tc.proto)
			}
			if tc.tls {
				req.TLS = &tls.ConnectionState{}
			}
			rec := w.Do(t, req)
			header = rec.Header()
			return rec.Code, rec.Result().Cookies()
		}
		if send("GET", "/policies", ""); (header.Get("Strict-Transport-Security") != "") != tc.secure {
			t.Errorf("%s: header of the console = %v, want HSTS: %t", tc.what, header, tc.secure)
		}
		_, cookies := send("POST", "/api/v1/auth/sessions", `{"username":"admin","password":"`+adminPassword+`"}`)
		if len(cookies) != 1 || cookies[0].Secure != tc.secure || (cookies[0].Name == "__Host-gatehouse") != tc.secure {
			t.Fatalf("%s: cookies = %v, want one that is secure: %t", tc.what, cookies, tc.secure)
		}
		other := map[string]string{"__Host-gatehouse": "gatehouse", "gatehouse": "__Host-gatehouse"}[cookies[0].Name]
		if code, _ := send("GET", "/api/v1/auth/me", "", "Cookie", cookies[0].Name+"="+cookies[0].Value); code != 200 {
			t.Errorf("%s: GET with the cookie = %d, want 200", tc.what, code)
		}
		// Over TLS, a page that was loaded without TLS has another origin.
		page := resttest.Call{Method: "GET", Path: "/api/v1/auth/me", Headers: []string{"Origin", "http://example.com", "Cookie", cookies[0].Name + "=" + cookies[0].Value}}.Request()
		page.RemoteAddr = tc.peer
		if tc.proto != "" {
			page.Header.Set("X-Forwarded-Proto", tc.proto)
		}
		if tc.tls {
			page.TLS = &tls.ConnectionState{}
		}
		if code := w.Do(t, page).Code; (code == 403) != tc.secure {
			t.Errorf("%s: GET from a page without TLS = %d, want 403: %t", tc.what, code, tc.secure)
		}
		if code, _ := send("GET", "/api/v1/auth/me", "", "Cookie", other+"="+cookies[0].Value); code != 401 {
			t.Errorf("%s: GET with the other name of the cookie = %d, want 401", tc.what, code)
		}
		if code, _ := send("GET", "/api/v1/auth/me", "", "Cookie", cookies[0].Name+"="+cookies[0].Value+"; "+cookies[0].Name+"=x"); code != 401 {
			t.Errorf("%s: GET with two cookies = %d, want 401", tc.what, code)
		}
	}
}

// TestLinkOverHTTP: a sign-in link works once, and only in a browser on this machine.
func TestLinkOverHTTP(t *testing.T) {
	w := newTown(t, dbtest.Open(t, dbtest.SQLite))
	secret, err := w.auth.Sessions.Link(context.Background(), scope.DefaultTenant, "admin", time.Minute)
	errtest.Must(t, err)
	at := func(w *town) func(peer string, headers ...string) int {
		return func(peer string, headers ...string) int {
			req := resttest.Call{Method: "POST", Path: "/api/v1/auth/sessions/redeem", Body: `{"link":"` + secret + `"}`, Headers: append(headers, sameOriginHeader, "same-origin")}.Request()
			req.RemoteAddr = peer
			return w.Do(t, req).Code
		}
	}
	redeem := at(w)
	if code := redeem("192.0.2.1:5"); code != 401 {
		t.Errorf("redeem from another machine = %d, want 401", code)
	}
	for _, name := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Real-IP", "Via",
		"True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X-Cluster-Client-IP",
	} {
		if code := redeem("127.0.0.1:5", name, "127.0.0.1"); code != 401 {
			t.Errorf("redeem through a proxy with %s = %d, want 401", name, code)
		}
	}
	if code := redeem("127.0.0.1:5"); code != 200 {
		t.Errorf("redeem from this machine = %d, want 200", code)
	}
	if code := redeem("127.0.0.1:5"); code != 401 {
		t.Errorf("redeem a second time = %d, want 401", code)
	}

	behind := newTown(t, dbtest.Open(t, dbtest.SQLite), func(s *Config) { s.Kit.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	if secret, err = behind.auth.Sessions.Link(context.Background(), scope.DefaultTenant, "admin", time.Minute); err != nil {
		t.Fatal(err)
	}
	redeem = at(behind)
	for _, headers := range [][]string{ // a proxy that names no client, or one on another machine
		{"X-Real-IP", "192.0.2.1"},
		{"Via", "1.1 proxy"},
		{"Forwarded", "for=192.0.2.1"},
		{"X-Forwarded-Host", "localhost"},
		{"X-Forwarded-For", ""},
		{"X-Forwarded-For", "unknown"},
		{"X-Forwarded-For", "192.0.2.1"},
		{"X-Forwarded-For", "127.0.0.1, 192.0.2.1"},
		{"X-Forwarded-For", "garbage, 127.0.0.1"},
	} {
		if code := redeem("127.0.0.1:5", headers...); code != 401 {
			t.Errorf("redeem through a trusted proxy with %q = %d, want 401", headers, code)
		}
	}
	if code := redeem("127.0.0.1:5", "X-Forwarded-For", "127.0.0.1"); code != 200 {
		t.Errorf("redeem from this machine through a trusted proxy = %d, want 200", code)
	}
}
