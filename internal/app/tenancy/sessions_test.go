package tenancy_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestSessionsOfOthers checks that the provider and administrators can end people's sessions.
func TestSessionsOfOthers(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := newCompanyWithProvider(t, s, "Acme", idp, nil)
		signIn := func(sub, sid string) *attempt {
			idp.setClaims(verifiedClaims(sub, body{"sid": sid}))
			idp.info = map[string]any{"sub": sub}
			a := startSignOn(t, s.Anonymous(), acme.id, "/")
			a.finish(t, a.callbackQuery(idp)).Want(303)
			return a
		}
		logout := func(change func(jwt.MapClaims), sign func(jwt.MapClaims) string) *apptest.Response {
			claims := jwt.MapClaims{
				"iss": idp.URL, "aud": "client", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "jti": fmt.Sprint(time.Now().UnixNano()),
				"events": body{"http://schemas.openid.net/event/backchannel-logout": body{}},
			}
			change(claims)
			form := url.Values{"logout_token": {sign(claims)}}
			return s.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Do(t, "POST", "/auth/sso/backchannel-logout?tenant_id="+acme.id, []byte(form.Encode()))
		}
		ann1, ann2, ben := signIn("ann", "s1"), signIn("ann", "s2"), signIn("ben", "s3")
		child := s.WithToken(ann1.c.With("Cookie", ann1.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
		child.Do(t, "GET", "/auth/me", nil).Want(200)

		evil := newProvider(t)
		ann := func(c jwt.MapClaims) { c["sub"] = "ann" }
		for what, bad := range map[string]struct {
			change func(c jwt.MapClaims)
			sign   func(jwt.MapClaims) string
		}{
			"another's key":    {ann, evil.signToken},
			"unsigned":         {ann, unsigned(t)},
			"an ID token":      {func(c jwt.MapClaims) { ann(c); c["nonce"] = "x" }, idp.signToken},
			"no event":         {func(c jwt.MapClaims) { ann(c); delete(c, "events") }, idp.signToken},
			"nobody":           {func(jwt.MapClaims) {}, idp.signToken},
			"no id":            {func(c jwt.MapClaims) { ann(c); delete(c, "jti") }, idp.signToken},
			"another audience": {func(c jwt.MapClaims) { ann(c); c["aud"] = "x" }, idp.signToken},
			"old":              {func(c jwt.MapClaims) { ann(c); c["iat"] = time.Now().Add(-time.Hour).Unix() }, idp.signToken},
		} {
			logout(bad.change, bad.sign).ExpectError(what, 400, "invalid_logout_token")
		}
		ann1.me(t).Want(200)

		once := func(c jwt.MapClaims) { c["sid"] = "s1"; c["sub"] = "ann"; c["jti"] = "once" }
		logout(once, idp.signToken).Want(200)
		ann1.me(t).Want(401)
		child.Do(t, "GET", "/auth/me", nil).Want(401)
		ann2.me(t).Want(200)
		logout(once, idp.signToken).Want(400)
		logout(ann, idp.signToken).Want(200)
		ann2.me(t).Want(401)
		ben.me(t).Want(200)

		// An administrator sees and ends the sessions of others.
		benID := ben.me(t).Text("id")
		ben2 := signIn("ben", "s4")
		var list struct {
			Sessions []struct{ ID string }
		}
		acme.admin.Do(t, "GET", "/users/"+benID+"/sessions", nil).Want(200).Into(&list)
		if len(list.Sessions) != 2 {
			t.Fatalf("GET /users/%s/sessions has %d sessions, want 2", benID, len(list.Sessions))
		}
		root := acme.admin.Do(t, "GET", "/auth/me", nil).Want(200).Text("id")
		at := "/users/" + benID + "/sessions"
		acme.admin.Do(t, "DELETE", "/users/"+root+"/sessions/"+list.Sessions[0].ID, nil).Want(404) // another person's
		acme.admin.Do(t, "DELETE", at+"/"+list.Sessions[0].ID, nil).Want(204)
		statuses := []int{ben.me(t).Status, ben2.me(t).Status}
		slices.Sort(statuses)
		if !slices.Equal(statuses, []int{http.StatusOK, http.StatusUnauthorized}) {
			t.Errorf("GET /auth/me of two sessions, one ended, = %v, want 200 and 401", statuses)
		}
		if res := acme.admin.Do(t, "DELETE", at, nil).Want(200); res.Get("ended") != float64(1) {
			t.Errorf("DELETE %s = %s, want 1 ended", at, res.Body)
		}
		ben.me(t).Want(401)
		ben2.me(t).Want(401)
		acme.newKey(t, s, "users:write").Do(t, "DELETE", "/users/"+root+"/sessions", nil).Want(403) // a stronger person's
		acme.admin.Do(t, "DELETE", "/users/nobody/sessions", nil).Want(404)
	}, loopback)
}
