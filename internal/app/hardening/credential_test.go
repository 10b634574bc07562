package hardening_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

var credentialCases = []hardeningCase{
	{"A1 forged tokens", forgedTokens},
	{"A2 credentials that ended", endedCredentials},
	{"A3 API keys nearly right", nearMissKeys},
	{"A4 one answer to every failed sign-in", failedLogins},
	{"A8 two credentials", twoCredentials},
}

// encodePart encodes a part of a token: JSON, or a text as it is.
func encodePart(v any) string {
	text, ok := v.(string)
	if !ok {
		raw, _ := json.Marshal(v)
		text = string(raw)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// listen accepts connections and counts them. No request may cause one.
func listen(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	calls = &atomic.Int64{}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			c.Close()
		}
	}()
	return "http://" + listener.Addr().String(), calls
}

// forgedTokens checks that the server accepts only the tokens that it issued, byte for byte, and
// that it fetches nothing to which a token refers.
func forgedTokens(t *testing.T, r *fixture) {
	there, calls := listen(t)
	there += "/keys"
	token := r.alpha.admin.Bearer
	parts := strings.Split(token, ".")
	headerText, _ := base64.RawURLEncoding.DecodeString(parts[0])
	payloadText, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var header, payload map[string]any
	if json.Unmarshal(headerText, &header) != nil || json.Unmarshal(payloadText, &payload) != nil {
		t.Fatalf("the access token %q is not a JWT", token)
	}
	jwks := (&apptest.Client{Base: r.s.URL}).Do(t, "GET", "/.well-known/jwks.json", nil).Want(200)
	public, _ := jwks.Get("keys").([]any)[0].(map[string]any)["x"].(string)
	publicRaw, _ := base64.RawURLEncoding.DecodeString(public)
	evilPublic, evil, _ := ed25519.GenerateKey(rand.Reader)
	with := func(m map[string]any, pairs ...any) map[string]any {
		out := maps.Clone(m)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i].(string)] = pairs[i+1]
		}
		return out
	}
	signed := func(h any, key []byte, p any) string {
		text := encodePart(h) + "." + encodePart(p)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	evilly := func(h any, p any) string {
		text := encodePart(h) + "." + encodePart(p)
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(evil, []byte(text)))
	}
	jwk := map[string]any{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(evilPublic), "kid": header["kid"]}

	forged := map[string]string{
		"empty signature":        parts[0] + "." + parts[1] + ".",
		"no signature":           parts[0] + "." + parts[1],
		"short signature":        token[:len(token)-1],
		"padded signature":       token + "==",
		"a byte more":            token + "A",
		"five parts":             token + ".." + parts[2],
		"an array of parts":      `{"payload":"` + parts[1] + `"}`,
		"another tenant":         parts[0] + "." + encodePart(with(payload, "tid", r.beta.id)) + "." + parts[2],
		"another person":         parts[0] + "." + encodePart(with(payload, "sub", "admin")) + "." + parts[2],
		"a later end":            parts[0] + "." + encodePart(with(payload, "exp", 4102444800)) + "." + parts[2],
		"our header, their key":  evilly(string(headerText), payload),
		"embedded key":           evilly(with(header, "jwk", jwk), payload),
		"key by URL":             evilly(with(header, "jku", there), payload),
		"certificate by URL":     evilly(with(header, "x5u", there), payload),
		"certificate":            evilly(with(header, "x5c", []string{"AAAA"}), payload),
		"key id is a URL":        evilly(with(header, "kid", there), payload),
		"key id is a path":       signed(with(header, "alg", "HS256", "kid", "../../../../../../dev/null"), nil, payload),
		"key id is SQL":          evilly(with(header, "kid", "' UNION SELECT 'x' --"), payload),
		"unknown crit":           encodePart(with(header, "crit", []string{"x"}, "x", 1)) + "." + parts[1] + "." + parts[2],
		"header of other order":  encodePart(`{"typ":"at+jwt" ,"alg":"EdDSA"}`) + "." + parts[1] + "." + parts[2],
		"header twice":           encodePart(`{"alg":"EdDSA","alg":"none"}`) + "." + parts[1] + ".",
		"nested":                 evilly(with(header, "cty", "JWT"), token),
		"many dots":              strings.Repeat(".", 30_000),
		"long":                   parts[0] + "." + strings.Repeat("A", 60_000) + "." + parts[2],
		"deep header":            encodePart(strings.Repeat("[", 10_000)) + "." + parts[1] + "." + parts[2],
		"JWE":                    encodePart(map[string]any{"alg": "dir", "enc": "A256GCM"}) + "..AAAA.AAAA.AAAA",
		"HMAC, public key":       signed(with(header, "alg", "HS256"), publicRaw, payload),
		"HMAC, public key, text": signed(with(header, "alg", "HS256"), []byte(public), payload),
		"HMAC, whole JWK":        signed(with(header, "alg", "HS256"), jwks.Body, payload),
		"HMAC, no key":           signed(with(header, "alg", "HS256"), nil, payload),
	}
	for _, alg := range []any{"none", "None", "NONE", "nOnE", "", " ", nil, "none ", "HS256", "RS256", "ES256", "PS256", "EdDSA ", "eddsa", "Ed25519", 1, []string{"EdDSA"}} {
		forged[fmt.Sprintf("alg %v", alg)] = encodePart(with(header, "alg", alg)) + "." + parts[1] + "."
		forged[fmt.Sprintf("alg %v, signed", alg)] = encodePart(with(header, "alg", alg)) + "." + parts[1] + "." + parts[2]
	}
	// The last character of base64 has spare bits. The server accepts only the spelling that it issued.
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if last := token[len(token)-1]; byte(c) != last {
			forged[fmt.Sprintf("last character %d", i)] = token[:len(token)-1] + string(c)
		}
	}
	first := ""
	r.wantUnchanged(t, func() {
		for what, text := range forged {
			c := withRequestID(r.s.Anonymous())
			c.Bearer = text
			res := c.Do(t, "GET", "/auth/me", nil)
			if first == "" {
				first = string(res.Body)
			}
			if res.Status != 401 || string(res.Body) != first {
				t.Errorf("GET /auth/me with a forged token (%s) = %d %s, want 401 %s as for the others", what, res.Status, res.Body, first)
			}
			checkRefusal(t, res, what)
		}
	})
	// The server does not read headers of this size.
	for _, text := range []string{strings.Repeat(".", 2_000_000), strings.Repeat("A", 2_000_000)} {
		c := r.s.WithToken(text)
		if res, err := c.Try("GET", "/auth/me", nil); err == nil && res.Status != 401 && res.Status != 431 {
			t.Errorf("GET /auth/me with a token of 2 MB = %d, want 401 or 431", res.Status)
		}
	}
	for what, c := range map[string]*apptest.Client{
		"a token as an API key":   {Base: r.alpha.admin.Base, APIKey: token},
		"a token as a basic pair": (&apptest.Client{Base: r.alpha.admin.Base}).With("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("root:"+token))),
		"another scheme":          (&apptest.Client{Base: r.alpha.admin.Base}).With("Authorization", "Token "+token),
		"a cookie":                (&apptest.Client{Base: r.alpha.admin.Base}).With("Cookie", "access_token="+token+"; token="+token),
	} {
		c.Do(t, "GET", "/auth/me", nil).Expect(what, 401)
	}
	r.s.Anonymous().Do(t, "GET", "/auth/me?access_token="+token+"&token="+token, nil).Expect("a token in the query", 401)
	r.do(t, r.alpha.admin, "GET", "/auth/me", 200, nil)
	if n := calls.Load(); n != 0 {
		t.Errorf("the server opened %d connections to an address in a token, want none", n)
	}
}

// endedCredentials checks that a credential that ended is refused within a second on this replica,
// and within five seconds on the others.
func endedCredentials(t *testing.T, r *fixture) {
	p := r.tenant(t, "Leavers")
	bases := []string{r.s.Anonymous().Base}
	if r.s.DatabaseURL() != "" {
		bases = append(bases, r.s.Replica(t).Anonymous().Base)
	}
	wantEnded := func(what string, c *apptest.Client, path string, status int, f func()) {
		t.Helper()
		var seen []*apptest.Client
		for _, base := range bases {
			replica := *c
			replica.Base = base
			replica.Do(t, "GET", path, nil).Want(200)
			seen = append(seen, &replica)
		}
		f()
		for i, replica := range seen {
			limit := []time.Duration{time.Second, 5 * time.Second}[i]
			apptest.Eventually(t, limit, func() error {
				if res := replica.Do(t, "GET", path, nil); res.Status != status {
					return fmt.Errorf("%s: GET %s on replica %d = %d %s, want %d", what, path, i, res.Status, res.Body, status)
				}
				return nil
			})
		}
	}
	users := func(id string) string { return "/users/" + id }

	id, c := r.newPerson(t, p, "viewer")
	portal := r.s.WithToken(c.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
	own := r.s.WithKey(c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Text("key"))
	wantEnded("role removed", c, "/policies", 401, func() { p.admin.Do(t, "PUT", users(id)+"/roles", body{"roles": []string{"operator"}}).Want(200) })
	for what, c := range map[string]*apptest.Client{"a token made with the person's token": portal, "a key of the person": own} {
		c.Do(t, "GET", "/policies", nil).Expect("role removed, "+what, 401, 403)
	}

	id, c = r.newPerson(t, p, "viewer")
	wantEnded("password changed", c, "/auth/me", 401, func() { p.admin.Do(t, "PUT", users(id), body{"password": "another good password 7"}).Want(200) })

	id, c = r.newPerson(t, p, "viewer")
	own.APIKey = c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Text("key")
	wantEnded("disabled", c, "/auth/me", 401, func() { p.admin.Do(t, "PUT", users(id), body{"status": "disabled"}).Want(200) })
	r.do(t, own, "GET", "/auth/me", 401, nil)

	id, c = r.newPerson(t, p, "viewer")
	own.APIKey = c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Text("key")
	wantEnded("deleted", c, "/auth/me", 401, func() { p.admin.Do(t, "DELETE", users(id), nil).Want(200) })
	r.do(t, own, "GET", "/auth/me", 401, nil)

	_, c = r.newPerson(t, p, "viewer")
	child := r.s.WithToken(c.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
	wantEnded("signed out", c, "/auth/me", 401, func() { c.Do(t, "POST", "/auth/logout", nil).Want(200) })
	r.do(t, child, "GET", "/auth/me", 401, nil)
	r.do(t, c, "POST", "/auth/logout", 401, nil)

	keyID, key := r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}})
	child.Bearer = key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token")
	wantEnded("key revoked", key, "/policies", 401, func() { p.admin.Do(t, "DELETE", "/tenants/"+p.id+"/api-keys/"+keyID, nil).Want(200) })
	r.do(t, child, "GET", "/policies", 401, nil)

	keyID, key = r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}})
	wantEnded("key rotated", key, "/policies", 401, func() {
		p.admin.Do(t, "POST", "/tenants/"+p.id+"/api-keys/"+keyID+"/rotate", body{}).Want(201)
	})

	_, key = r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}, "expires_at": time.Now().Add(1500 * time.Millisecond).UTC().Format(time.RFC3339Nano)})
	r.do(t, key, "GET", "/policies", 200, nil)
	apptest.Eventually(t, 5*time.Second, func() error {
		if res := key.Do(t, "GET", "/policies", nil); res.Status != 401 {
			return fmt.Errorf("GET /policies with an expired key = %d, want 401", res.Status)
		}
		return nil
	})
}

// nearMissKeys checks that a key that is nearly right is refused, and that the server stores and
// logs no key, password or token in clear.
func nearMissKeys(t *testing.T, r *fixture) {
	key := r.alpha.key.APIKey
	wantRefused := func(what, text string) {
		t.Helper()
		for _, c := range []*apptest.Client{{Base: r.alpha.key.Base, APIKey: text}, {Base: r.alpha.key.Base, Bearer: text}} {
			c.Do(t, "GET", "/policies", nil).Expect(what, 401)
		}
	}
	for i := range key {
		c := byte('A')
		if key[i] == c {
			c = 'B'
		}
		wantRefused(fmt.Sprintf("character %d changed", i), key[:i]+string(c)+key[i+1:])
	}
	for what, text := range map[string]string{
		"one short": key[:len(key)-1], "first missing": key[1:], "one more": key + "0", "upper case": strings.ToUpper(key), "lower case": strings.ToLower(key),
		"twice": key + key, "with a comma": key + "," + key, "without prefix": strings.TrimPrefix(key, "gh_tenant_"), "other kind": strings.Replace(key, "tenant", "production", 1),
		"a wildcard": "%", "SQL": "' OR '1'='1", "long": strings.Repeat("a", 50_000),
	} {
		wantRefused(what, text)
	}
	for _, path := range []string{"/policies?api_key=" + key, "/policies?X-API-Key=" + key, "/policies?key=" + key} {
		r.s.Anonymous().Do(t, "GET", path, nil).Expect("a key in the query", 401)
	}
	if raw := r.sendRaw(t, "GET /api/v1/policies HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-Key: "+key+"\x00\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 400") && !strings.HasPrefix(raw, "HTTP/1.1 401") {
		t.Errorf("GET /policies with a NUL behind the key answered %s, want 400 or 401", raw)
	}
	r.do(t, r.alpha.key, "GET", "/policies", 200, nil)
	for place, text := range map[string]string{"store": r.s.StoredText(t), "log": r.s.Log.String()} {
		for what, secret := range map[string]string{"key": key, "password": apptest.Password, "token": r.alpha.admin.Bearer} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s contains a %s in clear", place, what)
			}
		}
	}
	if text := r.alpha.admin.Do(t, "GET", "/tenants/"+r.alpha.id+"/api-keys", nil).Want(200).Body; bytes.Contains(text, []byte(key)) {
		t.Errorf("GET /tenants/%s/api-keys shows a key: %s", r.alpha.id, text)
	}
}

// sendRaw sends the bytes over a new connection and returns all that the server answers.
func (r *fixture) sendRaw(t *testing.T, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.s.URL, "http://"))
	errtest.Must(t, err)
	defer conn.Close()
	errtest.Must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = conn.Write([]byte(text)) // the server may have refused already
	var out bytes.Buffer
	_, _ = out.ReadFrom(conn) // a reset also ends the answer
	return out.String()
}

// failedLogins checks that all failed sign-ins get the same answer, whatever is wrong. A caller who
// may not create people also gets one answer, whether a name is taken or not.
func failedLogins(t *testing.T, r *fixture) {
	p := r.tenant(t, "Logins")
	addUser := func(name string, members body) string {
		draft := body{"username": name, "email": name + "@example.com", "roles": []string{"viewer"}}
		maps.Copy(draft, members)
		id := p.admin.Do(t, "POST", "/users", draft).Want(201).Text("id")
		return id
	}
	password := body{"password": apptest.Password}
	addUser("good", password)
	addUser("locked", password)
	addUser("no-password", nil)
	disabled := addUser("disabled", password)
	p.admin.Do(t, "PUT", "/users/"+disabled, body{"status": "disabled"}).Want(200)
	login := func(name, password string) *apptest.Response {
		return withRequestID(r.s.Anonymous()).With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/login", body{"username": name, "password": password})
	}
	for i := range 10 {
		// Both names, in any case, count for one account. An account that does not exist also counts.
		login([]string{"locked", "LOCKED", "locked@example.com", " Locked@EXAMPLE.com"}[i%4], "wrong")
		login([]string{"not-there", "NOT-THERE"}[i%2], "wrong")
	}
	out := login("not-there", "wrong")
	if out.Status != 429 || out.Header.Get("Retry-After") == "" || out.Get("error") != "locked" {
		t.Errorf("sign-in after ten wrong guesses = %d %s, want 429 locked with Retry-After", out.Status, out.Body)
	}
	for _, c := range [][2]string{{"locked", apptest.Password}, {"locked", "wrong"}, {"locked@example.com", apptest.Password}} {
		res := login(c[0], c[1])
		if res.Status != 429 || res.Get("error") != "locked" || res.Get("message") != out.Get("message") {
			t.Errorf("sign-in to a locked account = %d %s, want %s as for an account that does not exist", res.Status, res.Body, out.Body)
		}
	}
	want := login("nobody", "wrong").Expect("an unknown name", 401)
	checkRefusal(t, want, "login")
	for _, c := range []struct{ what, name, password string }{
		{"wrong password", "good", "wrong"},
		{"empty password", "good", ""},
		{"long password", "good", strings.Repeat("x", 1024)},
		{"disabled", "disabled", apptest.Password},
		{"no password set", "no-password", ""},
		{"no password set, any", "no-password", "no password has this hash"},
		{"empty name", "", apptest.Password},
		{"SQL", "' OR 1=1 --", "x"},
		{"wildcard", "%", apptest.Password},
		{"an id", disabled, apptest.Password},
		{"password of another case", "good", strings.ToUpper(apptest.Password)},
		{"password cut", "good", apptest.Password[:len(apptest.Password)-1]},
	} {
		res := login(c.name, c.password)
		if res.Status != want.Status || !bytes.Equal(res.Body, want.Body) || res.Header.Get("Retry-After") != "" {
			t.Errorf("sign-in (%s) = %d %s, want %d %s as for an unknown name", c.what, res.Status, res.Body, want.Status, want.Body)
		}
	}
	login("good", apptest.Password).Want(200)
	// The lock applies to this account from this address. It does not apply to the tenant or the address.
	r.s.LoginTo(t, p.id, "root", apptest.Password)
	// The token endpoint reveals no more (RFC 6749 section 5.2), and its guesses count for the same lock.
	grant := func(name string) *apptest.Response {
		return withRequestID(r.s.Anonymous()).With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/token", body{"grant_type": "password", "username": name, "password": apptest.Password})
	}
	base := grant("nobody")
	if res := grant("locked"); res.Status != 429 || res.Get("error") != "locked" {
		t.Errorf("POST /auth/token for a locked account = %d %s, want 429 locked", res.Status, res.Body)
	}
	for _, name := range []string{"disabled", "no-password"} {
		if res := grant(name); res.Status != http.StatusBadRequest || !bytes.Equal(res.Body, base.Body) {
			t.Errorf("POST /auth/token for %s = %d %s, want 400 %s as for an unknown name", name, res.Status, res.Body, base.Body)
		}
	}
	_, viewer := r.newPerson(t, p, "policy_author")
	taken := r.do(t, withRequestID(viewer), "POST", "/users", 403, body{"username": "new", "email": "good@example.com", "password": apptest.Password})
	free := r.do(t, withRequestID(viewer), "POST", "/users", 403, body{"username": "new", "email": "free@example.com", "password": apptest.Password})
	if !bytes.Equal(taken.Body, free.Body) {
		t.Errorf("POST /users without permission: a taken address = %s, a free one = %s, want the same answer", taken.Body, free.Body)
	}
}

// twoCredentials checks that a request with two credentials is refused, whichever they are.
func twoCredentials(t *testing.T, r *fixture) {
	pairs := map[string]func(h http.Header){
		"a key and another tenant's token": func(h http.Header) {
			h["X-Api-Key"], h["Authorization"] = []string{r.alpha.key.APIKey}, []string{"Bearer " + r.beta.admin.Bearer}
		},
		"a key and a token of one tenant": func(h http.Header) {
			h["X-Api-Key"], h["Authorization"] = []string{r.alpha.key.APIKey}, []string{"Bearer " + r.alpha.admin.Bearer}
		},
		"one key in both places": func(h http.Header) {
			h["X-Api-Key"], h["Authorization"] = []string{r.alpha.key.APIKey}, []string{"Bearer " + r.alpha.key.APIKey}
		},
		"two keys":      func(h http.Header) { h["X-Api-Key"] = []string{r.alpha.key.APIKey, r.beta.key.APIKey} },
		"one key twice": func(h http.Header) { h["X-Api-Key"] = []string{r.alpha.key.APIKey, r.alpha.key.APIKey} },
		"two tokens": func(h http.Header) {
			h["Authorization"] = []string{"Bearer " + r.alpha.admin.Bearer, "Bearer " + r.beta.admin.Bearer}
		},
		"a key and an empty one": func(h http.Header) { h["X-Api-Key"] = []string{r.alpha.key.APIKey, ""} },
		"a key and basic": func(h http.Header) {
			h["X-Api-Key"], h["Authorization"] = []string{r.alpha.key.APIKey}, []string{"Basic eDp5"}
		},
	}
	r.wantUnchanged(t, func() {
		for what, set := range pairs {
			for _, op := range r.withSecurity() {
				c := &apptest.Client{Base: r.s.URL + "/api/v1", Header: http.Header{}}
				set(c.Header)
				res := op.send(t, c, op.pathWith(r.alpha.valueOf))
				res.Expect(op.id+" with "+what, 400)
				checkRefusal(t, res, op.id+" "+what)
			}
		}
	})
}
