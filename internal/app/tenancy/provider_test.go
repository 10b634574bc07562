package tenancy_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/lestrrat-go/jwx/v3/jwk"
)

// provider is an identity provider that behaves as a test says, right or wrong.
type provider struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	key    *rsa.PrivateKey
	kid    string
	grants map[string]grant
	// config overrides members of its configuration. claims are those of ID tokens, and info is the
	// user information.
	config, claims, info map[string]any
	// sign signs the claims of an ID token.
	sign func(jwt.MapClaims) string
	// codes counts the calls of the token endpoint.
	codes int
}

// grant is an authorization request and the claims of its person.
type grant struct {
	query  url.Values
	claims map[string]any
}

// newProvider starts an identity provider.
func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, grants: map[string]grant{}, claims: map[string]any{}, config: map[string]any{}, info: map[string]any{}}
	p.newKey()
	p.sign = p.signToken
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.configuration)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(p.info)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// newKey creates a key.
func (p *provider) newKey() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.kid = key, "first"
}

func (p *provider) configuration(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	doc := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"userinfo_endpoint": p.URL + "/userinfo", "end_session_endpoint": p.URL + "/end?theme=dark", "response_types_supported": []string{"code"},
		"code_challenge_methods_supported": []string{"S256"},
	}
	maps.Copy(doc, p.config)
	_ = json.NewEncoder(w).Encode(doc)
}

func (p *provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key, err := jwk.Import(&p.key.PublicKey)
	if err == nil {
		err = key.Set("kid", p.kid)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{key}})
}

// authorize signs a person in, and returns a code for the authorization request with the current
// claims.
func (p *provider) authorize(query url.Values) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.grants[code] = grant{query, maps.Clone(p.claims)}
	return code
}

// token exchanges a code, and checks what a certified provider checks: the client, that the code is
// new, the redirect URI and PKCE.
func (p *provider) token(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.codes++
	id, secret, _ := req.BasicAuth()
	secret, _ = url.QueryUnescape(secret) // RFC 6749 section 2.3.1
	g, known := p.grants[req.PostFormValue("code")]
	delete(p.grants, req.PostFormValue("code"))
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(req.PostFormValue("code_verifier")))
	if !known || id != "client" || secret != "s:cr t" || req.PostFormValue("redirect_uri") != g.query.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != g.query.Get("code_challenge") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	claims := jwt.MapClaims{
		"iss": p.URL, "aud": "client", "sub": "subject-1", "nonce": g.query.Get("nonce"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for name, v := range g.claims {
		if v == nil {
			delete(claims, name)
		} else {
			claims[name] = v
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "access", "token_type": "Bearer", "id_token": p.sign(claims)})
}

// signToken signs claims with the provider's key.
func (p *provider) signToken(claims jwt.MapClaims) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = p.kid
	text, err := token.SignedString(p.key)
	if err != nil {
		p.t.Error(err)
	}
	return text
}

// setClaims sets the claims of the next sign-ins.
func (p *provider) setClaims(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = claims
}

// hmacWithPublicKey signs claims with the public key as a shared secret.
func (p *provider) hmacWithPublicKey(claims jwt.MapClaims) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	public, err := jwk.Import(&p.key.PublicKey)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	pem, err := jwk.EncodePEM(public)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, claims)
	token.Header["kid"] = p.kid
	text, err := token.SignedString(pem)
	if err != nil {
		p.t.Error(err)
	}
	return text
}

// unsigned returns a function that encodes claims with the algorithm none.
func unsigned(t *testing.T) func(jwt.MapClaims) string {
	return func(claims jwt.MapClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
		if err != nil {
			t.Error(err)
		}
		return text
	}
}
