package enforce

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/status"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/freeport"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// hostForms are spellings of hosts, and the host that controls see; empty: the request is refused.
var hostForms = map[string]string{
	"app.example":               "app.example",
	"app.example:8080":          "app.example:8080",
	"APP.Example":               "app.example",
	"app.example.":              "app.example",
	"APP.example.:65535":        "app.example:65535",
	"a_b-c.example":             "a_b-c.example",
	"192.0.2.7:80":              "192.0.2.7:80",
	"[2001:DB8::1]":             "[2001:db8::1]",
	"[2001:db8:0:0:0:0:0:1]:80": "[2001:db8::1]:80",

	"app.example:80:90": "", "app.example:x": "", "app.example:": "", "app.example:0": "", "app.example:-1": "", "app.example:+1": "",
	"app.example:080": "", "app.example:65536": "", "app.example:99999999": "", "app.example.:x": "",
	"app..example": "", ".app.example": "", "app.example..": "", ".": "", "..": "", ":80": "", ":-1": "", ":99999999": "", ":": "",
	"[app.example]": "", "app.example]": "", "[app.example": "", "[::1": "", "[]": "", "[192.0.2.7]": "", "[::1]x": "", "[::1]:": "", "[::1]:0": "",
	"[fe80::1%25eth0]": "", "::1": "", "[[::1]]": "", "app[.example": "", "app.example:[1]": "",
}

// A host that an application may read differently from the controls is refused. The host of the
// decision is the one that is forwarded.
func TestHostForms(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, enforcing("package host\n\nallow := true\n\nreason := input.resource.host\n"), nil)
	gate, e := grpcBouncer(t, p, trustLoopback)
	decided := 0
	for host, want := range hostForms {
		out := sendRaw(t, b.url, "GET /x HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		seen := app.take()
		envoys := e.ask(newCheck("GET", host, "/x", nil))
		auth := fetch(t, "GET", gate.url+"/_bouncer/auth", forwardHead("GET", host, "/x"))
		if want == "" {
			if rawStatus(out) != 400 || len(seen) != 0 {
				t.Errorf("host %q: %.40q, %d requests reached the application, want 400 and none", host, out, len(seen))
			}
			expectOutcome(t, host, envoys, "400 DENY bad_request")
			wantVerdict(t, fmt.Sprintf("host %q at forward-auth", host), auth, 403, "bad_request")
			continue
		}
		decided++
		reason := field(p.logged(decided)[decided-1], "result", "reason")
		if rawStatus(out) != 200 || len(seen) != 1 || seen[0].Host != want || reason != want {
			t.Errorf("host %q: %.40q, decided on %v, forwarded %v, want 200 and %q", host, out, reason, seen, want)
		}
		expectOutcome(t, host, envoys, "OK PERMIT ok")
		wantAnswer(t, fmt.Sprintf("host %q at forward-auth", host), auth, 200)
		decided += 2
		p.logged(decided)
	}
}

// HEAD is GET without the body, so a control or resource that names GET also covers HEAD.
func TestHeadIsGuardedAsGet(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{
		revision: 1, mode: "enforce", controls: []control{{id: 1, resource: 5, source: denyAll}},
		resources: []target.Resource{{ID: 5, Type: "api", Path: "/**", Methods: []string{"GET"}, Doc: valuetest.Decode(t, `{"id":5}`)}},
	})
	b := start(t, p, app.URL, nil).at(t, 1)
	for method, want := range map[string]int{"GET": 403, "HEAD": 403, "POST": 200, "OPTIONS": 200} {
		wantAnswer(t, method, fetch(t, method, b.url+"/x", nil), want)
	}
	if n := len(app.take()); n != 2 {
		t.Errorf("%d requests reached the application, want 2", n)
	}
}

// With a key, a saved bundle with another signature or none is not activated either. A bouncer
// without an active bundle does not report the refused one as active.
func TestSignedBundlesFromTheDisk(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	verify := func(c *Config) { c.Verify = &bundle.Verify{Key: public} }
	app := newApplication(t, nil)
	for name, tc := range map[string]struct {
		key  *bundle.SigningKey
		want int
	}{
		"signed": {&bundle.SigningKey{ID: "any", Key: private}, 200}, "unsigned": {nil, 503},
	} {
		p, dir := newPlane(t), t.TempDir()
		p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}, signing: tc.key})
		first := start(t, p, app.URL, inDir(dir)).at(t, 1) // without a key it accepts either
		first.stop()
		p.set(func() { p.down = true })
		again := start(t, p, app.URL, func(c *Config) { c.DataDir = dir; verify(c) })
		wantAnswer(t, name+", restarted with the key", fetch(t, "GET", again.url+"/x", nil), tc.want)
		if tc.want == 200 {
			continue
		}
		p.set(func() { p.down, p.polls = false, nil })
		p.wait("the refusal to be reported", func() bool {
			for _, s := range p.statuses {
				if authz := field(s, "bundles", "authz").(map[string]any); strings.Contains(fmt.Sprint(authz["message"]), "signature") && authz["active_revision"] == nil {
					return true
				}
			}
			return false
		})
		eventually(t, "a poll that names the refused bundle", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.polls) > 1 && p.polls[len(p.polls)-1] == `"0", "r1"`
		})
		wantAnswer(t, name+", after the control plane is back", fetch(t, "GET", again.url+"/x", nil), 503)
	}
}

// A cached decision is never older than configuration.cache_ttl.
func TestCacheTTL(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	var ahead atomic.Int64
	publish := func(revision int, config map[string]any) {
		p.publish(policySet{revision: revision, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}, config: config})
	}
	publish(1, map[string]any{"cache_ttl": "1m"})
	b := start(t, p, app.URL, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}).at(t, 1)
	n := 0
	wantHit := func(what string, want bool) {
		t.Helper()
		fetch(t, "GET", b.url+"/x", nil)
		n++
		if got := field(p.logged(n)[n-1], "custom", "cache_hit"); got != want {
			t.Errorf("%s: cache_hit = %v, want %v", what, got, want)
		}
	}
	wantHit("the first", false)
	wantHit("the second", true)
	ahead.Store(int64(50 * time.Second))
	wantHit("before the minute is over", true)
	ahead.Store(int64(70 * time.Second))
	wantHit("after it", false)
	wantHit("decided again", true)
	publish(2, nil)
	b.at(t, 2)
	ahead.Store(int64(time.Hour))
	wantHit("without a bound", true)
	publish(3, map[string]any{"cache_ttl": "0s"})
	b.at(t, 3)
	wantHit("no age at all", false)
	publish(4, map[string]any{"cache_ttl": "1h", "cache_enabled": false})
	b.at(t, 4)
	wantHit("switched off", false)
	publish(5, map[string]any{"cache_ttl": "soon"})
	eventually(t, "a refusal", func() bool { return b.count.BundlesRefused.Load() == 1 })
}

// The log has the cause of a failed evaluation, and names no control if the refusal does not come from
// one. The client learns neither.
func TestReasonsInTheLog(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	is := newIssuer(t)
	endless := "package endless\n\nallow if {\n\tsome i in numbers.range(1, 9000)\n\tsome j in numbers.range(1, 9000)\n\ti * j == -1\n}\n"
	wrong := "package wrong\n\nallow := \"yes\"\n"
	p.publish(policySet{
		revision: 1, mode: "enforce", config: map[string]any{"identity": is.config()},
		controls: []control{{1, 1, endless}, {2, 2, wrong}, {3, 3, allowAll}},
		resources: []target.Resource{
			{ID: 1, Path: "/endless", Doc: valuetest.Decode(t, `{}`)}, {ID: 2, Path: "/wrong", Doc: valuetest.Decode(t, `{}`)}, {ID: 3, Path: "/open", Doc: valuetest.Decode(t, `{}`)},
		},
	})
	b := start(t, p, app.URL, func(c *Config) { c.DecisionDeadline = 50 * time.Millisecond }).at(t, 1)
	old := is.token(t, "ed", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})
	for i, tc := range []struct {
		path, token                    string
		status                         int
		body, effect, reason, decision string
		policy                         any
	}{
		{"/endless", "", 503, "the request could not be decided", "DENY", "evaluation_limit", "DENY", 1.0},
		{"/wrong", "", 503, "the request could not be decided", "DENY", "allow must be true or false", "DENY", 2.0},
		{"/open", old, 401, "the bearer token is not valid", "DENY", "the bearer token is not valid", "DENY", nil},
		{"/open", "", 200, "", "ALLOW", "", "PERMIT", 3.0},
	} {
		got := fetch(t, "GET", b.url+tc.path, func(r *http.Request) {
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
		})
		if got.status != tc.status || !strings.Contains(got.body, tc.body) || strings.Contains(got.body, "evaluation_limit") || strings.Contains(got.body, "allow must be") {
			t.Errorf("%s, want %d %q and not the cause", got, tc.status, tc.body)
		}
		e := p.logged(i + 1)[i]
		r := e["result"].(map[string]any)
		reason := r["reason"].(string)
		if ran := field(e, "custom", "evaluated"); (ran == nil) != (tc.policy != nil) {
			t.Errorf("%s: the event names the controls %v that ran, want them only beside a control that decided (%v)", tc.path, ran, tc.policy)
		}
		if r["effect"] != tc.effect || r["decision"] != tc.decision || r["policy_id"] != tc.policy || !strings.Contains(reason, tc.reason) || tc.status != 200 && reason == "" {
			t.Errorf("%s: the event is %v, want %+v", tc.path, r, tc)
		}
	}
}

// The control plane learns at once that the application is unreachable or reachable again. An
// unstable application does not cause a flood of reports.
func TestReachabilityIsReportedAtOnce(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	addr := freeport.Addr(t)
	serve := func() (stop func()) {
		t.Helper()
		l, err := net.Listen("tcp", addr)
		errtest.Must(t, err)
		s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(l) }()
		return func() { _ = s.Close() }
	}
	stop := serve()
	p, b := startPublished(t, "http://"+addr, enforcing(allowAll), nil)
	wantReport := func(reachable bool, status string) {
		t.Helper()
		// A regular report comes after 30 seconds. Only the change causes an earlier one.
		p.waitWithin(10*time.Second, fmt.Sprintf("a report of reachable %t", reachable), func() bool {
			if len(p.statuses) == 0 {
				return false
			}
			last := p.statuses[len(p.statuses)-1]["gatehouse"].(map[string]any)
			return last["target_app_reachable"] == reachable && last["status"] == status
		})
	}
	fetch(t, "GET", b.url+"/x", nil)
	wantReport(true, "connected")
	stop()
	wantAnswer(t, "without the application", fetch(t, "GET", b.url+"/x", nil), 502)
	wantReport(false, "degraded")
	down := time.Now()
	eventually(t, "more than one try", func() bool { return time.Since(down) > 3*status.AppProbe/2 })
	stop = serve()
	wantReport(true, "connected") // without a request: the bouncer tries the application
	p.mu.Lock()
	before := len(p.statuses)
	p.mu.Unlock()
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 3*status.AppRest/2 { // as an application that comes and goes
		b.reporter.Signals.NoteAppLost()
		b.reporter.Signals.Lost.Store(false)
		<-tick.C
	}
	fetch(t, "GET", b.url+"/x", nil)
	b.stop()
	stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, most := len(p.statuses)-before, 3+int(time.Since(began)/status.AppRest); n > most {
		t.Errorf("%d reports of an unstable application, want at most %d", n, most)
	}
}
