package enforce

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// pathForms are ways to write /admin/secret, or something near it. want is 403 if the form means the
// protected path, 400 if two servers may read it differently, and 0 if it is another path: that may
// pass, but only byte for byte as it was decided on.
var pathForms = []struct {
	target string
	want   int
}{
	{"/admin/secret", 403},
	{"//admin/secret", 403},
	{"///admin///secret", 403},
	{"/./admin/secret", 403},
	{"/admin/./secret", 403},
	{"/admin//./secret", 403},
	{"/admin/secret/", 403},
	{"/admin/secret//", 403},
	{"/admin/secret/.", 403},
	{"/admin/secret/./", 403},
	{"/admin/secret/x/..", 403},
	{"/x/../admin/secret", 403},
	{"/admin/x/../secret", 403},
	{"/a/b/../../admin/secret", 403},
	{"/../admin/secret", 403},
	{"/../../admin/secret", 403},
	{"/%61dmin/secret", 403},
	{"/adm%69n/secret", 403},
	{"/admin/%73ecret", 403},
	{"/%2e/admin/secret", 403},
	{"/x/%2e%2e/admin/secret", 403},
	{"/x/.%2e/admin/secret", 403},
	{"/x/%2E./admin/secret", 403},
	{"/%2E%2E/admin/secret", 403},
	{"/x/%2e%2e/%61dmin/secre%74", 403},
	{"/admin/secret?x=1", 403},
	{"/admin/secret?", 403},
	{"/admin/secret?/../../open", 403},
	{"http://app.test/admin/secret", 403},
	{"HTTP://app.test/admin/secret", 403},
	{"http://other.test//admin/secret", 403},
	{"/%61%64%6d%69%6e/%73%65%63%72%65%74", 403},

	{"/admin%2fsecret", 400},
	{"/admin%2Fsecret", 400},
	{"/%2fadmin/secret", 400},
	{"/x%2f..%2fadmin/secret", 400},
	{`/admin\secret`, 400},
	{`/\admin/secret`, 400},
	{"/admin%5csecret", 400},
	{"/x/..%5cadmin/secret", 400},
	{`/x/..\admin/secret`, 400},
	{"/x/..;/admin/secret", 400},
	{"/x/..;a=b/admin/secret", 400},
	{"/x/.;/admin/secret", 400},
	{"/x/%2e%2e;/admin/secret", 400},
	{"/x/..%3b/admin/secret", 400},
	{"/admin/secret%00", 400},
	{"/admin/secret%00.jpg", 400},
	{"/admin/secret#", 400},
	{"/admin/secret#/x", 400},
	{"/open#/../admin/secret", 400},
	{"/admin/\xc0\xaesecret", 400},
	{"/%c0%ae%c0%ae/admin/secret", 400},
	{"/admin/secret%ff", 400},
	{"/admin/secret%", 400},
	{"/admin/secret%2", 400},
	{"/admin/secret%zz", 400},
	{"/admin/secret%0a", 400},
	{"/admin/secret%0d%0aX:1", 400},
	{"/admin/secret%09", 400},
	{"/admin/secret%7f", 400},
	{"/admin/sec\x01ret", 400},
	{"/" + strings.Repeat(`"`, 4000), 400},
	{"/" + strings.Repeat("a", 9000), 400},
	{strings.Repeat("/a", 300), 400},
	{"admin/secret", 400},
	{"*", 400},
	{"/admin/secret%u0061", 400},
	{"ftp://app.test/admin/secret", 400},
	{"/admin/s\u00e9cret", 400},
	{`/open?x="`, 400},
	{"/open?x=<y>", 400},
	{"/open?x={y}", 400},
	{"/open?x=a|b^c`d", 400},
	{"/open?x=\u00e9", 400},
	{"/open?x=\x7f", 400},
	{`/open?x=\y`, 400},

	{"/ADMIN/secret", 0},
	{"/Admin/secret", 0},
	{"/admin/secret;v=1", 0},
	{"/admin;v=1/secret", 0},
	{"/admin/secret.json", 0},
	{"/%2561dmin/secret", 0},
	{"/admin/secret%20", 0},
	{"/adminx/secret", 0},
	{"/admin/%E2%80%AEsecret", 0},
	{"/open", 0},
	{"/open/", 0},
	{"/", 0},
	{"/...", 0},
	{"/open?a=b&c=d%20e", 0},
	{"/a%20b/c+d", 0},
	{"/~x/@y:z", 0},
	{"/.hidden/admin", 0},
	{"/a/..b/c", 0},
	{"/%7Euser", 0},
	{"http://app.test", 0},
	{"http://app.test?x=1", 0},
}

var parameters = regexp.MustCompile(`([^/]);[^/]*`)

// withoutParameters returns a path without the parameters of its segments.
func withoutParameters(path string) string { return parameters.ReplaceAllString(path, "$1") }

// pathReason permits all. Its reason is the path that it decided on.
const pathReason = "package path\n\nallow := true\n\nreason := input.resource.path\n"

// No form of a path passes a control on that path, and the application gets the path of the decision.
func TestPathForms(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{"exact": "/admin/secret", "prefix": "/admin/**", "glob": "/*/secret"}
	for kind, pattern := range kinds {
		t.Run(kind, func(t *testing.T) {
			app := newApplication(t, nil)
			p := newPlane(t)
			p.publish(policySet{
				revision: 1, mode: "enforce", controls: []control{{id: 1, source: denyAll, resource: 5}, {id: 2, source: pathReason}},
				resources: []target.Resource{{ID: 5, Type: "api", Path: pattern, Doc: valuetest.Decode(t, `{"id":5}`)}},
			})
			b := start(t, p, app.URL, nil).at(t, 1)
			var forwarded, refused int
			for _, f := range pathForms {
				app.take()
				out := sendRaw(t, b.url, "GET "+f.target+" HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n")
				status := rawStatus(out)
				seen := app.take()
				if f.want != 0 && status != f.want || f.want == 0 && status != 200 && status != 403 {
					t.Errorf("GET %q = %d, want %d", f.target, status, f.want)
				}
				if f.want != 400 {
					refused++
				}
				if (status == 200) != (len(seen) == 1) {
					t.Errorf("GET %q = %d, %d requests reached the application", f.target, status, len(seen))
				}
				if status != 200 {
					continue
				}
				forwarded++
				path, _, _ := strings.Cut(seen[0].RequestURI, "?")
				events := p.logged(refused)
				if decided := field(events[len(events)-1], "result", "reason"); decided != withoutParameters(path) {
					t.Errorf("GET %q was decided on %q and forwarded as %q, want the same", f.target, decided, path)
				}
			}
			if forwarded < 10 || len(pathForms) < 80 {
				t.Errorf("%d of %d forms were forwarded, want at least 10 of 80", forwarded, len(pathForms))
			}
		})
	}
}

// With keep_trailing_slash the application gets a final slash, and controls do not see it.
func TestTrailingSlashIsKeptOnRequest(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}, config: map[string]any{"keep_trailing_slash": true}}, nil)
	if got := fetch(t, "GET", b.url+"/docs//a/", nil); got.body != "GET /docs/a/" {
		t.Errorf("%s, want it forwarded as /docs/a/", got)
	}
	wantAnswer(t, "a denied path", fetch(t, "GET", b.url+"/admin/", nil), 403)
}

// A control sees every parameter that the application may see. A query that two readers may understand
// differently is refused.
func TestQueryForms(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: `package q

allow if not root

root if "root" in input.request.query.role
`}}}, nil)
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat("a=1&", n), "&") }
	for _, tc := range []struct {
		query string
		want  int
	}{
		{"role=user", 200},
		{"role=root", 403},
		{"role=user&role=root", 403},
		{"rol%65=roo%74", 403},
		{"x=1&role=root&y=2", 403},
		{"role=user;role=root", 400},
		{"role=%zz", 400},
		{"role=%", 400},
		{"role=%ff", 400},
		{many(10_000), 200},
		{many(10_001), 400},
		{many(10_000) + "&role=root", 400},
		{"", 200},
		{"a&b=&=c&&", 200},
		{"role=a%26role=root", 200},
		{"x=%E2%82%AC+y", 200},
	} {
		app.take()
		got := fetch(t, "GET", b.url+"/x?"+tc.query, nil)
		name := tc.query[:min(len(tc.query), 40)]
		wantAnswer(t, "?"+name, got, tc.want)
		if seen := app.take(); got.status == 200 && (len(seen) != 1 || seen[0].URL.RawQuery != tc.query) {
			t.Errorf("?%s: the application gets %v, want the query unchanged", name, seen)
		}
	}
}

// A method counts as it is sent: no header changes it, and methods that browsers must not send are
// refused.
func TestMethodForms(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: `package m

allow if input.action.name == "read"

allow if input.action.method == "PROPFIND"
`}}}, nil)
	for method, want := range map[string]int{
		"GET": 200, "HEAD": 200, "OPTIONS": 200, "PROPFIND": 200, "POST": 403, "PUT": 403, "PATCH": 403, "DELETE": 403,
		"TRACE": 405, "CONNECT": 405, "TRACK": 405, "get": 405, "Delete": 405, "PRI": 405,
	} {
		out := sendRaw(t, b.url, method+" /x HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nX-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n\r\n")
		if rawStatus(out) != want {
			t.Errorf("%s /x = %.40q, want %d", method, out, want)
		}
	}
	for _, r := range app.take() {
		if r.Header.Get("X-Http-Method-Override") != "" || r.Header.Get("X-Method-Override") != "" {
			t.Errorf("the application gets %v, want no override of the method", r.Header)
		}
	}
}

// FuzzDecidedIsForwarded sends any target. If it reaches the application, it has exactly the bytes
// that were decided on.
func FuzzDecidedIsForwarded(f *testing.F) {
	for _, form := range pathForms {
		f.Add(form.target)
	}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Seen", r.RequestURI) }))
	f.Cleanup(app.Close)
	p := newPlane(f)
	p.discard = true
	p.publish(enforcing(pathReason))
	b := start(f, p, app.URL, nil).at(f, 1)
	f.Fuzz(func(t *testing.T, target string) {
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: app.test\r\n\r\n")))
		if err != nil {
			return
		}
		req.RemoteAddr = "203.0.113.1:1"
		st := b.state.Load()
		in, no := b.reader.Parse(req, st.Settings)
		w := httptest.NewRecorder()
		b.serve(w, req)
		seen := w.Header().Get("Seen")
		if seen == "" {
			return
		}
		if no != nil {
			t.Fatalf("%q was refused, and forwarded as %q", target, seen)
		}
		v := b.judge.Decide(t.Context(), st, &in, identity.Anonymous(), nil)
		path, query, _ := strings.Cut(seen, "?")
		decided := withoutParameters(path)
		if v.Decision.Path != decided || v.Decision.Reason != decided[:min(len(decided), 1024)] || query != in.Query {
			t.Fatalf("%q was decided on %q, seen by the control as %q, and forwarded as %q", target, v.Decision.Path, v.Decision.Reason, seen)
		}
		for s := range strings.SplitSeq(path[1:], "/") {
			if s == "." || s == ".." || s == "" && path != "/" || strings.ContainsAny(s, "\\#\x00") {
				t.Fatalf("%q was forwarded as %q", target, path)
			}
		}
	})
}
