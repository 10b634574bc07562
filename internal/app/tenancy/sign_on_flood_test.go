package tenancy_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestSignOnFlood checks that a flood of sign-ins, invented callbacks and logout tokens does not stop
// other people at the same address from signing in, and that a provider can end the sessions of many
// people at once.
func TestSignOnFlood(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, loopback)
	idp := newProvider(t)
	acme := newCompanyWithProvider(t, s, "Acme", idp, nil)
	form := s.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
	logout := func(token string) *apptest.Response {
		return form.Do(t, "POST", "/auth/sso/backchannel-logout?tenant_id="+acme.id, []byte(url.Values{"logout_token": {token}}.Encode()))
	}
	idp.setClaims(verifiedClaims("ann", body{"sid": "s1"}))
	idp.info = map[string]any{"sub": "ann"}
	ann := startSignOn(t, s.Anonymous(), acme.id, "/")
	ann.finish(t, ann.callbackQuery(idp)).Want(303)

	for i := range 350 {
		s.Anonymous().Do(t, "GET", "/auth/sso/login?tenant_id="+acme.id, nil).Want(302)
		s.Anonymous().Do(t, "GET", fmt.Sprintf("/auth/sso/callback?state=x&code=%d", i), nil).Want(400)
		logout("a.b.c").Want(400)
		logout(idp.signToken(jwt.MapClaims{
			"iss": idp.URL, "aud": "client", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "jti": fmt.Sprint("mass ", i),
			"events": body{"http://schemas.openid.net/event/backchannel-logout": body{}}, "sid": fmt.Sprint("another ", i),
		})).Want(200)
	}
	ann.me(t).Want(200)
	logout(idp.signToken(jwt.MapClaims{
		"iss": idp.URL, "aud": "client", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "jti": "hers",
		"events": body{"http://schemas.openid.net/event/backchannel-logout": body{}}, "sid": "s1",
	})).Want(200)
	ann.me(t).Want(401)
	again := startSignOn(t, s.Anonymous(), acme.id, "/")
	again.finish(t, again.callbackQuery(idp)).Want(303)
	again.me(t).Want(200)
}
