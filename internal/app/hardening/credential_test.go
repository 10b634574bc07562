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
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var credentialCases = []hardeningCase{
	{"A1 forged tokens", forgedTokens},
	{"A2 credentials that ended", endedCredentials},
	{"A3 API keys nearly right", nearlyKeys},
	{"A4 one answer to every failed sign-in", failedLogins},
	{"A8 two credentials", twoCredentials},
}

func segment(v any) string {
	text, ok := v.(string)
	if !ok {
		raw, _ := json.Marshal(v)
		text = string(raw)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// forgedTokens: no token but our own, byte for byte, is taken; nothing that a
// token refers to is ever fetched.
func forgedTokens(t *testing.T, r *rig) {
	var calls atomic.Int64
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer trap.Close()
	go func() {
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			c.Close()
		}
	}()
	there := "http://" + trap.Addr().String() + "/keys"

	token := r.alpha.admin.Bearer
	parts := strings.Split(token, ".")
	headerText, _ := base64.RawURLEncoding.DecodeString(parts[0])
	payloadText, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var header, payload map[string]any
	if json.Unmarshal(headerText, &header) != nil || json.Unmarshal(payloadText, &payload) != nil {
		t.Fatalf("not a token: %s", token)
	}
	jwks := (&apptest.Client{Base: r.s.URL}).Do(t, "GET", "/.well-known/jwks.json", nil).Want(200)
	public, _ := jwks.Get("keys").([]any)[0].(map[string]any)["x"].(string)
	publicRaw, _ := base64.RawURLEncoding.DecodeString(public)
	evilPublic, evil, _ := ed25519.GenerateKey(rand.Reader)
	with := func(m map[string]any, pairs ...any) map[string]any {
		out := map[string]any{}
		for k, v := range m {
			out[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i].(string)] = pairs[i+1]
		}
		return out
	}
	signed := func(h any, key []byte, p any) string {
		text := segment(h) + "." + segment(p)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	evilly := func(h any, p any) string {
		text := segment(h) + "." + segment(p)
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
		"another tenant":         parts[0] + "." + segment(with(payload, "tid", r.beta.id)) + "." + parts[2],
		"another person":         parts[0] + "." + segment(with(payload, "sub", "admin")) + "." + parts[2],
		"a later end":            parts[0] + "." + segment(with(payload, "exp", 4102444800)) + "." + parts[2],
		"our header, their key":  evilly(string(headerText), payload),
		"embedded key":           evilly(with(header, "jwk", jwk), payload),
		"key by URL":             evilly(with(header, "jku", there), payload),
		"certificate by URL":     evilly(with(header, "x5u", there), payload),
		"certificate":            evilly(with(header, "x5c", []string{"AAAA"}), payload),
		"key id is a URL":        evilly(with(header, "kid", there), payload),
		"key id is a path":       signed(with(header, "alg", "HS256", "kid", "../../../../../../dev/null"), nil, payload),
		"key id is SQL":          evilly(with(header, "kid", "' UNION SELECT 'x' --"), payload),
		"unknown crit":           segment(with(header, "crit", []string{"x"}, "x", 1)) + "." + parts[1] + "." + parts[2],
		"header of other order":  segment(`{"typ":"at+jwt" ,"alg":"EdDSA"}`) + "." + parts[1] + "." + parts[2],
		"header twice":           segment(`{"alg":"EdDSA","alg":"none"}`) + "." + parts[1] + ".",
		"nested":                 evilly(with(header, "cty", "JWT"), token),
		"many dots":              strings.Repeat(".", 30_000),
		"long":                   parts[0] + "." + strings.Repeat("A", 60_000) + "." + parts[2],
		"deep header":            segment(strings.Repeat("[", 10_000)) + "." + parts[1] + "." + parts[2],
		"JWE":                    segment(map[string]any{"alg": "dir", "enc": "A256GCM"}) + "..AAAA.AAAA.AAAA",
		"HMAC, public key":       signed(with(header, "alg", "HS256"), publicRaw, payload),
		"HMAC, public key, text": signed(with(header, "alg", "HS256"), []byte(public), payload),
		"HMAC, whole JWK":        signed(with(header, "alg", "HS256"), jwks.Body, payload),
		"HMAC, no key":           signed(with(header, "alg", "HS256"), nil, payload),
	}
	for _, alg := range []any{"none", "None", "NONE", "nOnE", "", " ", nil, "none ", "HS256", "RS256", "ES256", "PS256", "EdDSA ", "eddsa", "Ed25519", 1, []string{"EdDSA"}} {
		forged[fmt.Sprintf("alg %v", alg)] = segment(with(header, "alg", alg)) + "." + parts[1] + "."
		forged[fmt.Sprintf("alg %v, signed", alg)] = segment(with(header, "alg", alg)) + "." + parts[1] + "." + parts[2]
	}
	// The last character of base64 has spare bits: only one spelling is ours.
	for i, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if last := token[len(token)-1]; byte(c) != last {
			forged[fmt.Sprintf("last character %d", i)] = token[:len(token)-1] + string(c)
		}
	}
	first := ""
	r.unchanged(t, func() {
		for what, text := range forged {
			c := asked(r.s.Anonymous())
			c.Bearer = text
			res := c.Do(t, "GET", "/auth/me", nil)
			if first == "" {
				first = string(res.Body)
			}
			if res.Status != 401 || string(res.Body) != first {
				t.Errorf("%s: %d %s, others were told %s", what, res.Status, res.Body, first)
			}
			denial(t, res, what)
		}
	})
	// Too big to be read at all.
	for _, text := range []string{strings.Repeat(".", 2_000_000), strings.Repeat("A", 2_000_000)} {
		c := r.s.Anonymous()
		c.Bearer = text
		if res, err := c.Try("GET", "/auth/me", nil); err == nil && res.Status != 401 && res.Status != 431 {
			t.Errorf("a token of 2 MB: %d", res.Status)
		}
	}
	for what, c := range map[string]*apptest.Client{
		"a token as an API key":   {Base: r.alpha.admin.Base, APIKey: token},
		"a token as a basic pair": (&apptest.Client{Base: r.alpha.admin.Base}).With("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("root:"+token))),
		"another scheme":          (&apptest.Client{Base: r.alpha.admin.Base}).With("Authorization", "Token "+token),
		"a cookie":                (&apptest.Client{Base: r.alpha.admin.Base}).With("Cookie", "access_token="+token+"; token="+token),
	} {
		if res := c.Do(t, "GET", "/auth/me", nil); res.Status != 401 {
			t.Errorf("%s: %d %s", what, res.Status, res.Body)
		}
	}
	if res := r.s.Anonymous().Do(t, "GET", "/auth/me?access_token="+token+"&token="+token, nil); res.Status != 401 {
		t.Errorf("a token in the query: %d", res.Status)
	}
	r.do(t, r.alpha.admin, "GET", "/auth/me", 200, nil)
	if n := calls.Load(); n != 0 {
		t.Errorf("%d connections went out for what a token refers to", n)
	}
}

// endedCredentials: what ended is refused at once on this replica and within
// five seconds on every other.
func endedCredentials(t *testing.T, r *rig) {
	p := r.tenant(t, "Leavers")
	bases := []string{r.s.Anonymous().Base}
	if r.s.DatabaseURL() != "" {
		bases = append(bases, r.s.Replica(t).Anonymous().Base)
	}
	end := func(what string, c *apptest.Client, path string, status int, f func()) {
		t.Helper()
		var seen []*apptest.Client
		for _, base := range bases {
			at := *c
			at.Base = base
			at.Do(t, "GET", path, nil).Want(200)
			seen = append(seen, &at)
		}
		f()
		for i, at := range seen {
			limit := []time.Duration{time.Second, 5 * time.Second}[i]
			apptest.Eventually(t, limit, func() error {
				if res := at.Do(t, "GET", path, nil); res.Status != status {
					return fmt.Errorf("%s: replica %d answers %d %s", what, i, res.Status, res.Body)
				}
				return nil
			})
		}
	}
	users := func(id string) string { return "/users/" + id }

	id, c := r.person(t, p, "viewer")
	portal := r.s.Anonymous()
	portal.Bearer, _ = c.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Get("access_token").(string)
	own := r.s.Anonymous()
	own.APIKey, _ = c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Get("key").(string)
	end("role removed", c, "/policies", 401, func() { p.admin.Do(t, "PUT", users(id)+"/roles", body{"roles": []string{"operator"}}).Want(200) })
	for what, c := range map[string]*apptest.Client{"a token made from it": portal, "a key of the person": own} {
		if res := c.Do(t, "GET", "/policies", nil); res.Status != 401 && res.Status != 403 {
			t.Errorf("role removed, %s: %d", what, res.Status)
		}
	}

	id, c = r.person(t, p, "viewer")
	end("password changed", c, "/auth/me", 401, func() { p.admin.Do(t, "PUT", users(id), body{"password": "another good password 7"}).Want(200) })

	id, c = r.person(t, p, "viewer")
	own.APIKey, _ = c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Get("key").(string)
	end("disabled", c, "/auth/me", 401, func() { p.admin.Do(t, "PUT", users(id), body{"status": "disabled"}).Want(200) })
	r.do(t, own, "GET", "/auth/me", 401, nil)

	id, c = r.person(t, p, "viewer")
	own.APIKey, _ = c.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{}).Want(201).Get("key").(string)
	end("deleted", c, "/auth/me", 401, func() { p.admin.Do(t, "DELETE", users(id), nil).Want(200) })
	r.do(t, own, "GET", "/auth/me", 401, nil)

	_, c = r.person(t, p, "viewer")
	child := r.s.Anonymous()
	child.Bearer, _ = c.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Get("access_token").(string)
	end("signed out", c, "/auth/me", 401, func() { c.Do(t, "POST", "/auth/logout", nil).Want(200) })
	r.do(t, child, "GET", "/auth/me", 401, nil)
	r.do(t, c, "POST", "/auth/logout", 401, nil)

	keyID, key := r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}})
	child.Bearer, _ = key.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Get("access_token").(string)
	end("key revoked", key, "/policies", 401, func() { p.admin.Do(t, "DELETE", "/tenants/"+p.id+"/api-keys/"+keyID, nil).Want(200) })
	r.do(t, child, "GET", "/policies", 401, nil)

	keyID, key = r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}})
	end("key rotated", key, "/policies", 401, func() {
		p.admin.Do(t, "POST", "/tenants/"+p.id+"/api-keys/"+keyID+"/rotate", body{}).Want(201)
	})

	_, key = r.key(t, p, body{"name": "k", "scopes": []string{"policies:read"}, "expires_at": time.Now().Add(1500 * time.Millisecond).UTC().Format(time.RFC3339Nano)})
	r.do(t, key, "GET", "/policies", 200, nil)
	apptest.Eventually(t, 5*time.Second, func() error {
		if res := key.Do(t, "GET", "/policies", nil); res.Status != 401 {
			return fmt.Errorf("an expired key: %d", res.Status)
		}
		return nil
	})
}

// nearlyKeys: a key is right or it is nothing; only its digest is kept.
func nearlyKeys(t *testing.T, r *rig) {
	key := r.alpha.key.APIKey
	try := func(what, text string) {
		t.Helper()
		for _, c := range []*apptest.Client{{Base: r.alpha.key.Base, APIKey: text}, {Base: r.alpha.key.Base, Bearer: text}} {
			if res := c.Do(t, "GET", "/policies", nil); res.Status != 401 {
				t.Errorf("%s: %d %s", what, res.Status, res.Body)
			}
		}
	}
	for i := range key {
		c := byte('A')
		if key[i] == c {
			c = 'B'
		}
		try(fmt.Sprintf("character %d changed", i), key[:i]+string(c)+key[i+1:])
	}
	for what, text := range map[string]string{
		"one short": key[:len(key)-1], "first missing": key[1:], "one more": key + "0", "upper case": strings.ToUpper(key), "lower case": strings.ToLower(key),
		"twice": key + key, "with a comma": key + "," + key, "without prefix": strings.TrimPrefix(key, "gh_tenant_"), "other kind": strings.Replace(key, "tenant", "production", 1),
		"a wildcard": "%", "SQL": "' OR '1'='1", "long": strings.Repeat("a", 50_000),
	} {
		try(what, text)
	}
	for _, path := range []string{"/policies?api_key=" + key, "/policies?X-API-Key=" + key, "/policies?key=" + key} {
		if res := r.s.Anonymous().Do(t, "GET", path, nil); res.Status != 401 {
			t.Errorf("a key in the query: %d", res.Status)
		}
	}
	if raw := r.wire(t, "GET /api/v1/policies HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-API-Key: "+key+"\x00\r\n\r\n"); !strings.HasPrefix(raw, "HTTP/1.1 400") && !strings.HasPrefix(raw, "HTTP/1.1 401") {
		t.Errorf("a key with a NUL: %s", raw)
	}
	r.do(t, r.alpha.key, "GET", "/policies", 200, nil)
	if text := r.s.StoredText(t); strings.Contains(text, key) || strings.Contains(text, apptest.Password) || strings.Contains(text, r.alpha.admin.Bearer) {
		t.Error("a key, a password or a token is kept in clear")
	}
	if log := r.s.Log.String(); strings.Contains(log, key) || strings.Contains(log, apptest.Password) || strings.Contains(log, r.alpha.admin.Bearer) {
		t.Error("a key, a password or a token is in the log")
	}
	if text := r.alpha.admin.Do(t, "GET", "/tenants/"+r.alpha.id+"/api-keys", nil).Want(200).Body; bytes.Contains(text, []byte(key)) {
		t.Errorf("a list of keys shows one: %s", text)
	}
}

// wire sends bytes as they are and gives all that comes back.
func (r *rig) wire(t *testing.T, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte(text)) // it may have been refused already
	var out bytes.Buffer
	_, _ = out.ReadFrom(conn) // a reset ends it too
	return out.String()
}

// failedLogins: whatever is wrong with a sign-in, the answer is the same, and so
// is that to whoever may not create people, whether a name is taken or not.
func failedLogins(t *testing.T, r *rig) {
	p := r.tenant(t, "Logins")
	make := func(name string, more body) string {
		d := body{"username": name, "email": name + "@example.com", "roles": []string{"viewer"}}
		for k, v := range more {
			d[k] = v
		}
		id, _ := p.admin.Do(t, "POST", "/users", d).Want(201).Get("id").(string)
		return id
	}
	good := body{"password": apptest.Password}
	make("good", good)
	make("locked", good)
	make("no-password", nil)
	disabled := make("disabled", good)
	p.admin.Do(t, "PUT", "/users/"+disabled, body{"status": "disabled"}).Want(200)
	login := func(name, password string) *apptest.Response {
		return asked(r.s.Anonymous()).With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/login", body{"username": name, "password": password})
	}
	for i := range 10 {
		// Under both names and in any case it is one account; one that is not there is none the less.
		login([]string{"locked", "LOCKED", "locked@example.com", " Locked@EXAMPLE.com"}[i%4], "wrong")
		login([]string{"not-there", "NOT-THERE"}[i%2], "wrong")
	}
	out := login("not-there", "wrong")
	if out.Status != 429 || out.Header.Get("Retry-After") == "" || out.Get("error") != "locked" {
		t.Errorf("after ten guesses: %d %s", out.Status, out.Body)
	}
	for _, c := range [][2]string{{"locked", apptest.Password}, {"locked", "wrong"}, {"locked@example.com", apptest.Password}} {
		res := login(c[0], c[1])
		if res.Status != 429 || res.Get("error") != "locked" || res.Get("message") != out.Get("message") {
			t.Errorf("locked: %d %s, an account that is not there is told %s", res.Status, res.Body, out.Body)
		}
	}
	want := login("nobody", "wrong")
	if want.Status != 401 {
		t.Errorf("an unknown name: %d %s", want.Status, want.Body)
	}
	denial(t, want, "login")
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
			t.Errorf("%s: %d %s, others are told %d %s", c.what, res.Status, res.Body, want.Status, want.Body)
		}
	}
	login("good", apptest.Password).Want(200)
	// The lock is on this account from here, not on the tenant or the address.
	r.login(t, p.id, "root", apptest.Password)
	// The token endpoint tells no more (RFC 6749 section 5.2), and counts to the same lock.
	grant := func(name string) *apptest.Response {
		return asked(r.s.Anonymous()).With("X-Tenant-ID", p.id).Do(t, "POST", "/auth/token", body{"grant_type": "password", "username": name, "password": apptest.Password})
	}
	base := grant("nobody")
	if res := grant("locked"); res.Status != 429 || res.Get("error") != "locked" {
		t.Errorf("a token for a locked account: %d %s", res.Status, res.Body)
	}
	for _, name := range []string{"disabled", "no-password"} {
		if res := grant(name); res.Status != http.StatusBadRequest || !bytes.Equal(res.Body, base.Body) {
			t.Errorf("a token for %s: %d %s, others are told %s", name, res.Status, res.Body, base.Body)
		}
	}
	_, viewer := r.person(t, p, "policy_author")
	taken := r.do(t, asked(viewer), "POST", "/users", 403, body{"username": "new", "email": "good@example.com", "password": apptest.Password})
	free := r.do(t, asked(viewer), "POST", "/users", 403, body{"username": "new", "email": "free@example.com", "password": apptest.Password})
	if !bytes.Equal(taken.Body, free.Body) {
		t.Errorf("a taken address: %s, a free one: %s", taken.Body, free.Body)
	}
}

// twoCredentials: a request with two credentials is refused, whichever they are.
func twoCredentials(t *testing.T, r *rig) {
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
	r.unchanged(t, func() {
		for what, set := range pairs {
			for _, op := range r.secured() {
				c := &apptest.Client{Base: r.s.URL + "/api/v1", Header: http.Header{}}
				set(c.Header)
				res := op.send(t, c, op.at(r.alpha.valueOf))
				if res.Status != 400 {
					t.Errorf("%s, %s: %d %s", op.id, what, res.Status, res.Body)
				}
				denial(t, res, op.id+" "+what)
			}
		}
	})
}
