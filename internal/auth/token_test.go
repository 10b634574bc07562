package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestTokenAbuse is the table of tokens that must be refused: forged, altered, expired, of others.
func TestTokenAbuse(t *testing.T) {
	r := one(t)
	r.person(scope.DefaultTenant, "alice", user.RoleViewer)
	good := r.token(scope.DefaultTenant, "alice")
	r.want("the token", Credential{Bearer: good}, "ok")
	r.want("the token as an API key", Credential{APIKey: good}, "401")
	parts := strings.Split(good, ".")
	c, err := r.verify(context.Background(), good)
	if err != nil {
		t.Fatal(err)
	}
	key := r.signer
	enc := base64.RawURLEncoding.EncodeToString
	header := func(h map[string]any) string { raw, _ := json.Marshal(h); return enc(raw) }
	forge := func(h map[string]any) string { // our real key under another header
		text := header(h) + "." + parts[1]
		return text + "." + enc(ed25519.Sign(key.private, []byte(text)))
	}
	claim := func(change func(*claims)) string { // our real key under other claims
		cc := c
		change(&cc)
		text, err := r.sign(cc)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	hmac := func(secret []byte) string {
		tok := jwt.NewWithClaims(jwt.SigningMethodHS256, c)
		tok.Header["kid"], tok.Header["typ"] = key.KID, tokenType
		text, _ := tok.SignedString(secret)
		return text
	}
	_, stolen, _ := ed25519.GenerateKey(rand.Reader)
	abuse := map[string]string{
		"empty": "", "dots": "..", "many dots": strings.Repeat(".", 4000), "a million dots": strings.Repeat(".", 1<<20), "1 MB": strings.Repeat("a", 1<<20),
		"empty signature": parts[0] + "." + parts[1] + ".", "no signature": parts[0] + "." + parts[1], "four parts": good + ".x", "JWE": "a.b.c.d.e",
		"HS256 over the public key": hmac(key.Public), "HS256 over its JWK": hmac([]byte(r.JWKS().Keys[0].X)), "other key": "",
		"cut signature": good[:len(good)-1], "longer signature": good + "A", "padded": good + "==", "trailing space": good + " ", "trailing NUL": good + "\x00",
		"wrong iss": claim(func(c *claims) { c.Issuer = "other" }), "no iss": claim(func(c *claims) { c.Issuer = "" }),
		"wrong aud": claim(func(c *claims) { c.Audience = jwt.ClaimStrings{"other"} }), "no aud": claim(func(c *claims) { c.Audience = nil }),
		"two aud":       claim(func(c *claims) { c.Audience = jwt.ClaimStrings{audience, "other"} }),
		"no exp":        claim(func(c *claims) { c.ExpiresAt = nil }),
		"exp 1 s ago":   claim(func(c *claims) { c.ExpiresAt = jwt.NewNumericDate(r.clock.Now().Add(-time.Second)) }),
		"nbf ahead":     claim(func(c *claims) { c.NotBefore = jwt.NewNumericDate(r.clock.Now().Add(time.Minute)) }),
		"other tenant":  claim(func(c *claims) { c.Tenant = dbtest.Second }),
		"no tenant":     claim(func(c *claims) { c.Tenant = "" }),
		"odd tenant":    claim(func(c *claims) { c.Tenant = "../../etc" }),
		"no session":    claim(func(c *claims) { c.ID = "" }),
		"other session": claim(func(c *claims) { c.ID = "11111111-1111-1111-1111-111111111111" }),
	}
	text := parts[0] + "." + parts[1]
	abuse["other key"] = text + "." + enc(ed25519.Sign(stolen, []byte(text)))
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "", "HS256", "RS256", "ES256", "eddsa", "Ed25519"} {
		abuse["alg "+alg] = forge(map[string]any{"alg": alg, "typ": tokenType, "kid": key.KID})
		abuse["alg "+alg+" unsigned"] = header(map[string]any{"alg": alg, "typ": tokenType, "kid": key.KID}) + "." + parts[1] + "."
	}
	for _, kid := range []any{"", "../../../dev/null", "' OR 1=1 --", "http://127.0.0.1/k", key.KID + "\x00", 7, nil, []string{key.KID}, strings.Repeat("k", 3000)} {
		abuse["kid "+header(map[string]any{"k": kid})] = forge(map[string]any{"alg": "EdDSA", "typ": tokenType, "kid": kid})
	}
	for _, typ := range []any{"JWT", "at+JWT", "application/at+jwt", "", "id_token", nil} {
		abuse["typ "+header(map[string]any{"t": typ})] = forge(map[string]any{"alg": "EdDSA", "typ": typ, "kid": key.KID})
	}
	for name, value := range map[string]any{
		"jku": "http://127.0.0.1/jwks", "x5u": "http://127.0.0.1/x", "jwk": map[string]any{"kty": "OKP", "crv": "Ed25519", "x": enc(key.Public)},
		"x5c": []string{"AAAA"}, "crit": []string{"exp"}, "b64": false, "cty": "JWT", "zip": "DEF", "ALG": "none",
	} {
		abuse["header "+name] = forge(map[string]any{"alg": "EdDSA", "typ": tokenType, "kid": key.KID, name: value})
	}
	for what, text := range abuse {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.want(what, Credential{Bearer: text}, "401")
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<20 {
			t.Errorf("%s cost %d KiB", what, (after.TotalAlloc-before.TotalAlloc)>>10)
		}
	}
	r.want("the token, after all that", Credential{Bearer: good}, "ok")
	r.clock.pass(TokenLife - time.Second)
	r.want("a second before its end", Credential{Bearer: good}, "ok")
	r.clock.pass(time.Second)
	r.want("at its end", Credential{Bearer: good}, "401")
}

// TestTokenAbuseIsCheap: refusing a very long token needs little memory.
func TestTokenAbuseIsCheap(t *testing.T) {
	r := one(t)
	for _, text := range []string{strings.Repeat(".", 1<<20), strings.Repeat("a", 1<<20), "a." + strings.Repeat("b", 1<<20) + ".c"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			r.is(Credential{Bearer: text})
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / 100; per > 1<<16 {
			t.Errorf("%d bytes for a token of %d", per, len(text))
		}
	}
}

func TestSigningKeysRotate(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		second := newReplica(t, r.Stores, r.clock)
		if a, b := r.JWKS(), second.JWKS(); len(a.Keys) != 1 || len(b.Keys) != 1 || a.Keys[0] != b.Keys[0] {
			t.Fatalf("two replicas, two keys: %v, %v", a, b)
		}
		r.person(scope.DefaultTenant, "alice", user.RoleViewer)
		r.clock.pass(r.Rotate)
		old := r.token(scope.DefaultTenant, "alice")
		if err := r.rotate(ctx); err != nil {
			t.Fatal(err)
		}
		if keys := r.JWKS().Keys; len(keys) != 2 {
			t.Fatalf("rotated: %v", keys)
		}
		settling := r.token(scope.DefaultTenant, "alice")
		if strings.Split(settling, ".")[0] != strings.Split(old, ".")[0] {
			t.Error("a new key signs before the others know it")
		}
		r.clock.pass(settleTime)
		if err := r.rotate(ctx); err != nil {
			t.Fatal(err)
		}
		fresh := r.token(scope.DefaultTenant, "alice")
		if strings.Split(fresh, ".")[0] == strings.Split(old, ".")[0] {
			t.Error("the old key goes on signing")
		}
		for what, tok := range map[string]string{"old": old, "settling": settling, "fresh": fresh} {
			r.want(what+" here", Credential{Bearer: tok}, "ok")
			second.want(what+" on a replica that slept", Credential{Bearer: tok}, "ok")
		}
		r.clock.pass(3 * r.Rotate)
		if err := r.rotate(ctx); err != nil {
			t.Fatal(err)
		}
		if keys := r.JWKS().Keys; len(keys) != 1 {
			t.Errorf("keys that no living token was signed with: %v", keys)
		}
	})
}

func TestPortalToken(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.person(scope.DefaultTenant, "alice", user.RolePolicyAuthor)
		login := r.token(scope.DefaultTenant, "alice")
		alice, _, _ := r.Authenticate(ctx, Credential{Bearer: login})
		g, err := r.Portal(ctx, alice, []string{"policies:read"})
		if err != nil || g.ExpiresIn != 3600 || g.TokenType != "bearer" || g.Scope != "policies:read" {
			t.Fatalf("granted %+v, %v", g, err)
		}
		sc, _ := r.is(Credential{Bearer: g.AccessToken})
		if !sc.Permissions.Has("policies:read") || sc.Permissions.Has("policies:write") || sc.Permissions.Has("resources:read") {
			t.Errorf("narrowed to %v", sc.Permissions)
		}
		if _, err := r.Portal(ctx, sc, []string{"policies:write"}); code(err) != "403" {
			t.Errorf("a narrow token widens: %v", err)
		}
		again, err := r.Portal(ctx, sc, nil)
		if err != nil {
			t.Fatal(err)
		}
		if sc, _ := r.is(Credential{Bearer: again.AccessToken}); sc.Permissions.Has("policies:write") {
			t.Error("a narrow token's token is wide")
		}
		if err := signOut(r, alice); err != nil {
			t.Fatal(err)
		}
		for what, tok := range map[string]string{"login": login, "its token": g.AccessToken, "that one's token": again.AccessToken} {
			r.want(what+" after logout", Credential{Bearer: tok}, "401")
		}
		end := r.clock.Now().Add(10 * time.Minute)
		k, err := r.CreateKey(ctx, root(), KeyDraft{Name: "k", Scopes: []string{"decisions:read"}, ExpiresAt: &end})
		if err != nil {
			t.Fatal(err)
		}
		g, err = r.Token(ctx, stranger(scope.DefaultTenant), TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key})
		if err != nil || g.ExpiresIn != 600 || g.Scope != "decisions:read" {
			t.Fatalf("client_credentials: %+v, %v", g, err)
		}
		sc, who, err := r.Authenticate(ctx, Credential{Bearer: g.AccessToken})
		if err != nil || who.KeyID != k.ID || !who.RateLimited || sc.Actor.Kind != scope.Key || !sc.Permissions.Has("decisions:read") {
			t.Errorf("token of a key: %+v, %+v, %v", sc, who, err)
		}
		if _, err := r.RevokeKey(ctx, root(), k.ID); err != nil {
			t.Fatal(err)
		}
		r.want("token of a revoked key", Credential{Bearer: g.AccessToken}, "401")
	})
}
