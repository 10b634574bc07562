package gateways_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestCredentials: an application gets the credential that is configured, and never
// its caller's token; the credential is nowhere to be read, and is there after a
// restart without the server.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app, is := s.Admin, apptest.NewBackend(t, nil), apptest.NewIssuer(t)
	apptest.Enforce(t, a, "sandbox")
	model := a.Do(t, "POST", "/resources", body{"name": "model", "type": "llm", "environment": "sandbox", "path": "/v1/**", "resource_kind": "llm_endpoint"}).Want(201).ID()
	apptest.Activate(t, a, "people", "sandbox", "package people\n\nallow if input.user.id\n", nil)
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox", "resource_ids": []int64{model}, "configuration": body{"identity": is.Identity()}}, app.Addr)
	self := fmt.Sprint("/bouncers/", b.ID)
	through, token := &apptest.Client{Base: b.URL}, is.Token(t, "ann", "admin")
	sent := func(c *apptest.Client, path string) http.Header {
		t.Helper()
		app.Take()
		res := c.Do(t, "GET", path, nil)
		seen := app.Take()
		if res.Status != 200 || len(seen) != 1 {
			t.Fatalf("%s: %d %s, %d requests", path, res.Status, res.Body, len(seen))
		}
		return seen[0].Header
	}
	withToken := through.With("Authorization", "Bearer "+token)
	apptest.WaitForStatus(t, withToken, "/v1/models", 200, 5*time.Second)

	// Without credentials: the token stays here.
	if h := sent(withToken, "/v1/models"); h.Get("Authorization") != "" || h.Get("X-Auth-Request-User") != "ann" {
		t.Errorf("the application sees %v", h)
	}
	const secret = "sk-canary-9d1f2a"
	put := func(list ...body) *apptest.Response {
		return a.Do(t, "PUT", self+"/credentials", body{"credentials": list})
	}
	got := put(body{"header": "Authorization", "value": "Bearer " + secret, "resource_id": model}, body{"header": "x-api-key", "action": "add", "value": secret}, body{"header": "X-Auth-Request-User", "action": "strip", "resource_id": model}).Want(200)
	if strings.Contains(string(got.Body), secret) {
		t.Errorf("the answer shows the value: %s", got.Body)
	}
	apptest.Eventually(t, 30*time.Second, func() error {
		if h := sent(withToken, "/v1/models"); h.Get("Authorization") != "Bearer "+secret || h.Get("X-Api-Key") != secret || len(h["X-Auth-Request-User"]) != 0 {
			return fmt.Errorf("the application sees %v", h)
		}
		return nil
	})
	if h := sent(withToken, "/other"); h.Get("Authorization") != "" || h.Get("X-Api-Key") != secret || h.Get("X-Auth-Request-User") != "ann" {
		t.Errorf("another resource's application sees %v", h)
	}
	if h := sent(withToken.With("X-Api-Key", "mine"), "/v1/x"); h.Get("X-Api-Key") != "mine" {
		t.Errorf("add took the caller's own away: %v", h)
	}

	// It is kept where no value is sent, and can be read nowhere.
	put(body{"header": "Authorization", "resource_id": model}, body{"header": "Api-Key", "value": "other"}).Want(200)
	apptest.Eventually(t, 30*time.Second, func() error {
		if h := sent(withToken, "/v1/models"); h.Get("Authorization") != "Bearer "+secret || h.Get("Api-Key") != "other" || h.Get("X-Api-Key") != "" {
			return fmt.Errorf("the application sees %v", h)
		}
		return nil
	})
	for _, path := range []string{self, self + "/credentials", "/bouncers", "/audit/admin?limit=200", "/decisions?limit=200", self + "/opa-config", self + "/health"} {
		if res := a.Do(t, "GET", path, nil); strings.Contains(string(res.Body), secret) {
			t.Errorf("%s shows the value", path)
		}
	}
	pep := &apptest.Client{Base: a.Base, Bearer: b.Token}
	for _, path := range []string{fmt.Sprint("/bridge/bundles/", b.ID), fmt.Sprint("/bridge/bundles/", b.ID, "/discovery")} {
		if strings.Contains(apptest.Unpacked(t, pep.Do(t, "GET", path, nil).Want(200).Body), secret) {
			t.Errorf("%s shows the value", path)
		}
	}
	if strings.Contains(string(pep.Do(t, "GET", "/bridge/credentials", nil).Want(200).Body), secret) {
		t.Error("the bridge hands the value out in clear")
	}
	a.Do(t, "GET", "/bridge/credentials", nil).Want(403)
	for _, dir := range []string{s.Dir, b.Dir} {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(data), secret) {
				t.Errorf("%s holds the value in clear", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if strings.Contains(s.Log.String()+b.Log.String(), secret) {
		t.Error("a log holds the value")
	}

	// Bad ones are told, and change nothing.
	for name, list := range map[string][]body{
		"framing": {{"header": "Content-Length", "value": "1"}}, "ours": {{"header": "X-Forwarded-For", "value": "1"}}, "hop": {{"header": "Connection", "value": "x"}},
		"odd": {{"header": "X_Key", "value": "1"}}, "line": {{"header": "X-Key", "value": "a\r\nX-Evil: 1"}}, "none": {{"header": "X-Key"}},
		"twice":    {{"header": "X-Key", "value": "1"}, {"header": "x-key", "value": "2"}},
		"strip":    {{"header": "X-Key", "action": "strip", "value": "1"}},
		"resource": {{"header": "X-Key", "value": "1", "resource_id": 999999}},
		"action":   {{"header": "X-Key", "action": "replace", "value": "1"}},
	} {
		if res := put(list...); res.Status != 422 {
			t.Errorf("%s: %d %s", name, res.Status, res.Body)
		}
	}

	// A restart without the server.
	s.Kill()
	b.Kill()
	b.Start()
	if h := sent(withToken, "/v1/models"); h.Get("Authorization") != "Bearer "+secret {
		t.Errorf("after a restart the application sees %v", h)
	}
}

// TestTokenHeader: the caller's token may come beside the provider's key, so that
// a client with a key of its own is let through with it; and a token is handed on
// where that is asked for.
func TestTokenHeader(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app, is := s.Admin, apptest.NewBackend(t, nil), apptest.NewIssuer(t)
	apptest.Enforce(t, a, "sandbox")
	apptest.Activate(t, a, "people", "sandbox", "package people\n\nallow if input.user.id == \"ann\"\n", nil)
	identity := is.Identity()
	identity["token_header"] = "X-User-Token"
	b := s.Bouncer(t, a, body{"name": "edge", "environment": "sandbox", "configuration": body{"identity": identity}}, app.Addr)
	c := (&apptest.Client{Base: b.URL}).With("Authorization", "Bearer sk-live-1")
	apptest.WaitForStatus(t, c, "/v1/models", 401, 5*time.Second)
	token := is.Token(t, "ann", "admin")
	for _, spelled := range []string{token, "Bearer " + token} {
		app.Take()
		c.With("X-User-Token", spelled).Do(t, "GET", "/v1/models", nil).Want(200)
		if seen := app.Take(); len(seen) != 1 || seen[0].Header.Get("Authorization") != "Bearer sk-live-1" || seen[0].Header.Get("X-User-Token") != "" {
			t.Errorf("the application sees %v", seen)
		}
	}
	c.With("X-User-Token", "sk-live-1").Do(t, "GET", "/v1/models", nil).Want(401)
	(&apptest.Client{Base: b.URL}).With("Authorization", "Bearer "+token).Do(t, "GET", "/v1/models", nil).Want(401) // not where it belongs

	pass := is.Identity()
	pass["pass_token"] = true
	a.Do(t, "PUT", fmt.Sprint("/bouncers/", b.ID), body{"configuration": body{"identity": pass}}).Want(200)
	bearer := (&apptest.Client{Base: b.URL}).With("Authorization", "Bearer "+token)
	apptest.WaitForStatus(t, bearer, "/v1/models", 200, 10*time.Second)
	if seen := app.Take(); seen[len(seen)-1].Header.Get("Authorization") != "Bearer "+token {
		t.Errorf("the token does not pass: %v", seen[len(seen)-1].Header)
	}
}
