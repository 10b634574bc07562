package tenancy_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// TestPeopleAsSubjects checks that a person may have the id of an application's directory, and that a
// decision on that id uses the person's attributes.
func TestPeopleAsSubjects(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		acme, other := newCompany(t, s, body{"name": "Acme"}), newCompany(t, s, body{"name": "Other"})
		const id = "acct:Ann+1@acme.example"
		if made := acme.admin.Do(t, "POST", "/users", body{"id": id, "username": "ann", "email": "ann@acme.example", "department": "radiology"}).Want(201); made.Get("id") != id {
			t.Errorf("POST /users = %s, want the id %s", made.Body, id)
		}
		at := "/users/" + url.PathEscape(id)
		for _, path := range []string{at, "/users/" + id} {
			if got := acme.admin.Do(t, "GET", path, nil).Want(200); got.Get("id") != id {
				t.Errorf("GET %s = %s, want the id %s", path, got.Body, id)
			}
		}
		for _, again := range []body{{"id": id, "username": "b", "email": "b@acme.example"}, {"id": "other", "username": "ANN", "email": "c@acme.example"}} {
			acme.admin.Do(t, "POST", "/users", again).ExpectError(fmt.Sprint(again), 409, "already_exists")
		}
		for _, bad := range []any{"", ".", "..", "a b", "a/b", "é", "a\x00", strings.Repeat("a", 129), 7, nil} {
			acme.admin.Do(t, "POST", "/users", body{"id": bad, "username": "bad", "email": "bad@acme.example"}).Expect(fmt.Sprintf("the id %q", bad), 422, 400)
		}
		acme.admin.Do(t, "POST", "/users", body{"id": strings.Repeat("a", 128), "username": "long", "email": "long@acme.example"}).Want(201)
		// The same id in another tenant is another person.
		other.admin.Do(t, "GET", at, nil).Want(404)
		other.admin.Do(t, "POST", "/users", body{"id": id, "username": "ann", "email": "ann@other.example", "department": "sales"}).Want(201)

		control := body{"name": "radiology", "status": "active", "environment": "production", "rego_code": "package p\n\nallow if input.user.department == \"radiology\"\n"}
		for _, c := range []struct {
			company
			want string
		}{{acme, "PERMIT"}, {other, "DENY"}} {
			c.key.Do(t, "POST", "/policies", control).Want(201)
			if got := c.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": id}, "resource": body{"type": "api", "path": "/x"}}).Want(200); got.Get("decision") != c.want {
				t.Errorf("the decision in %s = %s, want %s", c.id, got.Body, c.want)
			}
		}
		acme.admin.Do(t, "PUT", at+"/roles", body{"roles": []string{"viewer"}}).Want(200)
		acme.admin.Do(t, "DELETE", at, nil).Want(200)
		acme.admin.Do(t, "GET", at, nil).Want(404)
	})
}

// TestImportOfPeople checks that an import adds all people or none, that the answer names the line of
// each error, and that a dry run stores nothing.
func TestImportOfPeople(t *testing.T) {
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		acme := newCompany(t, s, body{"name": "Acme", "settings": body{"max_users": 6}})
		send := func(query, media, text string) *apptest.Response {
			t.Helper()
			return acme.admin.With("Content-Type", media).Do(t, "POST", "/users/import"+query, []byte(text))
		}
		people := func() string {
			t.Helper()
			var list struct {
				Users []struct{ ID, Username string }
			}
			acme.admin.Do(t, "GET", "/users", nil).Want(200).Into(&list)
			var names []string
			for _, u := range list.Users {
				names = append(names, u.Username)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		const text = "\ufeffid,email,username,roles,department,attributes,attributes.site\r\n" +
			"e-1,ann@acme.example,ann,viewer; auditor,\"x-ray,\nward\",\"{\"\"level\"\": 3}\",north\r\n" +
			",bob@acme.example,bob,,,,\r\n"
		if dry := send("?dry_run=true", "text/csv", text).Want(200); dry.Get("dry_run") != true || dry.Get("created") != 2.0 {
			t.Errorf("POST /users/import?dry_run=true = %s, want 2 people", dry.Body)
		}
		if got := people(); got != "root" {
			t.Errorf("a dry run left the people %s, want root", got)
		}
		done := send("", "text/csv; charset=utf-8", text).Want(200)
		var out struct {
			Users []struct {
				Line         int
				ID, Username string
			}
		}
		done.Into(&out)
		if len(out.Users) != 2 || out.Users[0].ID != "e-1" || out.Users[0].Line != 2 || out.Users[1].Line != 4 || out.Users[1].ID == "" {
			t.Errorf("POST /users/import = %s, want the people of the lines 2 and 4", done.Body)
		}
		if ann := acme.admin.Do(t, "GET", "/users/e-1", nil).Want(200); fmt.Sprint(ann.Get("roles")) != "[viewer auditor]" || ann.Get("department") != "x-ray,\nward" || ann.Get("attributes", "level") != 3.0 || ann.Get("attributes", "site") != "north" {
			t.Errorf("GET /users/e-1 = %s, want the members of line 2", ann.Body)
		}
		send("", "application/x-ndjson", `{"id": "e-2", "username": "cid", "email": "cid@acme.example"}`+"\n\n").Want(200)
		if got := people(); got != "ann bob cid root" {
			t.Errorf("after two imports the people are %s, want ann bob cid root", got)
		}

		before := people()
		for _, c := range []struct{ media, text, want string }{
			{"text/csv", "", "line 1"},
			{"text/csv", "name,email\nx,y\n", "line 1"},
			{"text/csv", "email,email\nx,y\n", "line 1"},
			{"text/csv", "username,email\n", "nobody"},
			{"text/csv", "username,email\ndan,dan@acme.example\ndan2\n", "line 3"},
			{"text/csv", "username,email\n\"dan,dan@acme.example\n", "line"},
			{"text/csv", "username,email\ndan,dan@acme.example\nDAN,dan2@acme.example\n", "/lines/3/username"},
			{"text/csv", "id,username,email\ne-9,dan,dan@acme.example\ne-9,eve,eve@acme.example\n", "/lines/3/id"},
			{"text/csv", "id,username,email\ne-1,dan,dan@acme.example\n", "/lines/2/id"},
			{"text/csv", "username,email\ndan,ANN@acme.example\n", "/lines/2/email"},
			{"text/csv", "username,email\ndan,no address\n", "/lines/2/email"},
			{"text/csv", "id,username,email\na b,dan,dan@acme.example\n", "/lines/2/id"},
			{"text/csv", "username,email,attributes\ndan,dan@acme.example,[1]\n", "/lines/2/attributes"},
			{"text/csv", "username,email,roles\ndan,dan@acme.example,platform_admin\n", "/lines/2/roles"},
			{"text/csv", "username,email\ndan\xff,dan@acme.example\n", "UTF-8"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "password": "correct horse"}`, "/lines/1/password"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example"}` + "\n" + `{"user": "eve"}`, "/lines/2"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example"} {}`, "/lines/1"},
			{"application/x-ndjson", `[]`, "/lines/1"},
			// A line is read as strictly as the body of a request.
			{"application/x-ndjson", `null`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "username": "eve", "email": "dan@acme.example"}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "Username": "eve", "email": "dan@acme.example"}`, "/lines/1"},
			{"application/x-ndjson", `{"USERNAME": "dan", "email": "dan@acme.example"}`, "/lines/1"},
			{"application/x-ndjson", `{"id": null, "username": "dan", "email": "dan@acme.example"}`, "/lines/1"},
			{"application/x-ndjson", `{"id": 7, "username": "dan", "email": "dan@acme.example"}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "tenant_id": "other"}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "attributes": {"a": 1, "a": 2}}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "attributes": {"a": 12345678901234567890}}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "attributes": {"a": "\ud800"}}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "attributes": {"a": ` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}}`, "/lines/1"},
			{"application/x-ndjson", `{"username": "dan", "email": "dan@acme.example", "attributes": {"a": "` + strings.Repeat("x", 1<<20) + `"}}`, "/lines/1"},
			{"text/csv", "username,email,attributes\ndan,dan@acme.example,\"{\"\"a\"\": 1, \"\"a\"\": 2}\"\n", "/lines/2/attributes"},
			{"text/csv", "username,email,attributes\ndan,dan@acme.example,null\n", "/lines/2/attributes"},
			{"text/csv", "username,email,department\ndan,dan@acme.example," + strings.Repeat("x", 1<<20) + "\n", "/lines/2"},
			// The server stops reading a text that is no import.
			{"text/csv", "username,email\n" + strings.Repeat("x\n", 5_000_000), "line 1001"},
			{"text/csv", "username,email\n" + strings.Repeat("x,y\n", 5000), "/lines/2/email"},
			{"application/x-ndjson", strings.Repeat("x\n", 5_000_000), "/lines/1000"},
		} {
			res := send("", c.media, c.text)
			if res.Status != 422 || res.Get("error") != "import_failed" || !strings.Contains(string(res.Body), c.want) {
				t.Errorf("the import of %.100q = %d %.1000s, want 422 import_failed with %s", c.text, res.Status, res.Body, c.want)
			}
		}
		send("", "text/csv", "username,email\nd1,d1@acme.example\nd2,d2@acme.example\nd3,d3@acme.example\n").ExpectError("more people than max_users", 403, "limit_exceeded")
		send("", "application/json", `{}`).Expect("another format", 415)
		acme.key.With("Content-Type", "text/csv").Do(t, "POST", "/users/import", []byte(text)).Want(403)
		if got := people(); got != before {
			t.Errorf("refused imports left the people %s, want %s", got, before)
		}
	})
}
