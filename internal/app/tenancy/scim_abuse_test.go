package tenancy_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestDirectoryToken checks that a token is valid only for the SCIM operations of its tenant, until
// it is revoked or replaced or its tenant is suspended.
func TestDirectoryToken(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		never := newCompany(t, s, body{"name": "Never"})
		if res := never.admin.Do(t, "GET", never.path("/scim"), nil).Want(200); res.Get("version") != 0.0 || !strings.Contains(string(res.Body), `"updated_at":null`) {
			t.Errorf("GET of settings that nobody changed = %s, want version 0 and no updated_at", res.Body)
		}
		d := newDirectory(t, s, "Acme", body{})
		other := newDirectory(t, s, "Other", body{})
		made := d.do(t, "POST", "/Users", body{"userName": "ann@acme.example"}).Want(201)
		id := made.Text("id")

		// The token is not valid for another tenant, whatever names it. The other tenant sees nothing.
		for _, foreign := range []*apptest.Client{d.token.With("X-Tenant-ID", other.company.id), d.token.With("X-Tenant-ID", "default")} {
			if res := foreign.Do(t, "GET", "/scim/v2/Users", nil).Want(403); res.Get("status") != "403" {
				t.Errorf("GET of another tenant's people = %s, want the status 403", res.Body)
			}
		}
		d.token.Do(t, "GET", "/scim/v2/Users?tenant_id="+other.company.id, nil).Want(403)
		for _, method := range []string{"GET", "DELETE"} {
			other.do(t, method, "/Users/"+id, nil).Want(404)
		}
		if page := other.do(t, "GET", listURL("Users", `userName eq "ann@acme.example" or userName pr`), nil).Want(200); strings.Contains(string(page.Body), "ann@acme") {
			t.Errorf("GET /Users by the other tenant shows the person: %s", page.Body)
		}

		// The token is valid for nothing else, and nothing else for SCIM.
		api := &apptest.Client{Base: s.Admin.Base, Bearer: d.token.Bearer}
		for _, op := range [][2]string{{"GET", "/auth/me"}, {"GET", "/users"}, {"GET", d.path("/scim/tokens")}, {"POST", d.path("/scim/tokens")}, {"PUT", d.path("/scim")}, {"POST", "/auth/logout"}, {"POST", "/developer-portal/token"}, {"GET", "/policies"}} {
			api.Do(t, op[0], op[1], body{"name": "x"}).Want(403)
		}
		form := []byte(url.Values{"grant_type": {"client_credentials"}, "client_secret": {d.token.Bearer}}.Encode())
		if res := s.Anonymous().With("Content-Type", "application/x-www-form-urlencoded").Do(t, "POST", "/auth/token", form); res.Status == 200 {
			t.Errorf("POST /auth/token with a directory's token = %s, want a refusal", res.Body)
		}
		for _, c := range []*apptest.Client{s.Admin, d.admin, d.key} {
			root := *c
			root.Base = s.URL
			root.With("X-Tenant-ID", d.company.id).Do(t, "GET", "/scim/v2/Users", nil).Want(403)
		}
		(&apptest.Client{Base: s.URL}).Do(t, "GET", "/scim/v2/Users", nil).Want(401)
		(&apptest.Client{Base: s.URL, Bearer: d.token.Bearer + "x"}).Do(t, "GET", "/scim/v2/Users", nil).Want(401)

		// The token is replaced with a grace period, then without one, then revoked.
		old := *d.token
		path := d.path("/scim/tokens/" + d.id)
		next := d.admin.Do(t, "POST", path+"/rotate", body{"grace_seconds": 3600}).Want(201).Text("token")
		d.token.Bearer = next
		old.Do(t, "GET", "/scim/v2/Users", nil).Want(200)
		d.do(t, "GET", "/Users", nil).Want(200)
		last := d.admin.Do(t, "POST", path+"/rotate", nil).Want(201).Text("token")
		old.Do(t, "GET", "/scim/v2/Users", nil).Want(401)
		d.do(t, "GET", "/Users", nil).Want(401)
		d.token.Bearer = last
		d.do(t, "GET", "/Users", nil).Want(200)
		other.admin.Do(t, "DELETE", path, nil).Want(403)
		other.admin.Do(t, "DELETE", other.path("/scim/tokens/"+d.id), nil).Want(404)
		d.admin.Do(t, "DELETE", d.path("/api-keys/"+d.id), nil).Want(404)
		d.admin.Do(t, "DELETE", path, nil).Want(200)
		d.do(t, "GET", "/Users", nil).Want(401)
		d.admin.Do(t, "DELETE", path, nil).Want(404)
		d.admin.Do(t, "POST", path+"/rotate", nil).Want(404)

		s.Admin.Do(t, "PUT", other.path(""), body{"status": "suspended"}).Want(200)
		other.do(t, "GET", "/Users", nil).Want(403, 401)
		s.Admin.Do(t, "PUT", other.path(""), body{"status": "active"}).Want(200)
		other.do(t, "GET", "/Users", nil).Want(200)
		s.Admin.Do(t, "DELETE", other.path(""), nil).Want(200)
		other.do(t, "GET", "/Users", nil).Want(401)
	})
}

// TestDirectoryGivesNoMore checks that a directory gives only the roles of the settings, and that
// nobody can put more into the settings than their own rights.
func TestDirectoryGivesNoMore(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, s, "Acme", body{"role_map": body{"staff": []string{"viewer"}}})
		d.admin.Do(t, "POST", "/users", body{"id": "boss", "username": "boss", "email": "boss@acme.example", "roles": []string{"admin"}}).Want(201)
		d.admin.Do(t, "POST", "/users", body{"id": "weak", "username": "weak", "email": "weak@acme.example"}).Want(201)

		// The directory cannot change an earlier person with more rights.
		off := patch(body{"op": "replace", "path": "active", "value": false})
		for method, b := range map[string]any{"PATCH": off, "PUT": body{"userName": "boss", "emails": []body{{"value": "mine@evil.example"}}}, "DELETE": nil} {
			d.do(t, method, "/Users/boss", b).Want(403)
		}
		group := body{"displayName": "staff", "members": []body{{"value": "boss"}}}
		d.do(t, "POST", "/Groups", group).Want(403)
		if page := d.do(t, "GET", "/Groups", nil).Want(200); page.Get("totalResults") != 0.0 {
			t.Errorf("GET /Groups after a refused group = %s, want none", page.Body)
		}
		if boss := d.admin.Do(t, "GET", "/users/boss", nil).Want(200); boss.Get("email") != "boss@acme.example" || boss.Get("status") != "active" {
			t.Errorf("the administrator after refused changes = %s, want it unchanged", boss.Body)
		}

		// A role's name gives no role without the map.
		made := d.do(t, "POST", "/Users", body{"userName": "ann", "emails": []string{"ann@acme.example"}, "roles": []string{"admin", "platform_admin", "staff"}, "id": "boss2"}).Want(201)
		id := made.Text("id")
		roles := func() string {
			return fmt.Sprint(d.admin.Do(t, "GET", "/users/"+id, nil).Want(200).Get("roles"))
		}
		if roles() != "[viewer]" || id == "boss2" {
			t.Errorf("the new person %s has the roles %s, want [viewer] and an own id", id, roles())
		}
		d.do(t, "POST", "/Groups", body{"displayName": "admin", "members": []body{{"value": id}, {"value": "weak"}}}).Want(201)
		if roles() != "[viewer]" {
			t.Errorf("a group named admin gives %s, want [viewer]", roles())
		}

		// A person keeps a role that an administrator gave. The directory can disable the person, but
		// then cannot enable them, and cannot change their subject.
		d.admin.Do(t, "PUT", "/users/"+id+"/roles", body{"roles": []string{"auditor"}}).Want(200)
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "title", "value": "Lead"})).Want(200)
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "externalId", "value": "evil"})).Want(403)
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "remove", "path": "roles"})).Want(200)
		if roles() != "[auditor]" {
			t.Errorf("the promoted person has %s, want [auditor]", roles())
		}
		d.do(t, "PATCH", "/Users/"+id, off).Want(200)
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "active", "value": true})).Want(403)

		// Only a caller with the roles may change the settings, and not over a newer version.
		limited := d.newKey(t, s, "tenants:write", "users:write")
		limited.Do(t, "PUT", d.path("/scim"), body{"default_roles": []string{"policy_author"}}).Want(403)
		limited.Do(t, "PUT", d.path("/scim"), body{"role_map": body{}}).Want(403) // viewer allows reading more than the key may
		limited.Do(t, "POST", d.path("/scim/tokens"), body{"name": "x"}).Want(403)
		limited.Do(t, "POST", d.path("/scim/tokens/"+d.id+"/rotate"), nil).Want(403)
		d.admin.Do(t, "PUT", d.path("/scim"), body{"role_map": body{"x": []string{"platform_admin"}}}).Want(403)
		d.admin.Do(t, "PUT", d.path("/scim"), body{"role_map": body{"a": []string{"viewer"}, "ａ": []string{"viewer"}}}).Want(422)
		d.admin.With("If-Match", `"9"`).Do(t, "PUT", d.path("/scim"), body{"match_subject": true}).Want(412)
		version := d.admin.Do(t, "GET", d.path("/scim"), nil).Want(200).Header.Get("ETag")
		d.admin.With("If-Match", version).Do(t, "PUT", d.path("/scim"), body{"role_map": body{"bosses": []string{"admin"}}}).Want(200)

		// With the role admin in the map, the directory may change administrators except the last one.
		d.do(t, "PATCH", "/Users/boss", patch(body{"op": "add", "path": "roles", "value": "bosses"})).Want(200)
		list := d.do(t, "GET", listURL("Users", `userName eq "root"`), nil).Want(200)
		root := list.Text("Resources", "0", "id")
		d.do(t, "DELETE", "/Users/"+root, nil).Want(204)
		for method, b := range map[string]any{"PATCH": off, "PUT": body{"userName": "boss", "emails": []string{"boss@acme.example"}}, "DELETE": nil} {
			if res := d.do(t, method, "/Users/boss", b).Want(409); !strings.Contains(string(res.Body), "last administrator") {
				t.Errorf("%s of the last administrator = %s, want a message about that", method, res.Body)
			}
		}
	})
}

// TestDirectoryRequests checks that wrong requests are refused in SCIM's form, that lists have pages,
// and that parallel requests create one person.
func TestDirectoryRequests(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, s, "Acme", body{})
		for i := range 7 {
			d.do(t, "POST", "/Users", body{"userName": fmt.Sprintf("u%d@acme.example", i), "title": "t"}).Want(201)
		}
		seen := map[any]bool{}
		for start := 1; start <= 8; start += 3 {
			page := d.do(t, "GET", fmt.Sprintf("/Users?startIndex=%d&count=3&attributes=userName", start), nil).Want(200)
			list, _ := page.Get("Resources").([]any)
			for _, v := range list {
				m, _ := v.(map[string]any)
				seen[m["id"]] = true
				if m["title"] != nil || m["userName"] == nil {
					t.Errorf("GET /Users with attributes=userName has %v, want only the name", m)
				}
			}
			if page.Get("totalResults") != 8.0 || page.Get("startIndex") != float64(start) || page.Get("itemsPerPage") != float64(len(list)) {
				t.Errorf("GET /Users from %d = %s, want a page of 8 people", start, page.Body)
			}
		}
		if len(seen) != 8 {
			t.Errorf("the pages have %d people, want 8", len(seen))
		}
		if page := d.do(t, "GET", listURL("Users", `title pr`)+"&startIndex=6&count=100", nil).Want(200); page.Get("totalResults") != 7.0 || page.Get("itemsPerPage") != 2.0 {
			t.Errorf("the second page of a filter = %s, want 2 of 7", page.Body)
		}
		if page := d.do(t, "GET", "/Users?startIndex=-3&count=-1", nil).Want(200); page.Get("totalResults") != 8.0 || page.Get("itemsPerPage") != 0.0 || page.Get("startIndex") != 1.0 {
			t.Errorf("GET /Users with negative numbers = %s, want no people from 1", page.Body)
		}

		id := d.do(t, "POST", "/Users", body{"userName": "ann@acme.example", "externalId": "x1"}).Want(201).Text("id")
		deep := strings.Repeat("(", 20) + "active eq true" + strings.Repeat(")", 20)
		for name, c := range map[string]struct {
			res  *apptest.Response
			code int
			kind any
		}{
			"a filter":               {d.do(t, "GET", listURL("Users", `shoeSize gt 3`), nil), 400, "invalidFilter"},
			"a deep filter":          {d.do(t, "GET", listURL("Users", deep), nil), 400, "invalidFilter"},
			"a number":               {d.do(t, "GET", "/Users?startIndex=one", nil), 400, nil},
			"a path":                 {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "add", "path": "shoeSize", "value": 7})), 400, "invalidPath"},
			"an operation":           {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "swap", "path": "title", "value": 7})), 400, "invalidSyntax"},
			"a target":               {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "remove"})), 400, "noTarget"},
			"what only we write":     {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "id", "value": "7"})), 400, "mutability"},
			"no user name":           {d.do(t, "POST", "/Users", body{"emails": []string{"a@acme.example"}}), 400, "invalidValue"},
			"no user name any more":  {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "remove", "path": "userName"})), 400, "invalidValue"},
			"no address":             {d.do(t, "POST", "/Users", body{"userName": "plain"}), 400, "invalidValue"},
			"a taken address":        {d.do(t, "POST", "/Users", body{"userName": "z", "emails": []string{"U1@acme.example"}}), 409, "uniqueness"},
			"a taken name":           {d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "userName", "value": "U1@acme.example"})), 409, "uniqueness"},
			"a taken externalId":     {d.do(t, "POST", "/Users", body{"userName": "z@acme.example", "externalId": "x1"}), 409, "uniqueness"},
			"a long name":            {d.do(t, "POST", "/Users", body{"userName": strings.Repeat("u", 200), "emails": []string{"a@acme.example"}}), 400, "invalidValue"},
			"an agent's name":        {d.do(t, "POST", "/Users", body{"userName": "agent:7", "emails": []string{"a@acme.example"}}), 400, "invalidValue"},
			"a group without a name": {d.do(t, "POST", "/Groups", body{}), 400, "invalidValue"},
			"a member from nowhere":  {d.do(t, "POST", "/Groups", body{"displayName": "g", "members": []string{"nobody"}}), 400, "invalidValue"},
			"no object":              {d.do(t, "POST", "/Users", []byte(`[]`)), 400, "invalidSyntax"},
			"no JSON":                {d.do(t, "POST", "/Users", []byte(`{`)), 400, "invalidSyntax"},
			"a member twice":         {d.do(t, "POST", "/Users", []byte(`{"userName":"a","userName":"b"}`)), 400, "invalidSyntax"},
			"another type":           {d.token.With("Content-Type", "text/plain").Do(t, "POST", "/scim/v2/Users", []byte(`{}`)), 415, nil},
			"a large body":           {d.do(t, "POST", "/Users", []byte(`{"title":"`+strings.Repeat("x", 2<<20)+`"}`)), 413, nil},
			"nowhere":                {d.do(t, "GET", "/Users/nobody", nil), 404, nil},
			"no resource":            {d.do(t, "GET", "/Devices", nil), 404, nil},
			"a method":               {d.do(t, "POST", "/Users/"+id, body{}), 405, nil},
		} {
			if c.res.Status != c.code || c.res.Get("scimType") != c.kind || c.res.Get("status") != fmt.Sprint(c.code) || c.res.Header.Get("Content-Type") != "application/scim+json" {
				t.Errorf("a request with %s = %d %s, want %d %v", name, c.res.Status, c.res.Body, c.code, c.kind)
			}
		}
		if ann := d.do(t, "GET", "/Users/"+id, nil).Want(200); ann.Get("userName") != "ann@acme.example" || ann.Get("title") != nil {
			t.Errorf("the person after refused requests = %s, want it unchanged", ann.Body)
		}

		var wg sync.WaitGroup
		statuses := make([]int, 8)
		for i := range statuses {
			wg.Go(func() {
				if res, err := d.token.Try("POST", "/scim/v2/Users", body{"userName": "twin@acme.example"}); err == nil {
					statuses[i] = res.Status
				}
			})
		}
		wg.Wait()
		made := 0
		for _, status := range statuses {
			if status == 201 {
				made++
			} else if status != 409 {
				t.Errorf("a parallel POST /Users = %d, want 201 or 409", status)
			}
		}
		if made != 1 {
			t.Errorf("parallel requests created %d people, want 1", made)
		}
	})
}

// TestDirectoryAndProvider checks that a person whom the directory added signs in by their subject at
// the provider if the tenant allows it, and never by their address alone.
func TestDirectoryAndProvider(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		idp := newProvider(t)
		acme := newCompanyWithProvider(t, s, "Acme", idp, body{"role_claim": "groups", "role_map": body{"all": []string{"auditor"}}, "department_claim": "dept"})
		d := directoryOf(t, s, acme)
		acme.admin.Do(t, "PUT", acme.path("/scim"), body{"role_map": body{"staff": []string{"viewer"}}}).Want(200)
		made := d.do(t, "POST", "/Users", body{"userName": "ann@acme.example", "externalId": "ann", "roles": []string{"staff"}, enterprise: body{"department": "Sales"}}).Want(201)
		id := made.Text("id")

		wantRefused := func(what, code string) {
			t.Helper()
			a := startSignOn(t, s.Anonymous(), acme.id, "")
			if res := a.finish(t, a.callbackQuery(idp)); !strings.Contains(res.Header.Get("Location")+string(res.Body), code) {
				t.Errorf("sign-in of %s = %d %s %s, want %s", what, res.Status, res.Header.Get("Location"), res.Body, code)
			}
		}
		ann := verifiedClaims("ann", body{"groups": []string{"all"}, "dept": "Fraud"})
		idp.setClaims(ann)
		wantRefused("a person with an equal address", "account_exists")
		acme.admin.Do(t, "PUT", acme.path("/scim"), body{"match_subject": true}).Want(200)
		idp.setClaims(verifiedClaims("eve", body{"email": "ann@acme.example", "groups": []string{"all"}, "dept": "Fraud"}))
		wantRefused("another subject with an equal address", "account_exists")
		idp.setClaims(ann)
		c := startSignOn(t, s.Anonymous(), acme.id, "")
		c.finish(t, c.callbackQuery(idp)).Want(303)
		me := c.me(t).Want(200)
		if me.Get("id") != id || fmt.Sprint(me.Get("roles")) != "[viewer]" || me.Get("department") != "Sales" {
			t.Errorf("GET /auth/me = %s, want the directory's person, role and department", me.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "path": "active", "value": false})).Want(200)
		apptest.Eventually(t, time.Minute, func() error {
			if res := c.me(t); res.Status != 401 {
				return fmt.Errorf("GET /auth/me of a disabled person = %d, want 401", res.Status)
			}
			return nil
		})
		wantRefused("a disabled person", "account_disabled")
	}, loopback)
}

// TestDirectoryPagesAreBounded checks that a page of large groups, or of people in many groups, ends
// before it has too many members, and that the pages list everybody once.
func TestDirectoryPagesAreBounded(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		const people, groups, most = 105, 195, 20_000
		d := newDirectory(t, s, "Acme", body{})
		members := make([]body, people)
		for i := range members {
			members[i] = body{"value": d.do(t, "POST", "/Users", body{"userName": fmt.Sprintf("p%d@acme.example", i)}).Want(201).Get("id")}
		}
		for i := range groups {
			d.do(t, "POST", "/Groups", body{"displayName": fmt.Sprintf("team %d", i), "members": members}).Want(201)
		}
		walk := func(kind, part, query string, all int) (pages int) {
			seen := map[any]bool{}
			for start := 1; start <= all; pages++ {
				res := d.do(t, "GET", fmt.Sprintf("/%s?count=200&startIndex=%d%s", kind, start, query), nil).Want(200)
				list, _ := res.Get("Resources").([]any)
				parts := 0
				for _, v := range list {
					m, _ := v.(map[string]any)
					of, _ := m[part].([]any)
					seen[m["id"]], parts = true, parts+len(of)
				}
				if len(list) == 0 || parts > most || res.Get("totalResults") != float64(all) || res.Get("itemsPerPage") != float64(len(list)) {
					t.Fatalf("GET /%s from %d%s has %d resources with %d %s, of %v, want some of %d with at most %d", kind, start, query, len(list), parts, part, res.Get("totalResults"), all, most)
				}
				start += len(list)
			}
			if len(seen) != all {
				t.Errorf("the pages of /%s%s have %d resources, want %d", kind, query, len(seen), all)
			}
			return pages
		}
		for _, query := range []string{"", "&" + url.Values{"filter": {`displayName sw "team" and members pr`}}.Encode()} {
			if n := walk("Groups", "members", query, groups); n != 2 {
				t.Errorf("the list of groups%s has %d pages, want 2", query, n)
			}
		}
		const all = people + 1 // the tenant's administrator is in no group
		inTeams := "&" + url.Values{"filter": {`userName pr and groups.display sw "team"`}}.Encode()
		if n, m := walk("Users", "groups", "", all), walk("Users", "groups", inTeams, people); n != 2 || m != 2 {
			t.Errorf("the list of people has %d pages, that of people in teams %d, want 2 each", n, m)
		}
		if n := walk("Groups", "members", "&excludedAttributes=members", groups) + walk("Users", "groups", "&attributes=userName", all); n != 2 {
			t.Errorf("the lists without members and groups have %d pages, want 1 each", n)
		}
	})
}

// TestDirectorySettingsUnchanged checks that the tag of unchanged settings is valid until the first
// change, and is no wildcard after that.
func TestDirectorySettingsUnchanged(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		const path = "/tenants/default/scim"
		first := s.Admin.Do(t, "GET", path, nil).Want(200).Header.Get("ETag")
		change := func(tag string) *apptest.Response {
			return s.Admin.With("If-Match", tag).Do(t, "PUT", path, body{"match_subject": true})
		}
		change(`"1"`).Want(412)
		second := change(first).Want(200).Header.Get("ETag")
		change(first).Want(412)
		change(first + ", " + second).Want(200)
	})
}
