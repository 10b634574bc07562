package enforce

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// issuer is an identity provider with one key of each type.
type issuer struct {
	*httptest.Server
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
	ed      ed25519.PrivateKey
	fetches atomic.Int32
	down    atomic.Bool
	without atomic.Pointer[string] // a key id that is no longer published
}

// issuerKey is the RSA key of all identity providers, because generating one takes long.
var issuerKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// newIssuer starts an identity provider.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	is := &issuer{}
	var err error
	if is.rsa, err = issuerKey(); err != nil {
		t.Fatal(err)
	}
	if is.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if _, is.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	point, err := is.ec.PublicKey.Bytes()
	errtest.Must(t, err)
	keys := []map[string]any{
		{"kty": "RSA", "kid": "rsa", "use": "sig", "alg": "RS256", "n": b64(is.rsa.N.Bytes()), "e": "AQAB"},
		{"kty": "EC", "kid": "ec", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
		{"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(is.ed.Public().(ed25519.PublicKey))},
		{"kty": "oct", "kid": "hmac", "k": b64([]byte("secret"))},
		{"kty": "RSA", "kid": "enc", "use": "enc", "n": b64(is.rsa.N.Bytes()), "e": "AQAB"},
	}
	is.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		is.fetches.Add(1)
		if is.down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var out []map[string]any
		for _, k := range keys {
			if gone := is.without.Load(); gone == nil || k["kid"] != *gone {
				out = append(out, k)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": out})
	}))
	t.Cleanup(is.Close)
	return is
}

const testIssuer, testAudience = "https://idp.test", "shop"

// config returns the configuration of a bouncer that trusts the issuer.
func (is *issuer) config() map[string]any {
	return map[string]any{"jwks_url": is.URL, "issuer": testIssuer, "audience": testAudience}
}

// claims returns the claims of a valid token for ann, with changes; nil removes a claim.
func claims(change map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{"iss": testIssuer, "aud": testAudience, "sub": "ann", "email": "ann@shop.test", "groups": []string{"staff", "admin"}, "exp": time.Now().Add(time.Hour).Unix()}
	for k, v := range change {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return c
}

// token returns a token that the key kid signs.
func (is *issuer) token(t testing.TB, kid string, change map[string]any) string {
	switch kid {
	case "ec":
		return signed(t, jwt.SigningMethodES256, kid, is.ec, claims(change), nil)
	case "ed":
		return signed(t, jwt.SigningMethodEdDSA, kid, is.ed, claims(change), nil)
	}
	return signed(t, jwt.SigningMethodRS256, kid, is.rsa, claims(change), nil)
}

// signed returns a token with any header.
func signed(t testing.TB, m jwt.SigningMethod, kid any, key any, c jwt.Claims, head map[string]any) string {
	t.Helper()
	tok := jwt.NewWithClaims(m, c)
	if kid != nil {
		tok.Header["kid"] = kid
	}
	maps.Copy(tok.Header, head)
	s, err := tok.SignedString(key)
	errtest.Must(t, err)
	return s
}

// Only a token that the configured issuer signed for this audience, and that is valid now, proves an
// identity. Every other token is refused, also where no identity is needed.
func TestTokens(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": is.config()}, controls: []control{{id: 1, source: adminOnly}}}, nil)

	der, err := x509.MarshalPKIXPublicKey(is.rsa.Public())
	errtest.Must(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	good := is.token(t, "rsa", nil)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + "."
	other, _ := rsa.GenerateKey(rand.Reader, 2048)
	rs := func(kid any, key crypto.PrivateKey, change, head map[string]any) string {
		return signed(t, jwt.SigningMethodRS256, kid, key, claims(change), head)
	}
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"RS256": {good, 200}, "ES256": {is.token(t, "ec", nil), 200}, "EdDSA": {is.token(t, "ed", nil), 200},
		"without a key id":           {rs(nil, is.rsa, nil, nil), 200},
		"audience in a list":         {is.token(t, "rsa", map[string]any{"aud": []string{"x", testAudience}}), 200},
		"access token type":          {rs("rsa", is.rsa, nil, map[string]any{"typ": "at+jwt"}), 200},
		"no admin":                   {is.token(t, "rsa", map[string]any{"groups": []string{"staff"}}), 403},
		"no roles, in so many words": {is.token(t, "rsa", map[string]any{"roles": []string{}}), 403},
		"no claim of roles":          {is.token(t, "rsa", map[string]any{"roles": nil}), 200},
		"roles are an empty text":    {is.token(t, "rsa", map[string]any{"roles": ""}), 403},
		"roles are no list":          {is.token(t, "rsa", map[string]any{"roles": map[string]any{"admin": true}}), 403},
		"roles before groups":        {is.token(t, "rsa", map[string]any{"roles": []string{"staff"}}), 403},
		"expired":                    {is.token(t, "rsa", map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), 401},
		"no expiry":                  {is.token(t, "rsa", map[string]any{"exp": nil}), 401},
		"not yet":                    {is.token(t, "rsa", map[string]any{"nbf": time.Now().Add(time.Minute).Unix()}), 401},
		"wrong issuer":               {is.token(t, "rsa", map[string]any{"iss": "https://evil.test"}), 401},
		"no issuer":                  {is.token(t, "rsa", map[string]any{"iss": nil}), 401},
		"wrong audience":             {is.token(t, "rsa", map[string]any{"aud": "other"}), 401},
		"no audience":                {is.token(t, "rsa", map[string]any{"aud": nil}), 401},
		"audience in other case":     {is.token(t, "rsa", map[string]any{"aud": nil, "Aud": testAudience}), 401},
		"issuer in other case":       {is.token(t, "rsa", map[string]any{"iss": nil, "iSS": testIssuer}), 401},
		"expiry in other case":       {is.token(t, "rsa", map[string]any{"exp": nil, "EXP": time.Now().Add(time.Hour).Unix()}), 401},
		"expiry as text":             {is.token(t, "rsa", map[string]any{"exp": "9999999999"}), 401},
		"no subject":                 {is.token(t, "rsa", map[string]any{"sub": nil}), 401},
		"subject with a line break":  {is.token(t, "rsa", map[string]any{"sub": "ann\r\nX-Evil: 1"}), 401},
		"none":                       {none, 401},
		"None":                       {base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".", 401},
		"HS256 over the public key":  {signed(t, jwt.SigningMethodHS256, "rsa", publicPEM, claims(nil), nil), 401},
		"RS512":                      {signed(t, jwt.SigningMethodRS512, "rsa", is.rsa, claims(nil), nil), 401},
		"another key":                {rs("rsa", other, nil, nil), 401},
		"the wrong kind of key":      {rs("ec", is.rsa, nil, nil), 401},
		"an encryption key":          {rs("enc", is.rsa, nil, nil), 401},
		"unknown key id":             {rs("../../etc/passwd", is.rsa, nil, nil), 401},
		"key id is a number":         {rs(7, is.rsa, nil, nil), 401},
		"embedded key":               {rs("new", other, nil, map[string]any{"jwk": map[string]any{"kty": "RSA"}, "jku": is.URL}), 401},
		"critical extension":         {rs("rsa", is.rsa, nil, map[string]any{"crit": []string{"b64"}}), 401},
		"another type":               {rs("rsa", is.rsa, nil, map[string]any{"typ": "secevent+jwt"}), 401},
		"no signature":               {parts[0] + "." + parts[1] + ".", 401},
		"altered":                    {parts[0] + "." + parts[1][:len(parts[1])-2] + "AA." + parts[2], 401},
		"truncated":                  {good[:len(good)-1], 401},
		"a million dots":             {strings.Repeat(".", 20_000), 401},
		"too large":                  {strings.Repeat("a", 20_000) + "." + parts[1] + "." + parts[2], 401},
		"empty":                      {"", 401},
		"not a token":                {"abc", 401},
	} {
		app.take()
		got := fetch(t, "GET", b.url+"/admin", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tc.token) })
		wantAnswer(t, name, got, tc.want)
		if tc.want == 401 && !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: WWW-Authenticate is %q, want a Bearer challenge", name, got.header.Get("WWW-Authenticate"))
		}
		seen := app.take()
		if (len(seen) == 1) != (tc.want == 200) {
			t.Errorf("%s: %d requests reached the application", name, len(seen))
		}
		if len(seen) == 1 && (seen[0].Header.Get("X-Auth-Request-User") != "ann" || seen[0].Header.Get("X-Auth-Request-Groups") != "staff,admin") {
			t.Errorf("%s: the application gets %v, want ann and her groups", name, seen[0].Header)
		}
	}
	if n := is.fetches.Load(); n > 3 {
		t.Errorf("the key set was fetched %d times, want at most 3: made-up key ids must not cause fetches", n)
	}
	// An open path with a bad token is refused too: a control is in scope.
	wantAnswer(t, "a bad token on an open path", fetch(t, "GET", b.url+"/open", func(r *http.Request) { r.Header.Set("Authorization", "Bearer bad") }), 401)
	// Two credentials are no credential.
	wantAnswer(t, "two tokens", fetch(t, "GET", b.url+"/open", func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good} }), 400)
}

// Without the key set of the issuer no token is valid, and requests do not fetch it again and again.
func TestUnreachableKeysFailClosed(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	is.down.Store(true)
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, policySet{revision: 1, mode: "enforce", config: map[string]any{"identity": is.config()}, controls: []control{{id: 1, source: allowAll}}}, nil)
	for range 5 {
		got := fetch(t, "GET", b.url+"/x", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+is.token(t, "rsa", nil)) })
		wantAnswer(t, "without keys", got, 503, "identity_unavailable")
	}
	if n := is.fetches.Load(); n != 1 {
		t.Errorf("%d fetches within ten seconds, want 1", n)
	}
	if n := len(app.take()); n != 0 {
		t.Errorf("%d requests reached the application, want none", n)
	}
}

// A key that the issuer no longer publishes ends its tokens. An outage of the issuer does not, for a day.
func TestTokensOfWithdrawnKeysFail(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	now := time.Now()
	clock := func() time.Time { return now }
	v, err := identity.NewVerifier(identity.Config{JWKSURL: is.URL, Issuer: testIssuer, Audience: identity.Texts{testAudience}}, is.Client(), clock)
	errtest.Must(t, err)
	token := is.token(t, "rsa", nil)
	for range 2 {
		if who, err := v.Verify(t.Context(), token); err != nil || who.ID != "ann" {
			t.Fatalf("the token proves %v %v, want ann", who, err)
		}
	}
	gone := "rsa"
	is.without.Store(&gone)
	errtest.Must(t, v.Refresh(t.Context()))
	if _, err := v.Verify(t.Context(), token); err != identity.ErrBadToken {
		t.Errorf("a token of a withdrawn key: %v, want ErrBadToken", err)
	}
	// An outage does not end trust at once, but a day without keys does.
	is.without.Store(nil)
	errtest.Must(t, v.Refresh(t.Context()))
	long := is.token(t, "rsa", map[string]any{"exp": now.Add(100 * time.Hour).Unix()})
	is.down.Store(true)
	now = now.Add(time.Hour)
	if _, err := v.Verify(t.Context(), long); err != nil {
		t.Errorf("after an outage of an hour: %v, want no error", err)
	}
	now = now.Add(25 * time.Hour)
	if _, err := v.Verify(t.Context(), long); err != identity.ErrUnavailable {
		t.Errorf("after an outage of a day: %v, want ErrUnavailable", err)
	}
}

// Headers that name an identity or an address count only from a trusted proxy, in no spelling from others.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	p, untrusting := startPublished(t, app.URL, enforcing(adminOnly), nil)
	proxied := start(t, p, app.URL, func(c *Config) { c.TrustedProxies = []string{"127.0.0.0/8"} }).at(t, 1)

	for _, head := range []string{
		"X-Auth-Request-User: root", "x-auth-request-user: root", "X_Auth_Request_User: root", "X-Auth_Request-User: root", "X.Auth.Request.User: root",
		"X-AUTH-REQUEST-GROUPS: admin", "X-Auth-Request-Email: root@x", "X-Auth-Request-Preferred-Username: root", "X-Forwarded-User: root",
		"X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1", "True-Client-IP: 127.0.0.1", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https",
		"X-Forwarded-Prefix: /x", "X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X-Original-Method: GET", "X-Gatehouse-Status: ok", "X-Decision: PERMIT", "Remote-User: root",
	} {
		name, val, _ := strings.Cut(head, ": ")
		app.take()
		out := sendRaw(t, untrusting.url, "GET /admin HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n"+head+"\r\nX-Auth-Request-Groups: admin\r\n\r\n")
		if rawStatus(out) != 403 {
			t.Errorf("GET /admin with %s = %.40q, want 403", head, out)
		}
		out = sendRaw(t, untrusting.url, "GET /open HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n"+head+"\r\n"+head+"\r\n\r\n")
		seen := app.take()
		if rawStatus(out) != 200 || len(seen) != 1 {
			t.Errorf("GET /open with %s = %.40q, %d requests reached the application, want 200 and one", head, out, len(seen))
			continue
		}
		for k, values := range seen[0].Header {
			folded, _ := header.Fold(k)
			if want, _ := header.Fold(http.CanonicalHeaderKey(name)); folded == want {
				if len(values) != 1 || values[0] == val && !strings.HasPrefix(k, "X-Real") && k != "X-Forwarded-For" {
					t.Errorf("%s reached the application as %s: %v", head, k, values)
				}
			}
		}
	}
	for _, conn := range []string{"X-Auth-Request-User", "close, x-auth-request-groups", "X_Auth_Request_User", "X-Forwarded-For", "Authorization", "X-Real-Ip"} {
		out := sendRaw(t, untrusting.url, "GET /open HTTP/1.1\r\nHost: app.test\r\nConnection: "+conn+"\r\n\r\n")
		if rawStatus(out) != 400 {
			t.Errorf("Connection: %s = %.40q, want 400", conn, out)
		}
	}

	app.take()
	ok := fetch(t, "GET", proxied.url+"/admin", func(r *http.Request) {
		r.Header.Set("X-Auth-Request-User", "ann")
		r.Header.Set("X-Auth-Request-Groups", "staff, admin")
		r.Header.Set("X-Forwarded-For", "198.51.100.9")
		r.Header.Set("X-Forwarded-Proto", "https")
	})
	seen := app.take()
	if ok.status != 200 || len(seen) != 1 {
		t.Fatalf("an identity from a trusted proxy: %s, %d requests reached the application, want 200 and one", ok, len(seen))
	}
	h := seen[0].Header
	if h.Get("X-Auth-Request-User") != "ann" || h.Get("X-Real-Ip") != "198.51.100.9" || h.Get("X-Forwarded-For") != "198.51.100.9, 127.0.0.1" || h.Get("X-Forwarded-Proto") != "https" {
		t.Errorf("the application gets %v, want the user, the address and the scheme that the proxy names", h)
	}
	two := fetch(t, "GET", proxied.url+"/admin", func(r *http.Request) { r.Header["X-Auth-Request-User"] = []string{"ann", "root"} })
	wantAnswer(t, "two identities", two, 400)
}

// A head may have 64 KiB.
func TestHeadIsBounded(t *testing.T) {
	t.Parallel()
	app := newApplication(t, nil)
	_, b := startPublished(t, app.URL, enforcing(allowAll), nil)
	for size, want := range map[int]int{60 << 10: 200, 66 << 10: 431, 1 << 20: 431} {
		out := sendRaw(t, b.url, fmt.Sprintf("GET /x HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nX-Big: %s\r\n\r\n", strings.Repeat("a", size)))
		if rawStatus(out) != want {
			t.Errorf("a head of %d bytes: %.40q, want %d", size, out, want)
		}
	}
}
