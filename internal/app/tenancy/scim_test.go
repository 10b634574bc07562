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

// directory is a company's directory, with a token and its id.
type directory struct {
	company
	token *apptest.Client
	id    string
}

// directoryOf creates a token for a company's directory.
func directoryOf(t testing.TB, s *apptest.Server, c company) directory {
	t.Helper()
	made := c.admin.Do(t, "POST", c.path("/scim/tokens"), body{"name": "Okta"}).Want(201)
	return directory{c, &apptest.Client{Base: s.URL, Bearer: made.Text("token")}, made.Text("id")}
}

// newDirectory creates a company with settings for its directory.
func newDirectory(t testing.TB, s *apptest.Server, name string, settings body) directory {
	t.Helper()
	c := newCompany(t, s, body{"name": name})
	c.admin.Do(t, "PUT", c.path("/scim"), settings).Want(200)
	return directoryOf(t, s, c)
}

// do sends a SCIM request.
func (d directory) do(t testing.TB, method, path string, b any) *apptest.Response {
	t.Helper()
	return d.token.With("Content-Type", "application/scim+json").Do(t, method, "/scim/v2"+path, b)
}

// listURL returns the path of a list with a filter.
func listURL(resource, filter string) string {
	return "/" + resource + "?" + url.Values{"filter": {filter}}.Encode()
}

// patch returns the body of a PATCH with the operations.
func patch(operations ...body) body {
	return body{"schemas": []string{"urn:ietf:params:scim:api:messages:2.0:PatchOp"}, "Operations": operations}
}

// login sets a person's password and signs them in.
func (d directory) login(t testing.TB, s *apptest.Server, id, username string) *apptest.Client {
	t.Helper()
	d.admin.Do(t, "PUT", "/users/"+id, body{"password": apptest.Password}).Want(200)
	return s.LoginTo(t, d.company.id, username, apptest.Password)
}

// TestOkta provisions people and groups with the requests that Okta sends.
func TestOkta(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, s, "Acme", body{"role_map": body{"Authors": []string{"Policy Author"}, "buyers": []string{"buyer"}}, "default_roles": []string{"viewer"}})
		d.admin.Do(t, "POST", "/users", body{"id": "byhand", "username": "byhand", "email": "byhand@acme.example", "roles": []string{"auditor"}}).Want(201)

		// Okta tests the connection, searches for the person and adds them.
		if page := d.do(t, "GET", "/Users?startIndex=1&count=1", nil).Want(200); page.Get("totalResults") != 2.0 || page.Get("itemsPerPage") != 1.0 || page.Header.Get("Content-Type") != "application/scim+json" {
			t.Errorf("GET /Users = %s, want one of 2 people", page.Body)
		}
		none := d.do(t, "GET", listURL("Users", `userName eq "ann@acme.example"`)+"&startIndex=1&count=100", nil).Want(200)
		if none.Get("totalResults") != 0.0 || !strings.Contains(string(none.Body), `"Resources":[]`) {
			t.Errorf("GET /Users with a filter that nobody matches = %s, want an empty list", none.Body)
		}
		draft := body{
			"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User"}, "userName": "ann@acme.example", "name": body{"givenName": "Ann", "familyName": "Lee"},
			"emails": []body{{"primary": true, "value": "ann@acme.example", "type": "work"}}, "displayName": "Ann Lee", "locale": "en-US",
			"externalId": "00ujl29u0le5T6Aj10h7", "groups": []string{}, "password": "1mz050nq", "active": true,
		}
		made := d.do(t, "POST", "/Users", draft).Want(201)
		id := made.Text("id")
		etag := made.Header.Get("ETag")
		if made.Get("meta", "location") != s.URL+"/scim/v2/Users/"+id || made.Header.Get("Location") != made.Get("meta", "location") || etag == "" || made.Get("meta", "version") != etag ||
			made.Get("name", "givenName") != "Ann" || strings.Contains(string(made.Body), "1mz050nq") {
			t.Errorf("POST /Users = %s at %q, want the person with location and version, and without the password", made.Body, made.Header.Get("Location"))
		}
		again := d.do(t, "POST", "/Users", draft).Want(409)
		if again.Get("scimType") != "uniqueness" || again.Get("status") != "409" || again.Header.Get("Content-Type") != "application/scim+json" {
			t.Errorf("the second POST /Users = %s, want uniqueness", again.Body)
		}
		here := d.admin.Do(t, "GET", "/users/"+id, nil).Want(200)
		if here.Get("username") != "ann@acme.example" || fmt.Sprint(here.Get("roles")) != "[viewer]" || fmt.Sprint(here.Get("attributes")) != "map[display_name:Ann Lee family_name:Lee given_name:Ann locale:en-US]" {
			t.Errorf("GET /users/%s = %s, want the person of the directory", id, here.Body)
		}
		one := d.do(t, "GET", listURL("Users", `userName eq "ANN@acme.example"`), nil).Want(200)
		if one.Get("totalResults") != 1.0 || one.Get("Resources", "0", "id") != id {
			t.Errorf("GET /Users with the name as a filter = %s, want the person", one.Body)
		}

		// Okta pushes the whole profile, and the server checks the version.
		draft["name"], draft["displayName"], draft["title"] = body{"givenName": "Ann", "familyName": "Ray"}, "Ann Ray", "Engineer"
		delete(draft, "locale")
		changed := d.token.With("If-Match", etag)
		put := changed.Do(t, "PUT", "/scim/v2/Users/"+id, draft).Want(200)
		if put.Header.Get("ETag") == etag || put.Get("name", "familyName") != "Ray" || put.Get("locale") != nil {
			t.Errorf("PUT /Users = %s, want a new version with the new name and no locale", put.Body)
		}
		if stale := changed.Do(t, "PUT", "/scim/v2/Users/"+id, draft).Want(412); stale.Get("status") != "412" {
			t.Errorf("PUT /Users with a stale version = %s, want the status 412", stale.Body)
		}
		same := d.do(t, "PUT", "/Users/"+id, draft).Want(200)
		if same.Header.Get("ETag") != put.Header.Get("ETag") {
			t.Errorf("PUT /Users with the same document has the version %s, want %s", same.Header.Get("ETag"), put.Header.Get("ETag"))
		}
		d.token.With("If-None-Match", put.Header.Get("ETag")).Do(t, "GET", "/scim/v2/Users/"+id, nil).Want(304)
		if here := d.admin.Do(t, "GET", "/users/"+id, nil).Want(200); fmt.Sprint(here.Get("attributes")) != "map[display_name:Ann Ray family_name:Ray given_name:Ann title:Engineer]" {
			t.Errorf("GET /users/%s has the attributes %v, want those of the new profile", id, here.Get("attributes"))
		}

		// Okta pushes a group. Its members get its roles and lose them.
		d.do(t, "GET", "/Groups?startIndex=1&count=100", nil).Want(200)
		group := d.do(t, "POST", "/Groups", body{"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:Group"}, "displayName": "authors", "members": []body{{"value": id, "display": "ann@acme.example"}}}).Want(201)
		groupID := group.Text("id")
		wantRoles := func(want string) {
			t.Helper()
			if got := fmt.Sprint(d.admin.Do(t, "GET", "/users/"+id, nil).Want(200).Get("roles")); got != want {
				t.Errorf("the roles are %s, want %s", got, want)
			}
		}
		wantRoles("[policy_author viewer]")
		if res := d.do(t, "GET", "/Users/"+id, nil).Want(200); res.Get("groups", "0", "value") != groupID || res.Get("groups", "0", "display") != "authors" {
			t.Errorf("GET /Users/%s has the groups %v, want authors", id, res.Get("groups"))
		}
		d.do(t, "PATCH", "/Groups/"+groupID, patch(body{"op": "replace", "value": body{"id": groupID, "displayName": "Buyers"}})).Want(200)
		wantRoles("[buyer viewer]")
		d.do(t, "PATCH", "/Groups/"+groupID, patch(body{"op": "remove", "path": `members[value eq "` + id + `"]`})).Want(200)
		wantRoles("[viewer]")
		d.do(t, "PATCH", "/Groups/"+groupID, patch(body{"op": "add", "path": "members", "value": []body{{"value": id}}})).Want(200)
		wantRoles("[buyer viewer]")
		d.admin.Do(t, "PUT", d.path("/scim"), body{"role_map": body{"BUYERS": []string{"auditor"}}}).Want(200)
		wantRoles("[auditor viewer]")
		d.do(t, "DELETE", "/Groups/"+groupID, nil).Want(204)
		wantRoles("[viewer]")
		d.do(t, "GET", "/Groups/"+groupID, nil).Want(404)

		// The person leaves: sessions and keys end, and no control permits.
		ann := d.login(t, s, id, "ann@acme.example")
		key := s.WithKey(ann.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{"scopes": []string{"policies:read"}}).Want(201).Text("key"))
		key.Do(t, "GET", "/policies", nil).Want(200)
		apptest.Enforce(t, d.admin, "sandbox")
		apptest.Activate(t, d.admin, "viewers", "sandbox", "package viewers\nallow if \"viewer\" in input.user.roles\n", nil)
		wantDecision := func(want string) {
			t.Helper()
			apptest.Eventually(t, time.Minute, func() error {
				got := d.admin.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": id}, "resource": body{"type": "api", "path": "/x"}}).Want(200).Get("decision")
				if got != want {
					return fmt.Errorf("the decision is %v, want %s", got, want)
				}
				return nil
			})
		}
		wantDecision("PERMIT")
		if off := d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "value": body{"active": false}})).Want(200); off.Get("active") != false {
			t.Errorf("PATCH active to false = %s, want it false", off.Body)
		}
		ann.Do(t, "GET", "/auth/me", nil).Want(401)
		key.Do(t, "GET", "/policies", nil).Want(401)
		s.Anonymous().With("X-Tenant-ID", d.company.id).Do(t, "POST", "/auth/login", body{"username": "ann@acme.example", "password": apptest.Password}).Want(401)
		wantDecision("DENY")
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "replace", "value": body{"active": true}})).Want(200)
		wantDecision("PERMIT")
		d.do(t, "DELETE", "/Users/"+id, nil).Want(204)
		d.do(t, "DELETE", "/Users/"+id, nil).Want(404)
		wantDecision("DENY")
		key.Do(t, "GET", "/policies", nil).Want(401)

		if list := d.admin.Do(t, "GET", d.path("/scim/tokens"), nil).Want(200); list.Get("total") != 1.0 || list.Get("tokens", "0", "name") != "Okta" || strings.Contains(string(list.Body), d.token.Bearer) {
			t.Errorf("GET /scim/tokens = %s, want one without its token", list.Body)
		}
		trail := d.admin.Do(t, "GET", "/audit/events?limit=100", nil).Want(200)
		for _, want := range []string{"DIRECTORY_UPDATED", "DIRECTORY_KEY_CREATED", "USER_CREATED", "USER_ROLES_CHANGED", "GROUP_CREATED", "GROUP_UPDATED", "GROUP_DELETED", "USER_DELETED", `"actor_kind":"directory"`} {
			if !strings.Contains(string(trail.Body), want) {
				t.Errorf("the audit lacks %s", want)
			}
		}
	})
}

// TestEntra provisions people and groups with the requests that Entra ID sends.
func TestEntra(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		d := newDirectory(t, s, "Acme", body{"role_map": body{"Security": []string{"auditor"}, "app-author": []string{"policy_author"}}})
		if page := d.do(t, "GET", listURL("Users", `userName eq "non-existent user"`), nil).Want(200); page.Get("totalResults") != 0.0 {
			t.Errorf("GET /Users with a filter that nobody matches = %s, want none", page.Body)
		}
		made := d.do(t, "POST", "/Users", body{
			"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User", enterprise}, "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef", "userName": "Test_User_ab6490ee",
			"active": true, "emails": []body{{"primary": true, "type": "work", "value": "Test_User_fd0ea19b@testuser.com"}},
			"meta": body{"resourceType": "User"}, "name": body{"formatted": "givenName familyName", "familyName": "familyName", "givenName": "givenName"},
			"roles": []string{}, enterprise: body{"department": "Sales", "employeeNumber": "7", "manager": body{"value": "m1"}},
		}).Want(201)
		id := made.Text("id")
		here := func() *apptest.Response { return d.admin.Do(t, "GET", "/users/"+id, nil).Want(200) }
		if h := here(); h.Get("department") != "Sales" || h.Get("attributes", "employee_number") != "7" || h.Get("attributes", "manager") != "m1" || h.Get("email") != "Test_User_fd0ea19b@testuser.com" {
			t.Errorf("GET /users/%s = %s, want the person of the directory", id, h.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patch(
			body{"op": "Replace", "path": `emails[type eq "work"].value`, "value": "updatedEmail@microsoft.com"},
			body{"op": "Replace", "path": "name.familyName", "value": "updatedFamilyName"},
			body{"op": "Add", "path": enterprise + ":manager", "value": "m2"},
			body{"op": "Remove", "path": enterprise + ":employeeNumber"},
			body{"op": "Add", "path": "roles", "value": []body{{"value": `app-author`}}},
		)).Want(200)
		if h := here(); h.Get("email") != "updatedEmail@microsoft.com" || h.Get("attributes", "family_name") != "updatedFamilyName" || h.Get("attributes", "manager") != "m2" ||
			h.Get("attributes", "employee_number") != nil || fmt.Sprint(h.Get("roles")) != "[policy_author]" {
			t.Errorf("GET /users/%s after the PATCH = %s, want the changes", id, h.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "Replace", "path": "userName", "value": "5b50642d"})).Want(200)
		ann := d.login(t, s, id, "5b50642d")
		own := s.WithKey(ann.Do(t, "POST", "/developer-portal/api-keys/sandbox/generate", body{"scopes": []string{"policies:read"}}).Want(201).Text("key"))
		own.Do(t, "GET", "/policies", nil).Want(200)
		if off := d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "Replace", "path": "active", "value": "False"})).Want(200); off.Get("active") != false || here().Get("status") != "disabled" {
			t.Errorf("PATCH active to \"False\" = %s, want it false and the user disabled", off.Body)
		}
		ann.Do(t, "GET", "/auth/me", nil).Want(401)
		own.Do(t, "GET", "/policies", nil).Want(401)
		if page := d.do(t, "GET", listURL("Users", `externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef" and active eq false`), nil).Want(200); page.Get("Resources", "0", "active") != false {
			t.Errorf("GET /Users with two filters = %s, want the inactive person", page.Body)
		}
		d.do(t, "PATCH", "/Users/"+id, patch(body{"op": "Replace", "path": "active", "value": "True"})).Want(200)
		own.Do(t, "GET", "/policies", nil).Want(200) // it was refused only while the person was disabled
		ann.Do(t, "GET", "/auth/me", nil).Want(401)

		group := d.do(t, "POST", "/Groups", body{
			"schemas":    []string{"urn:ietf:params:scim:schemas:core:2.0:Group", "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"},
			"externalId": "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159", "displayName": "Security", "meta": body{"resourceType": "Group"},
		}).Want(201)
		groupID := group.Text("id")
		d.do(t, "PATCH", "/Groups/"+groupID, patch(body{"op": "Add", "path": "members", "value": []body{{"$ref": nil, "value": id}}})).Want(200)
		if got := fmt.Sprint(here().Get("roles")); got != "[auditor policy_author]" {
			t.Errorf("the roles of the person are %s", got)
		}
		if bare := d.do(t, "GET", "/Groups/"+groupID+"?excludedAttributes=members", nil).Want(200); bare.Get("members") != nil || bare.Get("displayName") != "Security" {
			t.Errorf("GET /Groups without members = %s, want the name only", bare.Body)
		}
		for filter, want := range map[string]float64{
			`displayName eq "security"`: 1, `members.value eq "` + id + `"`: 1, `members[value eq "` + id + `"] and not (displayName eq "other")`: 1, `members.value eq "other"`: 0,
			`externalId eq "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159"`: 1,
		} {
			page := d.do(t, "GET", listURL("Groups", filter)+"&excludedAttributes=members", nil).Want(200)
			if page.Get("totalResults") != want || strings.Contains(string(page.Body), `"members"`) {
				t.Errorf("GET /Groups with the filter %s = %s, want %v groups without members", filter, page.Body, want)
			}
		}
		d.do(t, "PATCH", "/Groups/"+groupID, patch(body{"op": "Remove", "path": "members", "value": []body{{"$ref": nil, "value": id}}})).Want(200)
		if got := fmt.Sprint(here().Get("roles")); got != "[policy_author]" {
			t.Errorf("the roles of the person are %s", got)
		}
		d.do(t, "DELETE", "/Groups/"+groupID, nil).Want(204)
		d.do(t, "DELETE", "/Users/"+id, nil).Want(204)
		d.do(t, "GET", "/Users/"+id, nil).Want(404)

		// A client reads the server's configuration.
		if config := d.do(t, "GET", "/ServiceProviderConfig", nil).Want(200); config.Get("bulk", "supported") != false || config.Get("patch", "supported") != true || config.Get("filter", "maxResults") != 200.0 {
			t.Errorf("GET /ServiceProviderConfig = %s, want patch, no bulk, and 200 results", config.Body)
		}
		if types := d.do(t, "GET", "/ResourceTypes", nil).Want(200); types.Get("totalResults") != 2.0 || types.Get("Resources", "0", "endpoint") != "/Users" {
			t.Errorf("GET /ResourceTypes = %s, want 2", types.Body)
		}
		if schemas := d.do(t, "GET", "/Schemas", nil).Want(200); schemas.Get("totalResults") != 3.0 {
			t.Errorf("GET /Schemas = %s, want 3", schemas.Body)
		}
		d.do(t, "GET", "/Schemas/"+enterprise, nil).Want(200)
		d.do(t, "GET", "/Schemas/urn:other", nil).Want(404)
		d.do(t, "GET", "/ResourceTypes/Group", nil).Want(200)
		d.do(t, "POST", "/Bulk", body{}).Want(404)
	})
}
