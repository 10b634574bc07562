package enforce

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// policySet is the content of a test's bundle.
type policySet struct {
	revision  int
	controls  []control
	resources []target.Resource
	mode      string
	config    map[string]any
	bouncer   int
	signing   *bundle.SigningKey
	hashKey   masking.HashKey // empty: the bundle carries none
	token     string          // that the key is sealed for; empty: testToken
	agents    actor.Agents
}

type control struct {
	id, resource int64
	source       string
}

// enforcing returns revision 1 in enforce mode, with one control for every request.
func enforcing(source string) policySet {
	return policySet{revision: 1, mode: "enforce", controls: []control{{id: 1, source: source}}}
}

// loopbackProxies returns a bouncer's configuration that trusts the identity headers of this host.
func loopbackProxies() map[string]any {
	return map[string]any{"identity": map[string]any{"trusted_proxies": []string{"127.0.0.1"}}}
}

// inDir keeps the data of a bouncer in dir, also after a restart.
func inDir(dir string) func(*Config) { return func(c *Config) { c.DataDir = dir } }

// trustLoopback trusts the identity headers of this host, as an operator configures it.
func trustLoopback(c *Config) { c.TrustedProxies = []string{"127.0.0.1"} }

// bundle returns the policy set as a bundle of the control plane.
func (p policySet) bundle(t testing.TB) []byte {
	t.Helper()
	if p.bouncer == 0 {
		p.bouncer = 7
	}
	var compiled []*rego.Control
	for _, c := range p.controls {
		ctl, issues := rego.Compile(rego.Meta{ID: c.id, Name: fmt.Sprintf("control-%d", c.id), Version: 1, ResourceID: c.resource}, c.source)
		if len(issues) > 0 {
			t.Fatalf("control %d does not compile: %v", c.id, issues)
		}
		compiled = append(compiled, ctl)
	}
	set := rego.NewSet(rego.SetSpec{Revision: int64(p.revision), Env: "sandbox", Controls: compiled, Resources: p.resources})
	own, err := value.FromAny(map[string]any{"id": int64(p.bouncer), "name": "test", "environment": "sandbox", "mode": p.mode, "configuration": p.config})
	errtest.Must(t, err)
	meta := value.Object(value.Member{Key: "bouncer", Value: own})
	if !p.agents.IsEmpty() {
		m := bundle.AgentsMeta(p.agents)
		meta = meta.With(m.Key, m.Value)
	}
	if len(p.hashKey) > 0 {
		sealed, err := p.hashKey.SealFor(cmp.Or(p.token, testToken), masking.KeyPlace("", "k1"))
		errtest.Must(t, err)
		meta = meta.With(masking.KeyMember, value.Object(value.Member{Key: "id", Value: value.String("k1")}, value.Member{Key: "sealed", Value: value.String(sealed)}))
	}
	data, err := bundle.Write(bundle.Spec{Revision: fmt.Sprint(p.revision), Set: set, Signing: p.signing, Meta: meta})
	errtest.Must(t, err)
	return data
}

// plane is a control plane with the bridge protocol.
type plane struct {
	t   testing.TB
	srv *httptest.Server

	mu       sync.Mutex
	data     []byte
	etag     string
	revision int // of data; 0: there is none
	changed  chan struct{}
	denied   bool
	down     bool
	logsDown bool
	signing  *bundle.SigningKey
	// stands, if set, is the revision that the plane confirms. replays, if set, is a proof that it
	// repeats on every poll, as an attacker on the network path could.
	stands, replays string
	discard         bool     // takes the decision log without reading it
	polls           []string // If-None-Match of each
	parked          int
	events          []map[string]any
	statuses        []map[string]any
}

const testToken = "gh_bouncer_test"

// newPlane starts a control plane without a bundle.
func newPlane(t testing.TB) *plane {
	p := &plane{t: t, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/bridge/self", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"bouncer_id":7,"name":"test"}`) })
	mux.HandleFunc("GET /api/v1/bridge/bundles/7", p.serveBundle)
	mux.HandleFunc("POST /api/v1/bridge/logs", p.serveLogs)
	mux.HandleFunc("POST /api/v1/bridge/status", p.serveStatus)
	p.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		denied, down := p.denied, p.down
		p.mu.Unlock()
		switch {
		case down:
			panic(http.ErrAbortHandler)
		case denied || r.Header.Get("Authorization") != "Bearer "+testToken:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.srv.Close)
	return p
}

// set changes the plane under its lock, and wakes everything that waits for a change.
func (p *plane) set(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
	close(p.changed)
	p.changed = make(chan struct{})
}

// publish makes s the bundle of the bouncer.
func (p *plane) publish(s policySet) {
	data := s.bundle(p.t)
	p.set(func() {
		p.signing, p.data, p.etag, p.revision = s.signing, data, fmt.Sprintf(`"r%d"`, s.revision), s.revision
	})
}

// deploy publishes s, and waits until b enforces it.
func (p *plane) deploy(b *running, s policySet) {
	p.t.Helper()
	p.publish(s)
	b.at(p.t, s.revision)
}

func (p *plane) serveBundle(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.polls = append(p.polls, r.Header.Get("If-None-Match"))
	p.mu.Unlock()
	deadline := time.After(5 * time.Second)
	for {
		p.mu.Lock()
		data, etag, changed := p.data, p.etag, p.changed
		if p.denied || p.down {
			p.mu.Unlock()
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.parked++
		leave := func() { p.mu.Lock(); p.parked--; p.mu.Unlock() }
		proof, stands := p.replays, cmp.Or(p.stands, etag)
		if nonce := r.Header.Get(bundlesync.HeaderNonce); proof == "" && nonce != "" && p.signing != nil && p.signing.Key != nil {
			proof, _ = p.signing.SignFresh(bundle.Freshness{Bouncer: 7, Revision: stands, Nonce: nonce})
		}
		p.mu.Unlock()
		if proof != "" {
			w.Header().Set(bundlesync.HeaderFresh, proof)
		}
		if data != nil && !strings.Contains(r.Header.Get("If-None-Match"), etag) {
			leave()
			w.Header().Set("ETag", etag)
			w.Header().Set("Content-Type", "application/vnd.openpolicyagent.bundles")
			_, _ = w.Write(data)
			return
		}
		select {
		case <-changed:
			leave()
		case <-deadline:
			leave()
			w.WriteHeader(http.StatusNotModified)
			return
		case <-r.Context().Done():
			leave()
			return
		}
	}
}

func (p *plane) serveLogs(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	down, discard := p.logsDown, p.discard
	p.mu.Unlock()
	if discard {
		_, _ = io.Copy(io.Discard, r.Body)
		return
	}
	if down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		p.t.Errorf("the log chunk is not gzip: %v", err)
		return
	}
	var list []map[string]any
	if err := json.NewDecoder(z).Decode(&list); err != nil {
		p.t.Errorf("the log chunk is not a JSON array: %v", err)
	}
	p.set(func() { p.events = append(p.events, list...) })
}

func (p *plane) serveStatus(w http.ResponseWriter, r *http.Request) {
	var s map[string]any
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		p.t.Errorf("the status is not JSON: %v", err)
	}
	p.set(func() { p.statuses = append(p.statuses, s) })
}

// logged waits for n events and returns them.
func (p *plane) logged(n int) []map[string]any {
	p.t.Helper()
	var out []map[string]any
	p.wait(fmt.Sprintf("%d decision log events", n), func() bool { out = p.events; return len(out) >= n })
	return out
}

// wait waits until cond is true. It checks under the lock after each change.
func (p *plane) wait(what string, cond func() bool) {
	p.t.Helper()
	p.waitWithin(30*time.Second, what, cond)
}

func (p *plane) waitWithin(limit time.Duration, what string, cond func() bool) {
	p.t.Helper()
	late := time.After(limit)
	for {
		p.mu.Lock()
		ok, changed := cond(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			p.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// eventually waits until cond is true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	timetest.WaitFor(t, what, cond)
}

// running is a bouncer that is serving.
type running struct {
	*Bouncer
	url  string
	stop func()
}

// start starts a bouncer in front of upstream; change edits its configuration.
func start(t testing.TB, p *plane, upstream string, change func(*Config)) *running {
	t.Helper()
	return startLogging(t, p, upstream, change, io.Discard)
}

// startLogging is like start, and writes the log to log.
func startLogging(t testing.TB, p *plane, upstream string, change func(*Config), log io.Writer) *running {
	t.Helper()
	cfg := Config{URL: p.srv.URL, Token: testToken, Upstream: upstream, DataDir: t.TempDir(), Version: "test", Now: time.Now, Entropy: rand.Reader, PollWait: 5 * time.Second}
	if change != nil {
		change(&cfg)
	}
	b, err := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	errtest.Must(t, err)
	l, err := framing.Listen(t.Context(), "127.0.0.1:0", nil)
	errtest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, l) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the bouncer ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &running{b, "http://" + l.Addr().String(), stop}
}

// startPublished starts a bouncer in front of upstream, which enforces set, the first revision of a
// control plane of its own.
func startPublished(t testing.TB, upstream string, set policySet, change func(*Config)) (*plane, *running) {
	t.Helper()
	p := newPlane(t)
	p.publish(set)
	return p, start(t, p, upstream, change).at(t, set.revision)
}

// at waits until revision n is active.
func (r *running) at(t testing.TB, n int) *running {
	t.Helper()
	eventually(t, fmt.Sprintf("revision %d", n), func() bool {
		return strings.HasSuffix(r.state.Load().Revision, fmt.Sprint(n))
	})
	return r
}

// reply is a complete answer.
type reply struct {
	request string // method and target
	status  int
	header  http.Header
	body    string
	trailer http.Header
}

func (r reply) String() string { return fmt.Sprintf("%s = %d %.300s", r.request, r.status, r.body) }

// wantAnswer reports an answer with another status, or whose body lacks one of texts.
func wantAnswer(t testing.TB, name string, got reply, status int, texts ...string) {
	t.Helper()
	missing := slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(got.body, text) })
	if got.status != status || missing {
		t.Errorf("%s: %s, want %d %q", name, got, status, texts)
	}
}

// fetch sends a request without a body, unless edit adds one, on a connection of its own.
func fetch(t testing.TB, method, url string, edit func(*http.Request)) reply {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	errtest.Must(t, err)
	if edit != nil {
		edit(req)
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}).RoundTrip(req)
	errtest.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: the answer broke off: %v", method, url, err)
	}
	return reply{method + " " + req.URL.RequestURI(), resp.StatusCode, resp.Header, string(body), resp.Trailer}
}

// wantVerdict reports an answer to a gateway with another status or code.
func wantVerdict(t testing.TB, name string, got reply, status int, code string) {
	t.Helper()
	if has := got.header.Get(header.Status); got.status != status || has != code {
		t.Errorf("%s: %s with code %q, want %d %q", name, got, has, status, code)
	}
}

// sendRaw sends wire and returns everything that is received until the connection ends.
func sendRaw(t testing.TB, url, wire string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	errtest.Must(t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	errtest.Must(t, errtest.Of(io.WriteString(c, wire)))
	data, _ := io.ReadAll(c)
	return string(data)
}

// rawStatus returns the status of an answer of sendRaw; 0: it has none.
func rawStatus(answer string) (status int) {
	_, _ = fmt.Sscanf(answer, "HTTP/1.1 %d ", &status)
	return status
}

// application is an upstream that records the requests that it receives.
type application struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

// newApplication starts an application. Without h, it answers with the method and the target.
func newApplication(t testing.TB, h http.HandlerFunc) *application {
	a := &application{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r.Clone(context.Background()))
		a.mu.Unlock()
		if h != nil {
			h(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}))
	t.Cleanup(a.Close)
	return a
}

// take returns the requests since the last call.
func (a *application) take() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.seen
	a.seen = nil
	return out
}

// field returns the member of nested objects that path names; nil: there is none.
func field(object map[string]any, path ...string) any {
	for _, name := range path[:len(path)-1] {
		object, _ = object[name].(map[string]any)
	}
	return object[path[len(path)-1]]
}

// gzipped returns a text as gzip packs it.
func gzipped(text string) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return packed.String()
}

// receive waits for something from c.
func receive[T any](t testing.TB, what string, c <-chan T) (got T) {
	t.Helper()
	return receiveWithin(t, 30*time.Second, what, c)
}

// receiveWithin receives a value, and fails if none arrives within the limit.
func receiveWithin[T any](t testing.TB, limit time.Duration, what string, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(limit):
		t.Fatalf("timed out after %s waiting for %s", limit, what)
	}
	return got
}

// Controls that several tests use.
const (
	allowAll  = "package test\n\nallow := true\n"
	denyAll   = "package test\n\nallow := false\n\nreason := \"closed\"\n"
	adminOnly = `package test

default allow := false

allow if not startswith(input.resource.path, "/admin")

allow if "admin" in input.user.roles
`
)

// maskSSN masks members of JSON answers.
const maskSSN = `package masks

allow := true

mask := {"ssn": "last4", "card.number": "redact", "notes": "remove"}
`
