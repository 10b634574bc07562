package tenancy_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

const enterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"

// directory is a company's directory, with a token.
type directory struct {
	company
	token *apptest.Client
	id    string
}

// provisioned is a company whose directory may give the roles of a role_map.
func provisioned(t testing.TB, s *apptest.Server, name string, settings body) directory {
	t.Helper()
	d := directory{company: found(t, s, body{"name": name}), token: &apptest.Client{Base: s.URL}}
	d.admin.Do(t, "PUT", d.at("/scim"), settings).Want(200)
	made := d.admin.Do(t, "POST", d.at("/scim/tokens"), body{"name": "Okta"}).Want(201)
	d.token.Bearer, _ = made.Get("token").(string)
	d.id, _ = made.Get("id").(string)
	return d
}

// do sends a SCIM request.
func (d directory) do(t testing.TB, method, path string, b any) *apptest.Response {
	t.Helper()
	return d.token.With("Content-Type", "application/scim+json").Do(t, method, "/scim/v2"+path, b)
}

// where is a list with a filter.
func where(resource, filter string) string {
	return "/" + resource + "?" + url.Values{"filter": {filter}}.Encode()
}

// first is a member of the first entry of a list in an answer.
func first(t testing.TB, res *apptest.Response, list string, path ...string) any {
	t.Helper()
	all, _ := res.Get(list).([]any)
	if len(all) == 0 {
		return nil
	}
	v := all[0]
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func patchOf(operations ...body) body {
	return body{"schemas": []string{"urn:ietf:params:scim:api:messages:2.0:PatchOp"}, "Operations": operations}
}

// sessionOf signs a person in, who gets a password first.
func (d directory) sessionOf(t testing.TB, id, username string) *apptest.Client {
	t.Helper()
	d.admin.Do(t, "PUT", "/users/"+id, body{"password": apptest.Password}).Want(200)
	c := *d.admin
	c.Bearer = ""
	c.Bearer, _ = c.With("X-Tenant-ID", d.company.id).Do(t, "POST", "/auth/login", body{"username": username, "password": apptest.Password}).Want(200).Get("access_token").(string)
	return &c
}

// TestOkta provisions by the requests that Okta sends.
func TestOkta(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := provisioned(t, s, "Acme", body{"role_map": body{"Authors": []string{"Policy Author"}, "buyers": []string{"buyer"}}, "default_roles": []string{"viewer"}})
		d.admin.Do(t, "POST", "/users", body{"id": "byhand", "username": "byhand", "email": "byhand@acme.example", "roles": []string{"auditor"}}).Want(201)

		// Test of the connection, then the person is looked for and added.
		if page := d.do(t, "GET", "/Users?startIndex=1&count=1", nil).Want(200); page.Get("totalResults") != 2.0 || page.Get("itemsPerPage") != 1.0 || page.Header.Get("Content-Type") != "application/scim+json" {
			t.Errorf("the first page is %s", page.Body)
		}
		none := d.do(t, "GET", where("Users", `userName eq "ann@acme.example"`)+"&startIndex=1&count=100", nil).Want(200)
		if none.Get("totalResults") != 0.0 || !strings.Contains(string(none.Body), `"Resources":[]`) {
			t.Errorf("nobody is %s", none.Body)
		}
		draft := body{
			"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User"}, "userName": "ann@acme.example", "name": body{"givenName": "Ann", "familyName": "Lee"},
			"emails": []body{{"primary": true, "value": "ann@acme.example", "type": "work"}}, "displayName": "Ann Lee", "locale": "en-US",
			"externalId": "00ujl29u0le5T6Aj10h7", "groups": []string{}, "password": "1mz050nq", "active": true,
		}
		made := d.do(t, "POST", "/Users", draft).Want(201)
		id, _ := made.Get("id").(string)
		etag := made.Header.Get("ETag")
		if made.Get("meta", "location") != s.URL+"/scim/v2/Users/"+id || made.Header.Get("Location") != made.Get("meta", "location") || etag == "" || made.Get("meta", "version") != etag ||
			made.Get("name", "givenName") != "Ann" || strings.Contains(string(made.Body), "1mz050nq") {
			t.Errorf("the person is %s, at %s", made.Body, made.Header.Get("Location"))
		}
		again := d.do(t, "POST", "/Users", draft).Want(409)
		if again.Get("scimType") != "uniqueness" || again.Get("status") != "409" || again.Header.Get("Content-Type") != "application/scim+json" {
			t.Errorf("the second answer is %s", again.Body)
		}
		here := d.admin.Do(t, "GET", "/users/"+id, nil).Want(200)
		if here.Get("username") != "ann@acme.example" || fmt.Sprint(here.Get("roles")) != "[viewer]" || fmt.Sprint(here.Get("attributes")) != "map[display_name:Ann Lee family_name:Lee given_name:Ann locale:en-US]" {
			t.Errorf("the user is %s", here.Body)
		}
		one := d.do(t, "GET", where("Users", `userName eq "ANN@acme.example"`), nil).Want(200)
		if one.Get("totalResults") != 1.0 || first(t, one, "Resources", "id") != id {
			t.Errorf("found %s", one.Body)
		}

		// A profile is pushed whole. The version is checked.
		draft["name"], draft["displayName"], draft["title"] = body{"givenName": "Ann", "familyName": "Ray"}, "Ann Ray", "Engineer"
		delete(draft, "locale")
		changed := d.token.With("If-Match", etag)
		put := changed.Do(t, "PUT", "/scim/v2/Users/"+id, draft).Want(200)
		if put.Header.Get("ETag") == etag || put.Get("name", "familyName") != "Ray" || put.Get("locale") != nil {
			t.Errorf("the person is %s", put.Body)
		}
		if stale := changed.Do(t, "PUT", "/scim/v2/Users/"+id, draft).Want(412); stale.Get("status") != "412" {
			t.Errorf("a stale version: %s", stale.Body)
		}
		same := d.do(t, "PUT", "/Users/"+id, draft).Want(200)
		if same.Header.Get("ETag") != put.Header.Get("ETag") {
			t.Error("the same document makes another version")
		}
		d.token.With("If-None-Match", put.Header.Get("ETag")).Do(t, "GET", "/scim/v2/Users/"+id, nil).Want(304)
		if here := d.admin.Do(t, "GET", "/users/"+id, nil).Want(200); fmt.Sprint(here.Get("attributes")) != "map[display_name:Ann Ray family_name:Ray given_name:Ann title:Engineer]" {
			t.Errorf("the attributes are %v", here.Get("attributes"))
		}

		// A group is pushed, its members get its roles and lose them.
		d.do(t, "GET", "/Groups?startIndex=1&count=100", nil).Want(200)
		group := d.do(t, "POST", "/Groups", body{"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:Group"}, "displayName": "authors", "members": []body{{"value": id, "display": "ann@acme.example"}}}).Want(201)
		groupID, _ := group.Get("id").(string)
		roles := func(want string) {
			t.Helper()
			if got := fmt.Sprint(d.admin.Do(t, "GET", "/users/"+id, nil).Want(200).Get("roles")); got != want {
				t.Errorf("the roles are %s, want %s", got, want)
			}
		}
		roles("[policy_author viewer]")
		if res := d.do(t, "GET", "/Users/"+id, nil).Want(200); first(t, res, "groups", "value") != groupID || first(t, res, "groups", "display") != "authors" {
			t.Errorf("the groups are %v", res.Get("groups"))
		}
		d.do(t, "PATCH", "/Groups/"+groupID, patchOf(body{"op": "replace", "value": body{"id": groupID, "displayName": "Buyers"}})).Want(200)
		roles("[buyer viewer]")
		d.do(t, "PATCH", "/Groups/"+groupID, patchOf(body{"op": "remove", "path": `members[value eq "` + id + `"]`})).Want(200)
		roles("[viewer]")
		d.do(t, "PATCH", "/Groups/"+groupID, patchOf(body{"op": "add", "path": "members", "value": []body{{"value": id}}})).Want(200)
		roles("[buyer viewer]")
		d.admin.Do(t, "PUT", d.at("/scim"), body{"role_map": body{"BUYERS": []string{"auditor"}}}).Want(200)
		roles("[auditor viewer]")
		d.do(t, "DELETE", "/Groups/"+groupID, nil).Want(204)
		roles("[viewer]")
		d.do(t, "GET", "/Groups/"+groupID, nil).Want(404)

		// The person leaves: sessions and keys end, and controls find nothing that permits.
		ann := d.sessionOf(t, id, "ann@acme.example")
		key := s.Anonymous()
		key.APIKey, _ = ann.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{"scopes": []string{"policies:read"}}).Want(201).Get("key").(string)
		key.Do(t, "GET", "/policies", nil).Want(200)
		apptest.Enforce(t, d.admin, "sandbox")
		apptest.Activate(t, d.admin, "viewers", "sandbox", "package viewers\nallow if \"viewer\" in input.user.roles\n", nil)
		decides := func(want string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				got := d.admin.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": id}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision")
				if got != want {
					return fmt.Errorf("the decision is %v, want %s", got, want)
				}
				return nil
			})
		}
		decides("PERMIT")
		if off := d.do(t, "PATCH", "/Users/"+id, patchOf(body{"op": "replace", "value": body{"active": false}})).Want(200); off.Get("active") != false {
			t.Errorf("the person is %s", off.Body)
		}
		ann.Do(t, "GET", "/auth/me", nil).Want(401)
		key.Do(t, "GET", "/policies", nil).Want(401)
		s.Anonymous().With("X-Tenant-ID", d.company.id).Do(t, "POST", "/auth/login", body{"username": "ann@acme.example", "password": apptest.Password}).Want(401)
		decides("DENY")
		d.do(t, "PATCH", "/Users/"+id, patchOf(body{"op": "replace", "value": body{"active": true}})).Want(200)
		decides("PERMIT")
		d.do(t, "DELETE", "/Users/"+id, nil).Want(204)
		d.do(t, "DELETE", "/Users/"+id, nil).Want(404)
		decides("DENY")
		key.Do(t, "GET", "/policies", nil).Want(401)

		if list := d.admin.Do(t, "GET", d.at("/scim/tokens"), nil).Want(200); list.Get("total") != 1.0 || first(t, list, "tokens", "name") != "Okta" || strings.Contains(string(list.Body), d.token.Bearer) {
			t.Errorf("the tokens are %s", list.Body)
		}
		trail := d.admin.Do(t, "GET", "/audit/events?limit=100", nil).Want(200)
		for _, want := range []string{"DIRECTORY_UPDATED", "DIRECTORY_KEY_CREATED", "USER_CREATED", "USER_ROLES_CHANGED", "GROUP_CREATED", "GROUP_UPDATED", "GROUP_DELETED", "USER_DELETED", `"actor_kind":"directory"`} {
			if !strings.Contains(string(trail.Body), want) {
				t.Errorf("the audit lacks %s", want)
			}
		}
	})
}

// TestEntra provisions by the requests that Entra ID sends.
func TestEntra(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := provisioned(t, s, "Acme", body{"role_map": body{"Security": []string{"auditor"}, "app-author": []string{"policy_author"}}})
		if page := d.do(t, "GET", where("Users", `userName eq "non-existent user"`), nil).Want(200); page.Get("totalResults") != 0.0 {
			t.Errorf("nobody is %s", page.Body)
		}
		made := d.do(t, "POST", "/Users", body{
			"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User", enterprise}, "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef", "userName": "Test_User_ab6490ee",
			"active": true, "emails": []body{{"primary": true, "type": "work", "value": "Test_User_fd0ea19b@testuser.com"}},
			"meta": body{"resourceType": "User"}, "name": body{"formatted": "givenName familyName", "familyName": "familyName", "givenName": "givenName"},
			"roles": []string{}, enterprise: body{"department": "Sales", "employeeNumber": "7", "manager": body{"value": "m1"}},
		}).Want(201)
		id, _ := made.Get("id").(string)
		here := func() *apptest.Response { return d.admin.Do(t, "GET", "/users/"+id, nil).Want(200) }
		if h := here(); h.Get("department") != "Sales" || h.Get("attributes", "employee_number") != "7" || h.Get("attributes", "manager") != "m1" || h.Get("email") != "Test_User_fd0ea19b@testuser.com" {
			t.Errorf("the user is %s", h.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patchOf(
			body{"op": "Replace", "path": `emails[type eq "work"].value`, "value": "updatedEmail@microsoft.com"},
			body{"op": "Replace", "path": "name.familyName", "value": "updatedFamilyName"},
			body{"op": "Add", "path": enterprise + ":manager", "value": "m2"},
			body{"op": "Remove", "path": enterprise + ":employeeNumber"},
			body{"op": "Add", "path": "roles", "value": []body{{"value": `app-author`}}},
		)).Want(200)
		if h := here(); h.Get("email") != "updatedEmail@microsoft.com" || h.Get("attributes", "family_name") != "updatedFamilyName" || h.Get("attributes", "manager") != "m2" ||
			h.Get("attributes", "employee_number") != nil || fmt.Sprint(h.Get("roles")) != "[policy_author]" {
			t.Errorf("the user is %s", h.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patchOf(body{"op": "Replace", "path": "userName", "value": "5b50642d"})).Want(200)
		ann := d.sessionOf(t, id, "5b50642d")
		if off := d.do(t, "PATCH", "/Users/"+id, patchOf(body{"op": "Replace", "path": "active", "value": "False"})).Want(200); off.Get("active") != false || here().Get("status") != "disabled" {
			t.Errorf("the person is %s", off.Body)
		}
		ann.Do(t, "GET", "/auth/me", nil).Want(401)
		if page := d.do(t, "GET", where("Users", `externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef" and active eq false`), nil).Want(200); first(t, page, "Resources", "active") != false {
			t.Errorf("found %s", page.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patchOf(body{"op": "Replace", "path": "active", "value": "True"})).Want(200)

		group := d.do(t, "POST", "/Groups", body{
			"schemas":    []string{"urn:ietf:params:scim:schemas:core:2.0:Group", "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"},
			"externalId": "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159", "displayName": "Security", "meta": body{"resourceType": "Group"},
		}).Want(201)
		groupID, _ := group.Get("id").(string)
		d.do(t, "PATCH", "/Groups/"+groupID, patchOf(body{"op": "Add", "path": "members", "value": []body{{"$ref": nil, "value": id}}})).Want(200)
		if got := fmt.Sprint(here().Get("roles")); got != "[auditor policy_author]" {
			t.Errorf("the roles are %s", got)
		}
		if bare := d.do(t, "GET", "/Groups/"+groupID+"?excludedAttributes=members", nil).Want(200); bare.Get("members") != nil || bare.Get("displayName") != "Security" {
			t.Errorf("the group without members is %s", bare.Body)
		}
		for filter, want := range map[string]float64{
			`displayName eq "security"`: 1, `members.value eq "` + id + `"`: 1, `members[value eq "` + id + `"] and not (displayName eq "other")`: 1, `members.value eq "other"`: 0,
			`externalId eq "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159"`: 1,
		} {
			page := d.do(t, "GET", where("Groups", filter)+"&excludedAttributes=members", nil).Want(200)
			if page.Get("totalResults") != want || strings.Contains(string(page.Body), `"members"`) {
				t.Errorf("%s finds %s", filter, page.Body)
			}
		}
		d.do(t, "PATCH", "/Groups/"+groupID, patchOf(body{"op": "Remove", "path": "members", "value": []body{{"$ref": nil, "value": id}}})).Want(200)
		if got := fmt.Sprint(here().Get("roles")); got != "[policy_author]" {
			t.Errorf("the roles are %s", got)
		}
		d.do(t, "DELETE", "/Groups/"+groupID, nil).Want(204)
		d.do(t, "DELETE", "/Users/"+id, nil).Want(204)
		d.do(t, "GET", "/Users/"+id, nil).Want(404)

		// What a client reads about the server.
		if config := d.do(t, "GET", "/ServiceProviderConfig", nil).Want(200); config.Get("bulk", "supported") != false || config.Get("patch", "supported") != true || config.Get("filter", "maxResults") != 200.0 {
			t.Errorf("the configuration is %s", config.Body)
		}
		if types := d.do(t, "GET", "/ResourceTypes", nil).Want(200); types.Get("totalResults") != 2.0 || first(t, types, "Resources", "endpoint") != "/Users" {
			t.Errorf("the types are %s", types.Body)
		}
		if schemas := d.do(t, "GET", "/Schemas", nil).Want(200); schemas.Get("totalResults") != 3.0 {
			t.Errorf("the schemas are %s", schemas.Body)
		}
		d.do(t, "GET", "/Schemas/"+enterprise, nil).Want(200)
		d.do(t, "GET", "/Schemas/urn:other", nil).Want(404)
		d.do(t, "GET", "/ResourceTypes/Group", nil).Want(200)
		d.do(t, "POST", "/Bulk", body{}).Want(404)
	})
}
