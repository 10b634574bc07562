package app_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// backend is a protected application that remembers what reached it.
type backend struct {
	addr string

	mu   sync.Mutex
	seen []*http.Request
}

func newBackend(t testing.TB, h http.HandlerFunc) *backend {
	b := &backend{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		if h != nil {
			h(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}))
	t.Cleanup(s.Close)
	b.addr = strings.TrimPrefix(s.URL, "http://")
	return b
}

// take gives the requests since the last call.
func (b *backend) take() []*http.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.seen
	b.seen = nil
	return out
}

// activate makes an active control.
func activate(t testing.TB, a *apptest.Client, name, env, rego string, members body) int64 {
	t.Helper()
	full := body{"name": name, "environment": env, "rego_code": rego, "status": "active"}
	maps.Copy(full, members)
	return a.Do(t, "POST", "/policies", full).Want(201).ID()
}

// enforce switches an environment to enforce; production follows sandbox.
func enforce(t testing.TB, a *apptest.Client, envs ...string) {
	t.Helper()
	for _, env := range envs {
		a.Do(t, "PUT", "/environments/"+env+"/enforcement", body{"mode": "enforce"}).Want(200)
	}
}

// answers waits until a GET of the path is answered with the status.
func answers(t testing.TB, c *apptest.Client, path string, status int, within time.Duration) *apptest.Response {
	t.Helper()
	var last *apptest.Response
	apptest.Eventually(t, within, func() error {
		res, err := c.Try("GET", path, nil)
		if err != nil {
			return err
		}
		if last = res; res.Status != status {
			return fmt.Errorf("%s answered %d, want %d: %s", path, res.Status, status, res.Body)
		}
		return nil
	})
	return last
}

// says waits until a process has written the text.
func says(t testing.TB, p *apptest.Process, text string, within time.Duration) {
	t.Helper()
	apptest.Eventually(t, within, func() error {
		if !strings.Contains(p.Log.String(), text) {
			return fmt.Errorf("no %q in\n%s", text, p.Log)
		}
		return nil
	})
}

// logEntry is an entry of the decision log.
type logEntry struct {
	ID        string `json:"decision_id"`
	RequestID string `json:"request_id"`
	Decision  string `json:"decision"`
	Effect    string `json:"effect"`
	Reason    string `json:"reason"`
	Mode      string `json:"mode"`
	Error     string `json:"error"`
	BouncerID int64  `json:"bouncer_id"`
	PolicyID  int64  `json:"policy_id"`
}

// decisionLog reads all of an environment's decision log.
func decisionLog(t testing.TB, a *apptest.Client, env string) []logEntry {
	t.Helper()
	var out []logEntry
	for cursor := ""; ; {
		var page struct {
			Logs []logEntry `json:"logs"`
			Next string     `json:"next_cursor"`
		}
		a.Do(t, "GET", "/decisions/audit?limit=1000&environment="+env+"&cursor="+cursor, nil).Want(200).Into(&page)
		out = append(out, page.Logs...)
		if cursor = page.Next; cursor == "" {
			return out
		}
	}
}

// byRequest groups a log by the ids of the requests.
func byRequest(log []logEntry) map[string][]logEntry {
	out := map[string][]logEntry{}
	for _, e := range log {
		out[e.RequestID] = append(out[e.RequestID], e)
	}
	return out
}

// issuer signs callers' tokens.
type issuer struct {
	key ed25519.PrivateKey
	pem string
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// identity is the bouncer's configuration that takes the issuer's tokens.
func (i *issuer) identity() body {
	return body{"issuer": "https://issuer.test", "audience": "app", "public_keys": []string{i.pem}}
}

func (i *issuer) token(t testing.TB, user string, roles ...string) string {
	t.Helper()
	return i.with(t, user, map[string]any{"roles": roles})
}

// with is a token with further claims.
func (i *issuer) with(t testing.TB, user string, more map[string]any) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": "https://issuer.test", "aud": "app", "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims).SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
