package enforce

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// On the first start without a control plane, enforce mode answers only 503. Shadow mode, if the
// operator configured it, passes requests.
func TestNoBundleFailsClosed(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.set(func() { p.down = true })
	b := start(t, p, app.URL, nil)
	for _, m := range []string{"GET", "POST", "DELETE"} {
		wantAnswer(t, "without a bundle", fetch(t, m, b.url+"/x", nil), 503, "no_bundle")
	}
	wantAnswer(t, "without a bundle", fetch(t, "GET", b.url+"/_bouncer/live", nil), 200)
	wantAnswer(t, "without a bundle", fetch(t, "GET", b.url+"/_bouncer/ready", nil), 503)
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application, want none", n)
	}
	if n := b.journal.Spool.Depth(); n != 3 {
		t.Errorf("%d events are spooled, want 3", n)
	}
	s := start(t, p, app.URL, func(c *Config) { c.InitialMode = "shadow" })
	wantAnswer(t, "in shadow", fetch(t, "GET", s.url+"/x", nil), 200)
	// Once there is a bundle, it decides.
	p.set(func() { p.down = false })
	p.deploy(b, enforcing(allowAll))
	wantAnswer(t, "with a bundle", fetch(t, "GET", b.url+"/x", nil), 200)
	wantAnswer(t, "with a bundle", fetch(t, "GET", b.url+"/_bouncer/ready", nil), 200)
}

// A control that cannot be evaluated denies, and the log names the error.
func TestControlErrorsFailClosed(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	broken := "package e\n\nallow := 1 if input.request.path == \"/\"\n\nallow := 2 if input.request.method == \"GET\"\n"
	p, b := startPublished(t, app.URL, enforcing(broken), nil)
	wantAnswer(t, "a control that conflicts", fetch(t, "GET", b.url+"/", nil), 503, "evaluation_error")
	if e := p.logged(1)[0]; e["error"] == nil {
		t.Errorf("the event is %v, want an error in it", e)
	}
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application, want none", n)
	}
}

// default_action decides on requests that no control covers.
func TestDefaultAction(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	other := []target.Resource{{ID: 5, Type: "api", Path: "/api/**", Doc: valuetest.Decode(t, `{"id":5}`)}}
	p, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", resources: other, controls: []control{{id: 1, source: denyAll, resource: 5}}}, nil)
	wantAnswer(t, "nothing in scope", fetch(t, "GET", b.url+"/x", nil), 200)
	p.deploy(b, policySet{revision: 2, mode: "enforce", resources: other, controls: []control{{id: 1, source: denyAll, resource: 5}}, config: map[string]any{"default_action": "deny"}})
	wantAnswer(t, "nothing in scope, default deny", fetch(t, "GET", b.url+"/x", nil), 403)
	events := p.logged(2)
	if got := field(events[0], "custom", "outcome"); got != "PASS_THROUGH" {
		t.Errorf("outcome = %v, want PASS_THROUGH", got)
	}
}

// TestEvaluatedControls checks that the log names all controls that ran, unless only the deciding one
// did.
func TestEvaluatedControls(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	silent := "package s\n\nallow if input.request.path == \"/nowhere\"\n"
	for i, tc := range []struct {
		controls []control
		want     string
	}{
		{[]control{{id: 4, source: denyAll}}, "<nil>"},
		{[]control{{id: 3, source: silent}, {id: 4, source: denyAll}, {id: 6, source: silent}}, "[3 4]"},
		{[]control{{id: 3, source: silent}, {id: 6, source: silent}}, "[3 6]"},
		{nil, "<nil>"},
	} {
		p.publish(policySet{revision: i + 1, mode: "shadow", controls: tc.controls})
		b := start(t, p, app.URL, nil).at(t, i+1)
		fetch(t, "GET", b.url+"/x", nil)
		if got := fmt.Sprint(field(p.logged(i + 1)[i], "custom", "evaluated")); got != tc.want {
			t.Errorf("set %d: evaluated = %s, want %s", i, got, tc.want)
		}
		b.stop()
	}
}

// TestHiddenReason checks that the client gets the author's reason, and that the log has no secret
// in it, even at audit levels without the input that would reveal the secret.
func TestHiddenReason(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	const source = "package h\n\ndeny if input.request.query.token\n\nreason := sprintf(\"%v is used up\", [input.request.query.token])\n"
	set := enforcing(source)
	levels := []string{"basic", "detailed", "comprehensive"}
	for i, level := range levels {
		set.resources = append(set.resources, target.Resource{ID: int64(i + 1), Type: "api", Path: "/" + level, AuditLevel: level, Doc: valuetest.Decode(t, `{}`)})
	}
	p, b := startPublished(t, app.URL, set, nil)
	for i, level := range levels {
		wantAnswer(t, "level "+level, fetch(t, "GET", b.url+"/"+level+"?token=canary", nil), 403, "canary")
		e := p.logged(i + 1)[i]
		recorded := fmt.Sprint(e["result"], field(e, "custom", "explanation"), field(e, "custom", "trace"))
		if strings.Contains(recorded, "canary") || !strings.Contains(recorded, "[redacted]") || !strings.Contains(recorded, "is used up") {
			t.Errorf("level %s: the log has %s, want the reason without the secret", level, recorded)
		}
	}
}

// Without its control plane, a bouncer uses its last good bundle, also after a restart. After
// max_stale, it refuses requests in enforce mode.
func TestLastGoodBundle(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	dir := t.TempDir()
	p.publish(policySet{revision: 4, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}, config: map[string]any{"max_stale": "1h"}})
	first := start(t, p, app.URL, inDir(dir)).at(t, 4)
	first.stop()
	p.set(func() { p.down = true })

	again := start(t, p, app.URL, inDir(dir))
	wantAnswer(t, "after a restart without a control plane", fetch(t, "GET", again.url+"/open", nil), 200)
	wantAnswer(t, "after a restart without a control plane", fetch(t, "GET", again.url+"/admin", nil), 403)
	again.stop()

	later := start(t, p, app.URL, func(c *Config) {
		c.DataDir = dir
		c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	})
	wantAnswer(t, "two hours later", fetch(t, "GET", later.url+"/open", nil), 503, "policy_stale")
	wantAnswer(t, "two hours later", fetch(t, "GET", later.url+"/_bouncer/ready", nil), 503)
	later.stop()

	// A damaged copy is not used.
	file := filepath.Join(dir, controlplane.BundleFile)
	data, err := os.ReadFile(file)
	errtest.Must(t, err)
	data[len(data)/2] ^= 1
	errtest.Must(t, os.WriteFile(file, data, 0o600))
	damaged := start(t, p, app.URL, inDir(dir))
	wantAnswer(t, "with a damaged bundle", fetch(t, "GET", damaged.url+"/open", nil), 503, "no_bundle")
}

// A bad bundle does not replace the last good one. It is reported, and not downloaded again.
func TestRefusedBundles(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	good := policySet{revision: 5, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}}
	p.publish(good)
	b := start(t, p, app.URL, nil).at(t, 5)
	set := func(change func(*policySet)) []byte { s := good; change(&s); return s.bundle(t) }
	whole := set(func(s *policySet) { s.revision = 9 })
	for i, tc := range []struct {
		name, code string
		data       []byte
	}{
		{"older", "bundle_rollback", set(func(s *policySet) { s.revision = 4 })},
		{"another bouncer's", "bundle_foreign", set(func(s *policySet) { s.revision, s.bouncer = 6, 8 })},
		{"unknown mode", "bundle_configuration", set(func(s *policySet) { s.revision, s.mode = 6, "perhaps" })},
		{"unknown default", "bundle_configuration", set(func(s *policySet) { s.revision, s.config = 6, map[string]any{"default_action": "maybe"} })},
		{"keys without an issuer", "bundle_configuration", set(func(s *policySet) {
			s.revision, s.config = 6, map[string]any{"identity": map[string]any{"jwks_url": "https://x.test"}}
		})},
		{"a credential in the log", "bundle_configuration", set(func(s *policySet) { s.revision, s.config = 6, map[string]any{"headers": []string{"cookie"}} })},
		{"cut", "bundle_error", whole[:len(whole)/2]},
		{"flipped", "bundle_error", flip(whole)},
		{"empty", "bundle_error", nil},
		{"not a bundle", "bundle_error", []byte("<html>")},
	} {
		etag := fmt.Sprintf(`"bad-%d"`, i)
		var seen int
		p.set(func() { seen = len(p.statuses); p.data, p.etag = append([]byte{}, tc.data...), etag })
		p.wait(tc.name+" to be reported", func() bool {
			for _, s := range p.statuses[seen:] {
				if field(s, "bundles", "authz", "code") == tc.code {
					return field(s, "gatehouse", "status") == "degraded"
				}
			}
			return false
		})
		// The next poll names the active bundle, and the one that it does not want.
		eventually(t, "a poll that names both", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			last := p.polls[len(p.polls)-1]
			return strings.Contains(last, `"r5"`) && strings.Contains(last, etag)
		})
		if got := fetch(t, "GET", b.url+"/admin", nil); got.status != 403 || b.state.Load().Revision != "5" {
			t.Errorf("%s: %s by revision %s, want 403 by 5", tc.name, got, b.state.Load().Revision)
		}
	}
	p.deploy(b, policySet{revision: 10, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
	p.wait("a healthy report", func() bool {
		last := p.statuses[len(p.statuses)-1]
		return field(last, "gatehouse", "status") == "connected" && field(last, "bundles", "authz", "active_revision") == "10"
	})
}

// flip returns data with one bit changed.
func flip(data []byte) []byte {
	out := slices.Clone(data)
	out[len(out)/2] ^= 0x10
	return out
}

// With a key, only bundles with its signature become active.
func TestSignedBundles(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	errtest.Must(t, err)
	_, foreign, _ := ed25519.GenerateKey(rand.Reader)
	app := newApplication(t, nil)
	s := policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}, signing: &bundle.SigningKey{ID: "k1", Key: private}}
	p, b := startPublished(t, app.URL, s, func(c *Config) { c.Verify = &bundle.Verify{KeyID: "k1", Key: public} })
	for i, key := range []*bundle.SigningKey{nil, {ID: "k1", Key: foreign}, {ID: "k2", Key: private}} {
		s.revision, s.signing = i+2, key
		refused := b.count.BundlesRefused.Load()
		p.publish(s)
		eventually(t, "the bundle to be refused", func() bool { return b.count.BundlesRefused.Load() > refused })
		if rev := b.state.Load().Revision; rev != "1" {
			t.Errorf("revision %s is active, want 1: the signature of %d is not valid", rev, s.revision)
		}
	}
}

// An attacker on the network path answers every poll with "not modified": without a proof, with an
// old one, or with one of another revision. That confirms nothing. It is reported, and after
// max_stale the bouncer refuses requests. It does not accept an older bundle either.
func TestReplayedPolls(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	errtest.Must(t, err)
	key := &bundle.SigningKey{ID: "k1", Key: private}
	old, err := key.SignFresh(bundle.Freshness{Bouncer: 7, Revision: `"r5"`, Nonce: "an older poll's"})
	errtest.Must(t, err)
	app := newApplication(t, nil)
	for name, freeze := range map[string]func(*plane){
		"no proof":         func(p *plane) { p.signing = nil },
		"an old proof":     func(p *plane) { p.replays = old },
		"another revision": func(p *plane) { p.stands = `"r6"` },
		"no token":         func(p *plane) { p.replays = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t)
			s := policySet{revision: 5, mode: "enforce", controls: []control{{id: 1, source: allowAll}}, signing: key}
			ages := name == "no proof"
			if ages {
				s.config = map[string]any{"max_stale": "2s"}
			}
			p.publish(s)
			b := start(t, p, app.URL, func(c *Config) {
				c.Verify, c.PollWait = &bundle.Verify{KeyID: "k1", Key: public}, time.Second
			}).at(t, 5)
			eventually(t, "the bundle to be confirmed", func() bool { return fetch(t, "GET", b.url+"/x", nil).status == 200 })
			p.set(func() { freeze(p) })
			p.wait("the report of an unconfirmed bundle", func() bool {
				return len(p.statuses) > 0 && field(p.statuses[len(p.statuses)-1], "bundles", "authz", "code") == "bundle_unconfirmed"
			})
			if ages {
				eventually(t, "the policies to be too old", func() bool { return fetch(t, "GET", b.url+"/x", nil).status == 503 })
			}
			p.set(func() { p.signing, p.replays, p.stands = key, "", "" })
			eventually(t, "a proof to confirm them", func() bool { return fetch(t, "GET", b.url+"/x", nil).status == 200 })
			s.revision = 4
			refused := b.count.BundlesRefused.Load()
			p.publish(s)
			eventually(t, "the older bundle to be refused", func() bool { return b.count.BundlesRefused.Load() > refused })
			if rev := b.state.Load().Revision; rev != "5" {
				t.Errorf("revision %s is active, want 5", rev)
			}
		})
	}
}

// A revoked token ends updates and is reported as degraded, but does not change decisions. When the
// token works again, a new policy is active at once.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, b := startPublished(t, app.URL, enforcing(adminOnly), nil)
	eventually(t, "a parked poll", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.parked > 0 })
	p.set(func() { p.denied = true })
	eventually(t, "the bouncer to notice", func() bool { return b.bundles.Progress().Denied })
	if s := b.reporter.Status(t.Context(), 0); s.Gatehouse.Status != "degraded" || s.Bundles["authz"].HTTPCode != "401" {
		t.Errorf("the status is %+v, want degraded by a 401", s)
	}
	wantAnswer(t, "with a revoked token", fetch(t, "GET", b.url+"/open", nil), 200)
	p.set(func() { p.denied = false })
	p.deploy(b, policySet{revision: 2, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
}

// Decisions that could not be shipped are shipped later, each once, also after a restart.
func TestDecisionLogSurvivesRestart(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(enforcing(allowAll))
	dir := t.TempDir()
	b := start(t, p, app.URL, inDir(dir)).at(t, 1)
	p.set(func() { p.logsDown = true })
	for i := range 50 {
		fetch(t, "GET", fmt.Sprintf("%s/%d", b.url, i), nil)
	}
	b.stop()
	b = start(t, p, app.URL, inDir(dir)).at(t, 1)
	for i := range 50 {
		fetch(t, "GET", fmt.Sprintf("%s/%d", b.url, 50+i), nil)
	}
	p.set(func() { p.logsDown = false })
	ids, paths := map[string]bool{}, map[string]bool{}
	for _, e := range p.logged(100) {
		ids[e["decision_id"].(string)] = true
		paths[field(e, "input", "resource", "path").(string)] = true
	}
	if len(ids) != 100 || len(paths) != 100 {
		t.Errorf("%d decisions on %d paths arrived, want 100 of each", len(ids), len(paths))
	}
	eventually(t, "the spool to be empty", func() bool { return b.journal.Spool.Depth() == 0 })
}

// The audit level of a resource decides what the log keeps of a request. No level keeps credentials.
func TestAuditLevels(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	set := enforcing(allowAll)
	set.config = map[string]any{"headers": []string{"x-channel"}}
	for i, level := range []string{"none", "basic", "detailed"} {
		set.resources = append(set.resources, target.Resource{ID: int64(i + 1), Type: "api", Path: "/" + level, AuditLevel: level, Doc: valuetest.Decode(t, `{}`)})
	}
	p, b := startPublished(t, app.URL, set, nil)
	for _, level := range []string{"none", "basic", "detailed"} {
		fetch(t, "GET", b.url+"/"+level+"?token=canary", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer canary-token")
			r.Header.Set("Cookie", "canary-cookie")
			r.Header.Set("X-Channel", "web")
		})
	}
	events := p.logged(3)
	if events[0]["input"] != nil || events[0]["requested_by"] != nil {
		t.Errorf("level none: %v, want nothing of the caller", events[0])
	}
	// Level basic keeps the input for replay only, redacted in the same way.
	if in := events[1]["input"].(map[string]any); field(in, "resource", "path") != "/basic" || strings.Contains(fmt.Sprint(in), "canary") {
		t.Errorf("level basic: %v, want the path and no secret", in)
	} else if h, ok := field(in, "request", "headers").(map[string]any); !ok || h["x-channel"] != "web" {
		t.Errorf("level basic: %v, want input.request for replay, although no control read it", in)
	}
	in := events[2]["input"].(map[string]any)
	if h := field(in, "request", "headers").(map[string]any); len(h) != 1 || h["x-channel"] != "web" {
		t.Errorf("level detailed: %v, want the configured header alone", in)
	}
	if all := fmt.Sprint(events); strings.Contains(all, "canary-") {
		t.Errorf("the log is %s, want no credential in it", all)
	}
}
