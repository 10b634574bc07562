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

	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
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
		if got := fetch(t, m, b.url+"/x", nil); got.status != 503 || !strings.Contains(got.body, "no_bundle") {
			t.Errorf("%s: %d %s", m, got.status, got.body)
		}
	}
	if got := fetch(t, "GET", b.url+"/_bouncer/live", nil); got.status != 200 {
		t.Errorf("live: %d", got.status)
	}
	if got := fetch(t, "GET", b.url+"/_bouncer/ready", nil); got.status != 503 {
		t.Errorf("ready: %d", got.status)
	}
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application", n)
	}
	if b.journal.Spool.Depth() != 3 {
		t.Errorf("%d events are spooled, want 3", b.journal.Spool.Depth())
	}
	s := start(t, p, app.URL, func(c *Config) { c.InitialMode = "shadow" })
	if got := fetch(t, "GET", s.url+"/x", nil); got.status != 200 {
		t.Errorf("in shadow: %d", got.status)
	}
	// Once there is a bundle, it decides.
	p.set(func() { p.down = false })
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	b.at(t, 1)
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
		t.Errorf("with a bundle: %d", got.status)
	}
	if got := fetch(t, "GET", b.url+"/_bouncer/ready", nil); got.status != 200 {
		t.Errorf("ready: %d", got.status)
	}
}

func TestControlErrorsFailClosed(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	broken := "package e\n\nallow := 1 if input.request.path == \"/\"\n\nallow := 2 if input.request.method == \"GET\"\n"
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: broken}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	if got := fetch(t, "GET", b.url+"/", nil); got.status != 503 || !strings.Contains(got.body, "evaluation_error") {
		t.Errorf("a control that conflicts: %d %s", got.status, got.body)
	}
	if e := p.logged(1)[0]; e["error"] == nil {
		t.Errorf("the log does not tell: %v", e)
	}
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application", n)
	}
}

func TestDefaultAction(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	other := []target.Resource{{ID: 5, Type: "api", Path: "/api/**", Doc: doc(t, `{"id":5}`)}}
	p.publish(policySet{revision: 1, mode: "enforce", resources: other, controls: []control{{id: 1, source: denyAll, resource: 5}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 200 {
		t.Errorf("nothing in scope: %d", got.status)
	}
	p.publish(policySet{revision: 2, mode: "enforce", resources: other, controls: []control{{id: 1, source: denyAll, resource: 5}}, config: map[string]any{"default_action": "deny"}})
	b.at(t, 2)
	if got := fetch(t, "GET", b.url+"/x", nil); got.status != 403 {
		t.Errorf("nothing in scope, default deny: %d", got.status)
	}
	events := p.logged(2)
	if c := events[0]["custom"].(map[string]any); c["outcome"] != "PASS_THROUGH" {
		t.Errorf("the log says %v", c)
	}
}

// TestEvaluatedControls checks that the log names all controls that ran, unless only the deciding one
// did.
func TestEvaluatedControls(t *testing.T) {
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
		if got := fmt.Sprint(p.logged(i + 1)[i]["custom"].(map[string]any)["evaluated"]); got != tc.want {
			t.Errorf("%d: evaluated %s, want %s", i, got, tc.want)
		}
		b.stop()
	}
}

// TestHiddenReason checks that the client gets the author's reason, and that the log has no secret
// in it, even at audit levels without the input that would reveal the secret.
func TestHiddenReason(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	const source = "package h\n\ndeny if input.request.query.token\n\nreason := sprintf(\"%v is used up\", [input.request.query.token])\n"
	set := policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: source}}}
	levels := []string{"basic", "detailed", "comprehensive"}
	for i, level := range levels {
		set.resources = append(set.resources, target.Resource{ID: int64(i + 1), Type: "api", Path: "/" + level, AuditLevel: level, Doc: doc(t, `{}`)})
	}
	p.publish(set)
	b := start(t, p, app.URL, nil).at(t, 1)
	for i, level := range levels {
		if got := fetch(t, "GET", b.url+"/"+level+"?token=canary", nil); got.status != 403 || !strings.Contains(got.body, "canary") {
			t.Errorf("%s: the caller is told %s", level, got.body)
		}
		e := p.logged(i + 1)[i]
		told := fmt.Sprint(e["result"], e["custom"].(map[string]any)["explanation"], e["custom"].(map[string]any)["trace"])
		if strings.Contains(told, "canary") || !strings.Contains(told, "[redacted]") || !strings.Contains(told, "is used up") {
			t.Errorf("%s: the log says %s", level, told)
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
	here := func(c *Config) { c.DataDir = dir }
	first := start(t, p, app.URL, here).at(t, 4)
	first.stop()
	p.set(func() { p.down = true })

	again := start(t, p, app.URL, here)
	if got := fetch(t, "GET", again.url+"/open", nil); got.status != 200 {
		t.Errorf("after a restart without a control plane: %d %s", got.status, got.body)
	}
	if got := fetch(t, "GET", again.url+"/admin", nil); got.status != 403 {
		t.Errorf("after a restart without a control plane: %d", got.status)
	}
	again.stop()

	later := start(t, p, app.URL, func(c *Config) {
		c.DataDir = dir
		c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	})
	if got := fetch(t, "GET", later.url+"/open", nil); got.status != 503 || !strings.Contains(got.body, "policy_stale") {
		t.Errorf("two hours later: %d %s", got.status, got.body)
	}
	if got := fetch(t, "GET", later.url+"/_bouncer/ready", nil); got.status != 503 {
		t.Errorf("ready while stale: %d", got.status)
	}
	later.stop()

	// F10: a damaged copy is not taken.
	file := filepath.Join(dir, uplink.BundleFile)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := start(t, p, app.URL, here)
	if got := fetch(t, "GET", damaged.url+"/open", nil); got.status != 503 || !strings.Contains(got.body, "no_bundle") {
		t.Errorf("with a damaged bundle: %d %s", got.status, got.body)
	}
}

// A bad bundle does not replace the last good one. It is reported, and not downloaded again.
func TestRefusedBundles(t *testing.T) {
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
		{"a credential shown", "bundle_configuration", set(func(s *policySet) { s.revision, s.config = 6, map[string]any{"headers": []string{"cookie"}} })},
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
				if s["bundles"].(map[string]any)["authz"].(map[string]any)["code"] == tc.code {
					return s["gatehouse"].(map[string]any)["status"] == "degraded"
				}
			}
			return false
		})
		// The next poll says that it has the active one and does not want this one.
		eventually(t, "a poll that names both", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			last := p.polls[len(p.polls)-1]
			return strings.Contains(last, `"r5"`) && strings.Contains(last, etag)
		})
		if got := fetch(t, "GET", b.url+"/admin", nil); got.status != 403 || b.state.Load().Revision != "5" {
			t.Errorf("%s: the good bundle is gone: %d, revision %s", tc.name, got.status, b.state.Load().Revision)
		}
	}
	p.publish(policySet{revision: 10, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
	b.at(t, 10)
	p.wait("a healthy report", func() bool {
		last := p.statuses[len(p.statuses)-1]
		return last["gatehouse"].(map[string]any)["status"] == "connected" && last["bundles"].(map[string]any)["authz"].(map[string]any)["active_revision"] == "10"
	})
}

func flip(data []byte) []byte {
	out := slices.Clone(data)
	out[len(out)/2] ^= 0x10
	return out
}

func TestSignedBundles(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, _ := ed25519.GenerateKey(rand.Reader)
	app := newApplication(t, nil)
	p := newPlane(t)
	s := policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}, signing: &bundle.SigningKey{ID: "k1", Key: private}}
	p.publish(s)
	b := start(t, p, app.URL, func(c *Config) { c.Verify = &bundle.Verify{KeyID: "k1", Key: public} }).at(t, 1)
	for i, key := range []*bundle.SigningKey{nil, {ID: "k1", Key: foreign}, {ID: "k2", Key: private}} {
		s.revision, s.signing = i+2, key
		refused := b.count.BundlesRefused.Load()
		p.publish(s)
		eventually(t, "the bundle to be refused", func() bool { return b.count.BundlesRefused.Load() > refused })
		if rev := b.state.Load().Revision; rev != "1" {
			t.Errorf("a bundle with a bad signature became active: %s", rev)
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
	if err != nil {
		t.Fatal(err)
	}
	key := &bundle.SigningKey{ID: "k1", Key: private}
	old, err := key.SignFresh(bundle.Freshness{Bouncer: 7, Revision: `"r5"`, Nonce: "an older poll's"})
	if err != nil {
		t.Fatal(err)
	}
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
			p.wait("the report to say so", func() bool {
				return len(p.statuses) > 0 && p.statuses[len(p.statuses)-1]["bundles"].(map[string]any)["authz"].(map[string]any)["code"] == "bundle_unconfirmed"
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
				t.Errorf("revision %s is active after 5", rev)
			}
		})
	}
}

// A revoked token ends updates and is reported as degraded, but does not change decisions. When the
// token works again, a new policy is active at once.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: adminOnly}}})
	b := start(t, p, app.URL, nil).at(t, 1)
	eventually(t, "a parked poll", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.parked > 0 })
	p.set(func() { p.denied = true })
	eventually(t, "the bouncer to notice", func() bool { return b.bundles.Progress().Denied })
	if s := b.reporter.Status(t.Context(), 0); s.Gatehouse.Status != "degraded" || s.Bundles["authz"].HTTPCode != "401" {
		t.Errorf("the status is %+v", s)
	}
	if got := fetch(t, "GET", b.url+"/open", nil); got.status != 200 {
		t.Errorf("an open path: %d", got.status)
	}
	p.set(func() { p.denied = false })
	p.publish(policySet{revision: 2, mode: "enforce", controls: []control{{id: 1, source: denyAll}}})
	b.at(t, 2)
}

// Decisions that could not be shipped are shipped later, each once, also after a restart.
func TestDecisionLogSurvivesRestart(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	app := newApplication(t, nil)
	p := newPlane(t)
	p.publish(policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: allowAll}}})
	dir := t.TempDir()
	here := func(c *Config) { c.DataDir = dir }
	b := start(t, p, app.URL, here).at(t, 1)
	p.set(func() { p.logsDown = true })
	for i := range 50 {
		fetch(t, "GET", fmt.Sprintf("%s/%d", b.url, i), nil)
	}
	b.stop()
	b = start(t, p, app.URL, here).at(t, 1)
	for i := range 50 {
		fetch(t, "GET", fmt.Sprintf("%s/%d", b.url, 50+i), nil)
	}
	p.set(func() { p.logsDown = false })
	ids, paths := map[string]bool{}, map[string]bool{}
	for _, e := range p.logged(100) {
		ids[e["decision_id"].(string)] = true
		paths[e["input"].(map[string]any)["resource"].(map[string]any)["path"].(string)] = true
	}
	if len(ids) != 100 || len(paths) != 100 {
		t.Errorf("%d decisions on %d paths arrived, want 100 of each", len(ids), len(paths))
	}
	eventually(t, "the spool to be empty", func() bool { return b.journal.Spool.Depth() == 0 })
}

func TestAuditLevels(t *testing.T) {
	app := newApplication(t, nil)
	p := newPlane(t)
	var set policySet
	set.revision, set.mode = 1, "enforce"
	set.config = map[string]any{"headers": []string{"x-channel"}}
	for i, level := range []string{"none", "basic", "detailed"} {
		set.resources = append(set.resources, target.Resource{ID: int64(i + 1), Type: "api", Path: "/" + level, AuditLevel: level, Doc: doc(t, `{}`)})
	}
	set.controls = []control{{id: 1, source: allowAll}}
	p.publish(set)
	b := start(t, p, app.URL, nil).at(t, 1)
	for _, level := range []string{"none", "basic", "detailed"} {
		fetch(t, "GET", b.url+"/"+level+"?token=canary", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer canary-token")
			r.Header.Set("Cookie", "canary-cookie")
			r.Header.Set("X-Channel", "web")
		})
	}
	events := p.logged(3)
	if events[0]["input"] != nil || events[0]["requested_by"] != nil {
		t.Errorf("level none tells of the caller: %v", events[0])
	}
	// Below detailed the input is kept for replay alone, redacted in the same way.
	if in := events[1]["input"].(map[string]any); in["resource"].(map[string]any)["path"] != "/basic" || strings.Contains(fmt.Sprint(in), "canary") {
		t.Errorf("level basic: %v", in)
	} else if h, ok := in["request"].(map[string]any)["headers"].(map[string]any); !ok || h["x-channel"] != "web" {
		t.Errorf("level basic: a replay has no input.request, which the control did not read: %v", in)
	}
	in := events[2]["input"].(map[string]any)
	if h := in["request"].(map[string]any)["headers"].(map[string]any); len(h) != 1 || h["x-channel"] != "web" {
		t.Errorf("level detailed: %v", in)
	}
	if all := fmt.Sprint(events); strings.Contains(all, "canary-") {
		t.Errorf("a credential is in the log: %s", all)
	}
}
