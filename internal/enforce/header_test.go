package enforce

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/gateway"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
)

// The application never gets a client's value of a reserved header, in any spelling that CGI, WSGI,
// Rack or PHP maps to it. Envoy is asked to remove it.
func TestReservedHeadersDoNotPass(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	_, e := grpcBouncer(t, p, nil)
	names := append(header.Reserved(), "X-Forwarded-Anything", "X-Original-Anything", "X-Auth-Request-Anything", "X-Remote-Anything")
	for _, name := range names {
		for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1), strings.ToUpper(name)} {
			app.take()
			got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header[spelling] = []string{"forged"} })
			seen := app.take()
			if got.status != 200 || len(seen) != 1 {
				t.Fatalf("%s: %s, %d requests reached the application, want 200 and one", spelling, got, len(seen))
			}
			for h, values := range seen[0].Header {
				if strings.Contains(strings.Join(values, ","), "forged") && h != header.RequestID {
					t.Errorf("%s: the application gets %s: %s, want nothing forged", spelling, h, values)
				}
			}
			res := e.ask(newCheck("GET", "app.test", "/x", map[string]string{strings.ToLower(spelling): "forged"}))
			if _, keeps := gateway.SetByEnvoy[textproto.CanonicalMIMEHeaderKey(spelling)]; !keeps && !slices.Contains(res.GetOkResponse().GetHeadersToRemove(), strings.ToLower(spelling)) {
				t.Errorf("Envoy removes %s, want also %s", res.GetOkResponse().GetHeadersToRemove(), spelling)
			}
		}
	}
	for _, name := range []string{"Accept", "X-Requested-With", "X-Api-Key", "Traceparent", "X-Stainless-Lang", "Openai-Organization", "X-Csrf-Token", "Api_key", "X-Auth-Token"} {
		if got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header[name] = []string{"mine"} }); got.status != 200 {
			t.Fatalf("%s: %s, want 200", name, got)
		}
		if seen := app.take(); len(seen) != 1 || seen[0].Header.Get(name) != "mine" {
			t.Errorf("%s does not reach the application", name)
		}
	}
}

// The bouncer removes the console's session cookie, as a proxy and for Envoy, in both modes. An
// application cannot set one at the client.
func TestConsoleSessionIsNotForwarded(t *testing.T) {
	t.Parallel()
	session := "gatehouse=default." + strings.Repeat("A", 43)
	app := newApplication(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Set-Cookie", session+"; Path=/")
		w.Header().Add("Set-Cookie", "theirs=1")
	})
	for _, mode := range []string{"enforce", "shadow"} {
		p, b := startPublished(t, app.URL, policySet{revision: 1, mode: mode, controls: []control{{id: 1, source: allowAll}}}, nil)
		_, e := grpcBouncer(t, p, nil)
		for line, want := range map[string]string{session: "", "a=1; " + session + "; b=2": "a=1; b=2", "__Host-" + session: "", "a=1;b=2": "a=1;b=2"} {
			app.take()
			got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header.Set("Cookie", line) })
			if seen := app.take(); got.status != 200 || len(seen) != 1 || seen[0].Header.Get("Cookie") != want {
				t.Errorf("%s, cookies %q: %s, the application gets %v, want the cookies %q", mode, line, got, seen, want)
			}
			if set := got.header["Set-Cookie"]; !slices.Equal(set, []string{"theirs=1"}) {
				t.Errorf("%s: the client gets the cookies %q, want only the application's", mode, set)
			}
			res := e.ask(newCheck("GET", "app.test", "/x", map[string]string{"cookie": line})).GetOkResponse()
			set, there := values(res.GetHeaders())["cookie"]
			if gone := slices.Contains(res.GetHeadersToRemove(), "cookie"); gone != (want == "") || there != (want != "" && want != line) || there && set != want {
				t.Errorf("%s, cookies %q: Envoy sets %q and removes %v, want %q", mode, line, set, res.GetHeadersToRemove(), want)
			}
		}
	}
}
