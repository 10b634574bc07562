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

// TestSessionsOfOthers: the provider and administrators end sessions of people.
func TestSessionsOfOthers(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := configured(t, s, "Acme", idp, nil)
		enter := func(sub, sid string) *attempt {
			idp.says(verified(sub, body{"sid": sid}))
			idp.info = map[string]any{"sub": sub}
			a := begin(t, s.Anonymous(), acme.id, "/")
			a.back(t, a.answer(idp)).Want(303)
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
		ann1, ann2, ben := enter("ann", "s1"), enter("ann", "s2"), enter("ben", "s3")
		token, _ := ann1.c.With("Cookie", ann1.cookies.String()).With("Origin", s.URL).Do(t, "POST", "/developer-portal/token", body{}).Want(200).Get("access_token").(string)
		child := s.Anonymous()
		child.Bearer = token
		child.Do(t, "GET", "/auth/me", nil).Want(200)

		evil := newProvider(t)
		bad := map[string]func() *apptest.Response{
			"another's key": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann" }, evil.signed)
			},
			"unsigned": func() *apptest.Response { return logout(func(c jwt.MapClaims) { c["sub"] = "ann" }, unsigned(t)) },
			"an ID token": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann"; c["nonce"] = "x" }, idp.signed)
			},
			"no event": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann"; delete(c, "events") }, idp.signed)
			},
			"nobody": func() *apptest.Response { return logout(func(jwt.MapClaims) {}, idp.signed) },
			"no id": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann"; delete(c, "jti") }, idp.signed)
			},
			"another audience": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann"; c["aud"] = "x" }, idp.signed)
			},
			"old": func() *apptest.Response {
				return logout(func(c jwt.MapClaims) { c["sub"] = "ann"; c["iat"] = time.Now().Add(-time.Hour).Unix() }, idp.signed)
			},
		}
		for what, try := range bad {
			if res := try(); res.Status != 400 || res.Get("error") != "invalid_logout_token" {
				t.Errorf("logout by %s: %d %s", what, res.Status, res.Body)
			}
		}
		ann1.me(t).Want(200)

		once := func(c jwt.MapClaims) { c["sid"] = "s1"; c["sub"] = "ann"; c["jti"] = "once" }
		logout(once, idp.signed).Want(200)
		ann1.me(t).Want(401)
		child.Do(t, "GET", "/auth/me", nil).Want(401)
		ann2.me(t).Want(200)
		logout(once, idp.signed).Want(400)
		logout(func(c jwt.MapClaims) { c["sub"] = "ann" }, idp.signed).Want(200)
		ann2.me(t).Want(401)
		ben.me(t).Want(200)

		// An administrator sees and ends the sessions of others.
		benID, _ := ben.me(t).Get("id").(string)
		ben2 := enter("ben", "s4")
		var list struct {
			Sessions []struct{ ID string }
		}
		acme.admin.Do(t, "GET", "/users/"+benID+"/sessions", nil).Want(200).Into(&list)
		if len(list.Sessions) != 2 {
			t.Fatalf("%d sessions, want 2", len(list.Sessions))
		}
		root, _ := acme.admin.Do(t, "GET", "/auth/me", nil).Want(200).Get("id").(string)
		at := "/users/" + benID + "/sessions"
		acme.admin.Do(t, "DELETE", "/users/"+root+"/sessions/"+list.Sessions[0].ID, nil).Want(404) // another person's
		acme.admin.Do(t, "DELETE", at+"/"+list.Sessions[0].ID, nil).Want(204)
		ended := []int{ben.me(t).Status, ben2.me(t).Status}
		slices.Sort(ended)
		if !slices.Equal(ended, []int{http.StatusOK, http.StatusUnauthorized}) {
			t.Errorf("after the end of one session: %v", ended)
		}
		if res := acme.admin.Do(t, "DELETE", at, nil).Want(200); res.Get("ended") != float64(1) {
			t.Errorf("ended: %s", res.Body)
		}
		ben.me(t).Want(401)
		ben2.me(t).Want(401)
		weak := s.Anonymous()
		weak.APIKey, _ = acme.admin.Do(t, "POST", acme.at("/api-keys"), body{"name": "people", "scopes": []string{"users:write"}}).Want(201).Get("key").(string)
		if res := weak.Do(t, "DELETE", "/users/"+root+"/sessions", nil); res.Status != 403 {
			t.Errorf("the sessions of a stronger person: %d %s", res.Status, res.Body)
		}
		acme.admin.Do(t, "DELETE", "/users/nobody/sessions", nil).Want(404)
	}, loopback)
}
