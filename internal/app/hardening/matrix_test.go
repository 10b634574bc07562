package hardening_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// roleScopes is the documented table of roles. It is written by hand, because the test checks the
// program's own table.
func roleScopes(role string) []string {
	var out []string
	for _, scope := range everyScope() {
		area, verb, _ := strings.Cut(scope, ":")
		write := verb == "write"
		var held bool
		switch role {
		case "platform_admin", "admin":
			held = true
		case "policy_author":
			held = area == "policies" || area == "simulator" || area == "editor" || scope == "resources:read"
		case "resource_manager":
			held = area == "resources"
		case "operator":
			held = slices.Contains([]string{"bouncers", "pip", "agents", "webhooks", "notifications"}, area)
		case "auditor":
			held = verb == "read" || area == "audit"
		case "viewer":
			held = !write && !slices.Contains([]string{"audit", "users", "telemetry"}, area)
		}
		if held {
			out = append(out, scope)
		}
	}
	return out
}

// matrixCaller is a credential of the matrix.
type matrixCaller struct {
	what, role, bound string
	client            *apptest.Client
	// cookie is set for a browser's session, elsewhere for one on a page of another site.
	cookie, elsewhere bool
}

// kind returns the kind of the caller, as the document names it.
func (c matrixCaller) kind() string {
	if c.bound != "" || c.client.APIKey != "" {
		return "api_key"
	}
	return "user"
}

// permissionMatrix calls every operation as each role: with a person's token, a browser's session,
// a key of the tenant, and keys and tokens that are valid in one environment. Each request names no
// environment, sandbox or production. No browser's session on a page of another site is admitted.
// The expected answer follows from the permission and the reach in the served document and from
// roleScopes. Each request has a parameter that no operation knows, so an admitted request ends at
// once and changes nothing.
func permissionMatrix(t *testing.T, r *fixture) {
	p := r.tenant(t, "Roles")
	var callers []matrixCaller
	for _, role := range []string{"platform_admin", "admin", "policy_author", "resource_manager", "operator", "auditor", "viewer"} {
		callers = append(callers, r.callers(t, p, role)...)
	}
	for _, op := range r.ops {
		if op.public {
			continue
		}
		for _, c := range callers {
			for _, named := range []string{"", "sandbox", "production"} {
				r.checkAdmission(t, p, op, c, named)
			}
		}
	}
}

// callers returns the credentials of one role.
func (r *fixture) callers(t *testing.T, p *party, role string) []matrixCaller {
	t.Helper()
	admin, tenant := p.admin, p.id
	if role == "platform_admin" { // this role counts only in the tenant default
		admin, tenant = r.s.Admin, "default"
	}
	name := r.name("role")
	admin.Do(t, "POST", "/users", body{"username": name, "email": name + "@example.com", "password": apptest.Password, "roles": []string{role}}).Want(201)
	person := r.s.LoginTo(t, tenant, name, apptest.Password)
	browser := r.s.Anonymous().With("Sec-Fetch-Site", "same-origin")
	begun := browser.With("X-Tenant-ID", tenant).Do(t, "POST", "/auth/sessions", body{"username": name, "password": apptest.Password}).Want(200)
	cookie, _, _ := strings.Cut(begun.Header.Get("Set-Cookie"), ";")
	browser = browser.With("Cookie", cookie)
	out := []matrixCaller{
		{what: role, role: role, client: person},
		{what: role + "'s browser", role: role, client: browser, cookie: true},
		{what: role + "'s browser elsewhere", role: role, client: browser.With("Sec-Fetch-Site", "cross-site"), cookie: true, elsewhere: true},
	}
	key := r.s.WithKey(admin.Do(t, "POST", "/tenants/"+tenant+"/api-keys", body{"name": name, "scopes": roleScopes(role)}).Want(201).Text("key"))
	out = append(out, matrixCaller{what: role + "'s key", role: role, client: key})
	for _, env := range []string{"sandbox", "production"} {
		own, tenants := r.s.Anonymous(), r.s.Anonymous()
		own.APIKey = person.Do(t, "POST", "/developer-portal/api-keys/"+env+"/generate", body{"scopes": roleScopes(role)}).Want(201).Text("key")
		tenants.APIKey = admin.Do(t, "POST", "/tenants/"+tenant+"/api-keys", body{"name": name, "scopes": roleScopes(role), "environment": env}).Want(201).Text("key")
		token := r.s.WithToken(tenants.Do(t, "POST", "/developer-portal/token", body{}).Want(200).Text("access_token"))
		for what, client := range map[string]*apptest.Client{"own key": own, "key": tenants, "token": token} {
			out = append(out, matrixCaller{what: role + "'s " + what + " of " + env, role: role, bound: env, client: client})
		}
	}
	return out
}

// checkAdmission sends one request of the matrix and checks the answer.
func (r *fixture) checkAdmission(t *testing.T, p *party, op operation, c matrixCaller, named string) {
	t.Helper()
	in := named
	path := op.pathWith(func(param string) string {
		switch param {
		case "environment":
			if in == "" {
				in = "sandbox"
			}
			return in
		case "tenant_id":
			if c.role == "platform_admin" {
				return "default"
			}
		}
		return p.unused(param)
	}) + "?no_such_parameter=1"
	if named != "" {
		path += "&environment=" + named
	}
	denied := c.bound != "" && (op.reach == "tenant" || op.reach == "sandbox" && c.bound != "sandbox" || in != "" && in != c.bound)
	lacks := op.permission != "" && !slices.ContainsFunc(roleScopes(c.role), func(scope string) bool { return permits(scope, op.permission) })
	lacks = lacks || op.also != "" && !slices.ContainsFunc(roleScopes(c.role), func(scope string) bool { return permits(scope, op.also) })
	res := op.send(t, c.client, path)
	what := fmt.Sprintf("%s (%s, reach %s) as %s naming %q", op.id, op.permission, op.reach, c.what, named)
	switch {
	case c.cookie && op.optional: // this operation takes no cookie
		if res.Status < 300 {
			t.Errorf("%s = %d, want an error", what, res.Status)
		}
	case op.directory():
		if res.Status != 403 {
			t.Errorf("%s = %d %s, want 403 for its kind of credential", what, res.Status, res.Body)
		}
	case c.elsewhere:
		if res.Status != 403 || !errorContains(res, "pages of this origin only") {
			t.Errorf("%s = %d %s, want 403 for its origin", what, res.Status, res.Body)
		}
	case denied && !(res.Status == 403 && errorContains(res, "valid for "+c.bound+" only")):
		t.Errorf("%s = %d %s, want 403 for its environment", what, res.Status, res.Body)
	case !denied && lacks && !(res.Status == 403 && errorContains(res, "permission")):
		t.Errorf("%s = %d %s, want 403 for its permission", what, res.Status, res.Body)
	case !denied && !lacks && !op.takes(c.kind()) && !(c.role == "platform_admin" && c.kind() == "user" && op.platform()):
		if res.Status != 403 {
			t.Errorf("%s = %d %s, want 403 for its kind of caller", what, res.Status, res.Body)
		}
	case !denied && !lacks && op.foreign() && (res.Status == 401 || res.Status >= 500 || errorContains(res, "valid for")):
		t.Errorf("%s = %d %s, want it admitted", what, res.Status, res.Body)
	case !denied && !lacks && res.Status == 415: // admitted: the operation takes another media type, such as CSV
	case !denied && !lacks && !op.foreign() && !(res.Status == 400 && errorContains(res, "no_such_parameter")):
		t.Errorf("%s = %d %s, want 400 for the unknown parameter", what, res.Status, res.Body)
	}
}

// foreign reports whether the operation follows another protocol, which ignores unknown parameters.
func (op operation) foreign() bool {
	return op.bridge() || strings.HasPrefix(op.path, "/v1/data/") || strings.HasPrefix(op.path, "/access/v1/")
}

// errorContains reports whether the body is JSON and contains the text.
func errorContains(res *apptest.Response, text string) bool {
	var doc any
	return json.Unmarshal(res.Body, &doc) == nil && strings.Contains(fmt.Sprint(doc), text)
}
