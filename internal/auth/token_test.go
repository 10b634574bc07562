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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// TestTokenAbuse: tokens that are forged, altered, expired or made for others are refused.
func TestTokenAbuse(t *testing.T) {
	r := newSQLite(t)
	r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
	good := r.signIn(scope.DefaultTenant, "alice")
	r.want("the token", Credential{Bearer: good}, "ok")
	r.want("the token as an API key", Credential{APIKey: good}, "401")
	parts := strings.Split(good, ".")
	c, err := r.verify(context.Background(), good)
	errtest.Must(t, err)
	key := r.signer
	enc := base64.RawURLEncoding.EncodeToString
	header := func(h map[string]any) string { raw, _ := json.Marshal(h); return enc(raw) }
	forge := func(h map[string]any) string { // the right key under another header
		text := header(h) + "." + parts[1]
		return text + "." + enc(ed25519.Sign(key.private, []byte(text)))
	}
	claim := func(change func(*claims)) string { // the right key under other claims
		cc := c
		change(&cc)
		text, err := r.sign(cc)
		errtest.Must(t, err)
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
			t.Errorf("%s: the refusal allocates %d KiB, want at most 1024", what, (after.TotalAlloc-before.TotalAlloc)>>10)
		}
	}
	r.want("the token, after all refusals", Credential{Bearer: good}, "ok")
	r.clock.Move(TokenLife - time.Second)
	r.want("a second before its end", Credential{Bearer: good}, "ok")
	r.clock.Move(time.Second)
	r.want("at its end", Credential{Bearer: good}, "401")
}

// TestTokenAbuseIsCheap: refusing a very long token needs little memory.
func TestTokenAbuseIsCheap(t *testing.T) {
	r := newSQLite(t)
	for _, text := range []string{strings.Repeat(".", 1<<20), strings.Repeat("a", 1<<20), "a." + strings.Repeat("b", 1<<20) + ".c"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			r.try(Credential{Bearer: text})
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / 100; per > 1<<16 {
			t.Errorf("refusing a token of %d bytes allocates %d bytes, want at most %d", len(text), per, 1<<16)
		}
	}
}

// TestSigningKeysRotate: a new key signs only once all replicas know it, and an old key stays published
// while tokens that it signed live.
func TestSigningKeysRotate(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		second := newReplica(t, r.Stores, r.clock)
		if a, b := r.JWKS(), second.JWKS(); len(a.Keys) != 1 || len(b.Keys) != 1 || a.Keys[0] != b.Keys[0] {
			t.Fatalf("JWKS of two replicas = %v and %v, want the same key", a, b)
		}
		r.createUser(scope.DefaultTenant, "alice", user.RoleViewer)
		r.clock.Move(r.Rotate)
		old := r.signIn(scope.DefaultTenant, "alice")
		errtest.Must(t, r.rotate(ctx))
		if keys := r.JWKS().Keys; len(keys) != 2 {
			t.Fatalf("JWKS after the rotation = %v, want 2 keys", keys)
		}
		settling := r.signIn(scope.DefaultTenant, "alice")
		if strings.Split(settling, ".")[0] != strings.Split(old, ".")[0] {
			t.Error("the new key signs before the other replicas know it")
		}
		r.clock.Move(settleTime)
		errtest.Must(t, r.rotate(ctx))
		fresh := r.signIn(scope.DefaultTenant, "alice")
		if strings.Split(fresh, ".")[0] == strings.Split(old, ".")[0] {
			t.Error("the old key still signs after the settling time")
		}
		for what, tok := range map[string]string{"old": old, "settling": settling, "fresh": fresh} {
			r.want(what+" here", Credential{Bearer: tok}, "ok")
			second.want(what+" on a replica that did not rotate", Credential{Bearer: tok}, "ok")
		}
		r.clock.Move(3 * r.Rotate)
		errtest.Must(t, r.rotate(ctx))
		if keys := r.JWKS().Keys; len(keys) != 1 {
			t.Errorf("JWKS after all tokens of the old key ended = %v, want 1 key", keys)
		}
	})
}

// TestPortalToken: a token made from another credential never does more than it, and ends with it.
func TestPortalToken(t *testing.T) {
	each(t, func(t *testing.T, r *replica) {
		ctx := context.Background()
		r.createUser(scope.DefaultTenant, "alice", user.RolePolicyAuthor)
		login := r.signIn(scope.DefaultTenant, "alice")
		alice, _, _ := r.Authenticate(ctx, Credential{Bearer: login})
		g, err := r.IssuePortalToken(ctx, alice, []string{"policies:read"})
		if err != nil || g.ExpiresIn != 3600 || g.TokenType != "bearer" || g.Scope != "policies:read" {
			t.Fatalf("Portal = %+v, %v", g, err)
		}
		sc, _ := r.try(Credential{Bearer: g.AccessToken})
		if !sc.Permissions.Has("policies:read") || sc.Permissions.Has("policies:write") || sc.Permissions.Has("resources:read") {
			t.Errorf("permissions of the narrow token = %v, want policies:read", sc.Permissions)
		}
		if _, err := r.IssuePortalToken(ctx, sc, []string{"policies:write"}); code(err) != "403" {
			t.Errorf("Portal of a narrow token for more: got %v, want 403", err)
		}
		again, err := r.IssuePortalToken(ctx, sc, nil)
		errtest.Must(t, err)
		if sc, _ := r.try(Credential{Bearer: again.AccessToken}); sc.Permissions.Has("policies:write") {
			t.Error("a token made from the narrow token has policies:write")
		}
		errtest.Must(t, signOut(r, alice))
		for what, tok := range map[string]string{"the login's token": login, "its token": g.AccessToken, "the token's token": again.AccessToken} {
			r.want(what+" after logout", Credential{Bearer: tok}, "401")
		}
		end := r.clock.Now().Add(10 * time.Minute)
		k, err := r.CreateKey(ctx, root(), KeyDraft{Name: "k", Scopes: []string{"decisions:read"}, ExpiresAt: &end})
		errtest.Must(t, err)
		g, err = r.Token(ctx, anonymous(scope.DefaultTenant), TokenRequest{GrantType: "client_credentials", ClientSecret: k.Key})
		if err != nil || g.ExpiresIn != 600 || g.Scope != "decisions:read" {
			t.Fatalf("Token of client_credentials = %+v, %v", g, err)
		}
		sc, who, err := r.Authenticate(ctx, Credential{Bearer: g.AccessToken})
		if err != nil || who.KeyID != k.ID || !who.RateLimited || sc.Actor.Kind != scope.Key || !sc.Permissions.Has("decisions:read") {
			t.Errorf("Authenticate with a key's token = %+v, %+v, %v", sc, who, err)
		}
		errtest.Must(t, errtest.Of(r.RevokeKey(ctx, root(), k.ID)))
		r.want("the token of a revoked key", Credential{Bearer: g.AccessToken}, "401")
	})
}
