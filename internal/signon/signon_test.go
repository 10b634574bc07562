package signon

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// issuer is a provider whose key a test can replace, and which it can stop.
type issuer struct {
	*httptest.Server
	mu    sync.Mutex
	key   ed25519.PrivateKey
	kid   string
	down  bool
	calls int
}

// newIssuer starts a provider with the key one.
func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t, "one")
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.calls++
		if i.down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if req.URL.Path == "/keys" {
			key, err := jwk.Import(i.key.Public())
			if err == nil {
				err = key.Set("kid", i.kid)
			}
			if err != nil {
				t.Errorf("key of the provider: %v", err)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{key}})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/a", "token_endpoint": i.URL + "/t", "jwks_uri": i.URL + "/keys",
		})
	}))
	t.Cleanup(i.Close)
	return i
}

// rotate replaces the key of the provider.
func (i *issuer) rotate(t *testing.T, kid string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	errtest.Must(t, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.kid = key, kid
}

// token returns an ID token of the provider.
func (i *issuer) token(t *testing.T, now time.Time) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": i.URL, "aud": "client", "sub": "ann", "nonce": "n", "iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
	})
	token.Header["kid"] = i.kid
	text, err := token.SignedString(i.key)
	errtest.Must(t, err)
	return text
}

// TestRotation: when a token names a new key of a provider, the keys are fetched again, at a limited
// rate. The provider's configuration stays usable during an outage of a day.
func TestRotation(t *testing.T) {
	idp, now := newIssuer(t), time.Now()
	s := newService(t, &now)
	f := flow{Issuer: idp.URL, ClientID: "client", Nonce: "n"}
	check := func() error {
		p, err := s.provider(t.Context(), idp.URL)
		if err == nil {
			_, err = s.idClaims(t.Context(), p, idp.token(t, now), f)
		}
		return err
	}
	errtest.Must(t, check())
	if err := check(); err != nil || idp.calls != 2 {
		t.Errorf("second sign-in: %v after %d calls, want 2", err, idp.calls)
	}
	idp.rotate(t, "two")
	if err := check(); !fault.Is(err, fault.Unauthenticated) || idp.calls != 2 {
		t.Errorf("sign-in with a new key at once: got %v after %d calls, want unauthenticated after 2: invented key ids must not cause calls", err, idp.calls)
	}
	now = now.Add(time.Minute)
	if err := check(); err != nil || idp.calls != 3 {
		t.Errorf("sign-in with a new key a minute later: %v after %d calls, want 3", err, idp.calls)
	}
	idp.mu.Lock()
	idp.down = true
	idp.mu.Unlock()
	now = now.Add(2 * time.Hour)
	if err := check(); err != nil {
		t.Errorf("sign-in two hours into an outage: %v", err)
	}
	now = now.Add(24 * time.Hour)
	if err := check(); !fault.Is(err, fault.BadGateway) {
		t.Errorf("sign-in a day into an outage: got %v, want a bad gateway", err)
	}
}

// TestLocalPath: a return path never leads a browser to another host.
func TestLocalPath(t *testing.T) {
	for _, path := range []string{"/", "/policies", "/policies/3?environment=sandbox&x=//evil.test", "/a#b", "/%2F%2Fevil.test"} {
		if !localPath(path) {
			t.Errorf("localPath(%q) = false, want true", path)
		}
	}
	base, err := url.Parse("https://gate.test/login")
	errtest.Must(t, err)
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringOf(rapid.SampledFrom([]rune("/\\:.?#@%2Fa \t\r\n\x00éhttps"))).Filter(func(s string) bool { return s != "" }).Draw(t, "path")
		if !localPath(path) {
			return
		}
		// Browsers read a backslash as a slash, and drop tabs and line ends.
		read := strings.NewReplacer(`\`, "/", "\t", "", "\r", "", "\n", "").Replace(path)
		to, err := base.Parse(read)
		if err != nil || to.Scheme != "https" || to.Host != "gate.test" {
			t.Fatalf("localPath(%q) = true, and it leads to %v, %v", path, to, err)
		}
	})
}

// TestSettings: null restores the default of a member, and stored settings are folded.
func TestSettings(t *testing.T) {
	var ch Change
	if err := json.Unmarshal([]byte(`{"issuer":"https://a.test","client_id":"c","scopes":["email"],"role_claim":"groups",
		"role_map":{"x":["Resource Manager","buyer"]},"default_roles":["Viewer","viewer"],"allowed_email_domains":[" ACME.example "],"password_login":false}`), &ch); err != nil {
		t.Fatal(err)
	}
	s := defaults().apply(ch)
	errtest.Must(t, s.check())
	got, _ := json.Marshal([]any{s.Scopes, s.RoleMap, s.DefaultRoles, s.EmailDomains, s.PasswordLogin, s.CreateUsers, s.Enabled, s.roles()})
	if want := `[["openid","email"],{"x":["resource_manager","buyer"]},["viewer"],["acme.example"],false,false,true,["buyer","resource_manager","viewer"]]`; string(got) != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
	errtest.Must(t, json.Unmarshal([]byte(`{"scopes":null,"password_login":null,"role_map":null,"default_roles":null}`), &ch))
	if s = s.apply(ch); len(s.Scopes) != 3 || !s.PasswordLogin || len(s.roles()) != 0 {
		t.Errorf("settings after null = %+v", s)
	}
}

// TestSecretStaysWithItsIssuer: a stored client secret is sent only to the provider that it was given
// for, not to another host or another path of the same host.
func TestSecretStaysWithItsIssuer(t *testing.T) {
	s := &Service{Now: time.Now}
	before := record{Settings: defaults(), Secret: []byte("sealed")}
	before.Settings.Issuer, before.Settings.ClientID = "https://idp.test/realms/a", "c"
	for issuer, kept := range map[string]bool{
		"https://idp.test/realms/a": true, "https://idp.test/realms/b": false, "https://idp.test": false, "https://other.test/realms/a": false, "https://idp.test:8443/realms/a": false,
	} {
		var ch Change
		ch.Issuer.Sent, ch.Issuer.Value = true, issuer
		after, err := s.applyChange(scope.Scope{Tenant: scope.DefaultTenant}, before, ch)
		f, ok := errors.AsType[*fault.Error](err)
		if refused := ok && f.Code == "credential_required"; refused == kept || kept && (err != nil || len(after.Secret) == 0) {
			t.Errorf("change of the issuer to %s: got %v, want the secret kept: %v", issuer, err, kept)
		}
	}
}
