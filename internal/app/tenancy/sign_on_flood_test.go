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

// TestNobodyClosesSignOn: whoever starts sign-ins without end, or makes up answers and
// logout tokens, closes the sign-on to nobody who shares their address; and a provider that
// ends the sessions of many people at once is heard.
func TestNobodyClosesSignOn(t *testing.T) {
	s := apptest.StartServer(t, dbtest.SQLite, loopback)
	idp := newProvider(t)
	acme := configured(t, s, "Acme", idp, nil)
	form := s.Anonymous().With("Content-Type", "application/x-www-form-urlencoded")
	logout := func(token string) *apptest.Response {
		return form.Do(t, "POST", "/auth/sso/backchannel-logout?tenant_id="+acme.id, []byte(url.Values{"logout_token": {token}}.Encode()))
	}
	idp.says(verified("ann", body{"sid": "s1"}))
	idp.info = map[string]any{"sub": "ann"}
	ann := begin(t, s.Anonymous(), acme.id, "/")
	ann.back(t, ann.answer(idp)).Want(303)

	for i := range 350 {
		s.Anonymous().Do(t, "GET", "/auth/sso/login?tenant_id="+acme.id, nil).Want(302)
		s.Anonymous().Do(t, "GET", fmt.Sprintf("/auth/sso/callback?state=x&code=%d", i), nil).Want(400)
		logout("a.b.c").Want(400)
		logout(idp.signed(jwt.MapClaims{
			"iss": idp.URL, "aud": "client", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "jti": fmt.Sprint("mass ", i),
			"events": body{"http://schemas.openid.net/event/backchannel-logout": body{}}, "sid": fmt.Sprint("another ", i),
		})).Want(200)
	}
	ann.me(t).Want(200)
	logout(idp.signed(jwt.MapClaims{
		"iss": idp.URL, "aud": "client", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "jti": "hers",
		"events": body{"http://schemas.openid.net/event/backchannel-logout": body{}}, "sid": "s1",
	})).Want(200)
	ann.me(t).Want(401)
	again := begin(t, s.Anonymous(), acme.id, "/")
	again.back(t, again.answer(idp)).Want(303)
	again.me(t).Want(200)
}
