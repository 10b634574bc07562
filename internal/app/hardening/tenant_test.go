package hardening_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

var tenantCases = []hardeningCase{
	{"T1 foreign ids", foreignIDs},
	{"T2 equal ids in two tenants", equalIDs},
	{"T3 foreign tenant named", foreignTenant},
	{"T4 conflicting tenant names", conflictingSources},
	{"T5 foreign ids in bodies", foreignReferences},
	{"T6 suspended and deleted tenants", endedTenants},
	{"T7 numbers of others", foreignNumbers},
}

// foreignIDs checks that every operation answers an id of another tenant like an unknown id, and
// changes nothing.
func foreignIDs(t *testing.T, r *fixture) {
	foreign := func(param string) string {
		if param == "tenant_id" {
			return r.alpha.id
		}
		return r.beta.valueOf(param)
	}
	r.wantUnchanged(t, func() {
		for _, op := range r.withSecurity() {
			if !strings.Contains(strings.NewReplacer("{tenant_id}", "", "{environment}", "").Replace(op.path), "{") {
				continue
			}
			for _, c := range []*apptest.Client{r.alpha.key, r.alpha.admin} {
				got := op.send(t, withRequestID(c), op.pathWith(foreign))
				never := op.send(t, withRequestID(c), op.pathWith(r.alpha.unused))
				if got.Status != never.Status || !bytes.Equal(got.Body, never.Body) {
					t.Errorf("%s on a foreign id = %d %s, want %d %s as for an unknown id", op.id, got.Status, got.Body, never.Status, never.Body)
				}
				if got.Status < 400 || got.Status == 401 || got.Status == 403 && len(op.callers) == 0 || got.Status >= 500 {
					t.Errorf("%s on a foreign id = %d %s, want a refusal", op.id, got.Status, got.Body)
				}
				checkRefusal(t, got, op.id)
			}
		}
	})
}

// equalIDs checks that two tenants whose objects have equal ids each read, evaluate and list only
// their own, with warm caches and interleaved requests.
func equalIDs(t *testing.T, r *fixture) {
	twins := []*party{r.tenant(t, "Twin one"), r.tenant(t, "Twin two")}
	var ids []int64
	for i, p := range twins {
		canary := fmt.Sprintf("canary-%d", i)
		resource := p.admin.Do(t, "POST", "/resources", body{"name": canary, "type": "api", "path": "/twin", "environment": "production"}).Want(201).ID()
		control := r.newControl(t, p, body{"name": canary, "environment": "production", "resource_id": resource, "status": "active", "rego_code": fmt.Sprintf("package p\n\ndefault allow := false\n\nallow if input.user.id == %q\n\nreason := %q\n", canary, canary)})
		if ids = append(ids, control); ids[0] != control {
			t.Fatalf("the controls of the two tenants have the ids %v, want equal ids", ids)
		}
	}
	for n := range 200 {
		p, own, other := twins[n%2], fmt.Sprintf("canary-%d", n%2), fmt.Sprintf("canary-%d", 1-n%2)
		for _, res := range []*apptest.Response{
			p.key.Do(t, "GET", fmt.Sprintf("/policies/%d", ids[0]), nil).Want(200),
			p.key.Do(t, "GET", "/policies?environment=production", nil).Want(200),
			p.key.Do(t, "GET", "/resources", nil).Want(200),
			p.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "canary-1"}, "resource": body{"type": "api", "path": "/twin"}}).Want(200),
		} {
			foreign := bytes.Contains(res.Body, []byte(other))
			if foreign || !bytes.Contains(res.Body, []byte(own)) {
				t.Fatalf("tenant %s reads %s, want %s and not %s", p.id, res.Body, own, other)
			}
		}
	}
	for i, p := range twins {
		want := []string{"DENY", "PERMIT"}[i]
		if got := p.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "canary-1"}, "resource": body{"type": "api", "path": "/twin"}}).Get("decision"); got != want {
			t.Errorf("tenant %s decides %v, want %s", p.id, got, want)
		}
	}
}

// foreignTenant checks that naming another tenant, by header, query, host or path, is refused alike
// whether it exists or not. Without a credential, the answer is always the same 401.
func foreignTenant(t *testing.T, r *fixture) {
	r.wantUnchanged(t, func() {
		for _, op := range r.withSecurity() {
			for _, id := range []string{r.beta.id, "never-was"} {
				path := op.pathWith(r.alpha.valueOf)
				named := map[string]*apptest.Client{path: r.alpha.key.With("X-Tenant-ID", id)}
				if strings.HasPrefix(op.path, "/api/v1/") {
					named[path+"?tenant_id="+id] = r.alpha.key
				}
				if strings.Contains(op.path, "{tenant_id}") {
					named[strings.Replace(op.path, "{tenant_id}", id, 1)] = r.alpha.key
				}
				for path, c := range named {
					res := op.send(t, c, path)
					// OPA's protocol has its own error body.
					told := strings.HasPrefix(op.path, "/v1/") || strings.HasPrefix(op.path, "/access/v1/") || op.directory() || res.Get("error") == "tenant_access_denied" && res.Get("tenant_id") == id
					if res.Status != 403 || !told {
						t.Errorf("%s %s naming the tenant %s = %d %s, want 403 tenant_access_denied", op.method, path, id, res.Status, res.Body)
					}
					checkRefusal(t, res, op.id)
				}
			}
			known := op.send(t, withRequestID(r.s.Anonymous()).With("X-Tenant-ID", r.beta.id), op.pathWith(r.alpha.valueOf))
			never := op.send(t, withRequestID(r.s.Anonymous()).With("X-Tenant-ID", "never-was"), op.pathWith(r.alpha.valueOf))
			if known.Status != 401 || never.Status != 401 || !bytes.Equal(known.Body, never.Body) {
				t.Errorf("%s without a credential = %d %s for a known and %d %s for an unknown tenant, want the same 401", op.id, known.Status, known.Body, never.Status, never.Body)
			}
		}
	})
	// A platform administrator may know which tenants exist.
	r.do(t, r.s.Admin, "GET", "/tenants/never-was", 404, nil)
	if code := r.do(t, r.s.Admin.With("X-Tenant-ID", "never-was"), "GET", "/policies", 404, nil).Get("error"); code != "tenant_not_found" {
		t.Errorf("GET /policies of an unknown tenant as a platform administrator = %v, want tenant_not_found", code)
	}
	// Nobody else may create or list tenants.
	r.do(t, r.alpha.admin, "POST", "/tenants", 403, body{"name": "Gamma"})
	if list := r.alpha.admin.Do(t, "GET", "/tenants", nil).Want(200); list.Get("total") != 1.0 || bytes.Contains(list.Body, []byte(r.beta.id)) {
		t.Errorf("GET /tenants as a tenant's administrator = %s, want only the own tenant", list.Body)
	}
	// The role platform_admin counts only in the tenant default.
	_, c := r.newPerson(t, &party{id: r.alpha.id, admin: r.s.Admin.With("X-Tenant-ID", r.alpha.id)}, "platform_admin")
	r.do(t, c, "GET", "/tenants/"+r.beta.id, 403, nil)
	r.do(t, c.With("X-Tenant-ID", r.beta.id), "GET", "/policies", 403, nil)
	r.do(t, c, "POST", "/tenants", 403, body{"name": "Gamma"})
}

// conflictingSources checks that a request that names two tenants, or one tenant twice in one
// place, is refused before any lookup, and that equal names in several places are accepted.
func conflictingSources(t *testing.T, r *fixture) {
	own, other := r.alpha.id, r.beta.id
	key := r.alpha.key
	host := func(c *apptest.Client, tenant string) *apptest.Client { return c.With("Host", tenant+"."+baseDomain) }
	twice := func(values ...string) *apptest.Client {
		c := key.With("X-Tenant-ID", "")
		c.Header["X-Tenant-Id"] = values
		return c
	}
	for _, c := range []struct {
		what   string
		client *apptest.Client
		path   string
		code   string
	}{
		{"header and query", key.With("X-Tenant-ID", own), "/policies?tenant_id=" + other, "tenant_conflict"},
		{"host and header", host(key, other).With("X-Tenant-ID", own), "/policies", "tenant_conflict"},
		{"host and query", host(key, own), "/policies?tenant_id=" + other, "tenant_conflict"},
		{"the header twice", twice(own, other), "/policies", "tenant_conflict"},
		{"the header twice alike", twice(own, own), "/policies", "tenant_conflict"},
		{"the parameter twice", key, "/policies?tenant_id=" + own + "&tenant_id=" + other, "tenant_conflict"},
		{"a list in the header", key.With("X-Tenant-ID", own+","+other), "/policies", "invalid_tenant"},
		{"a list in the query", key, "/policies?tenant_id=" + own + "%2C" + other, "invalid_tenant"},
		{"another case", key.With("X-Tenant-ID", strings.ToUpper(own)), "/policies", "invalid_tenant"},
		{"a space", key, "/policies?tenant_id=%20" + own, "invalid_tenant"},
		{"SQL", key.With("X-Tenant-ID", `x"; DROP SCHEMA "t_beta`), "/policies", "invalid_tenant"},
		{"a path", key, "/policies?tenant_id=..%2Fbeta", "invalid_tenant"},
		{"nothing", key, "/policies?tenant_id=", "invalid_tenant"},
	} {
		if code := r.do(t, c.client, "GET", c.path, 400, nil).Get("error"); code != c.code {
			t.Errorf("GET %s (%s) = %v, want %s", c.path, c.what, code, c.code)
		}
		// The answer without a credential is the same, so the server looked nothing up.
		anonymous := *c.client
		anonymous.APIKey = ""
		r.do(t, &anonymous, "GET", c.path, 400, nil)
	}
	r.do(t, host(key, own).With("X-Tenant-ID", own), "GET", "/policies?tenant_id="+own, 200, nil)
	r.do(t, host(key, own), "GET", "/policies", 200, nil)
	r.do(t, host(key, strings.ToUpper(own)), "GET", "/policies", 200, nil) // host names ignore case
	r.do(t, host(key, other), "GET", "/policies", 403, nil)
	// The server trusts no proxy, so it ignores headers that name another host.
	r.do(t, key.With("X-Forwarded-Host", other+"."+baseDomain), "GET", "/policies", 200, nil)
	r.do(t, key.With("Forwarded", "host="+other+"."+baseDomain), "GET", "/policies", 200, nil)
	r.do(t, key.With("X-Original-Host", other+"."+baseDomain), "GET", "/policies", 200, nil)
}

// foreignReferences checks that an id of another tenant or environment in a body is answered like
// an unknown id, with its place, and changes nothing.
func foreignReferences(t *testing.T, r *fixture) {
	a := r.alpha.admin
	production := a.Do(t, "POST", "/resources", body{"name": "production", "type": "api", "path": "/t5", "environment": "production"}).Want(201).ID()
	edge := a.Do(t, "POST", "/bouncers", body{"name": r.name("edge"), "hostname": "edge.example", "port": 8443, "environment": "production"}).Want(201).ID()
	const never = 987654321
	control := body{"name": "x", "rego_code": "package p\n", "environment": "sandbox"}
	action := func(ref string) []body {
		return []body{{"type": "notification", "destination_ref": ref, "trigger": "on_deny"}}
	}
	with := func(extra body) body {
		out := maps.Clone(control)
		maps.Copy(out, extra)
		return out
	}
	own := fmt.Sprintf("/policies/%d", r.alpha.policy)
	bouncer := fmt.Sprintf("/bouncers/%d", r.alpha.bouncer)
	r.wantUnchanged(t, func() {
		for _, c := range []struct {
			method, path, pointer string
			make                  func(id int64) body
			ids                   []int64
		}{
			{"POST", "/policies", "/resource_id", func(id int64) body { return with(body{"resource_id": id}) }, []int64{r.beta.resource, production}},
			{"POST", "/policies", "/bouncer_id", func(id int64) body { return with(body{"bouncer_id": id}) }, []int64{r.beta.bouncer, edge}},
			{"POST", "/policies", "/actions/0/destination_ref", func(id int64) body { return with(body{"actions": action(fmt.Sprintf("channel:%d", id))}) }, []int64{1}},
			{"PUT", own, "/resource_id", func(id int64) body { return body{"resource_id": id} }, []int64{r.beta.resource, production}},
			{"PUT", own, "/bouncer_id", func(id int64) body { return body{"bouncer_id": id} }, []int64{r.beta.bouncer, edge}},
			{"POST", "/bouncers", "/resource_ids/0", func(id int64) body {
				return body{"name": "b", "hostname": "edge.example", "port": 8443, "resource_ids": []int64{id}}
			}, []int64{r.beta.resource, production}},
			{"PUT", bouncer, "/resource_ids/0", func(id int64) body { return body{"resource_ids": []int64{id}} }, []int64{r.beta.resource, production}},
		} {
			base := r.do(t, withRequestID(a), c.method, c.path, 422, c.make(never))
			for _, id := range c.ids {
				res := r.do(t, withRequestID(a), c.method, c.path, 422, c.make(id))
				if !bytes.Contains(res.Body, []byte(`"`+c.pointer+`"`)) {
					t.Errorf("%s %s = %s, want the pointer %s", c.method, c.path, res.Body, c.pointer)
				}
				if strings.ReplaceAll(string(res.Body), fmt.Sprint(id), fmt.Sprint(never)) != string(base.Body) {
					t.Errorf("%s %s with a foreign id = %s, want %s as for an unknown id", c.method, c.path, res.Body, base.Body)
				}
			}
		}
	})
	// A decision about a foreign resource matches no control of the caller.
	decide := func(id int64) string {
		res := r.alpha.key.Do(t, "POST", "/decisions/evaluate?environment=sandbox", body{"user": body{"id": "u"}, "resource": body{"id": id}}).Want(200)
		reason := strings.Replace(fmt.Sprint(res.Get("reason")), fmt.Sprint(id), "that id", 1) // the reason repeats the id
		return fmt.Sprint(res.Get("decision"), reason, res.Get("policy_name"))
	}
	if foreign, unknown := decide(r.beta.resource), decide(never); foreign != unknown {
		t.Errorf("the decision about a foreign resource = %s, want %s as for an unknown one", foreign, unknown)
	}
}

// endedTenants checks that the credentials of a suspended or deleted tenant stop within a second,
// that a purge leaves nothing, and that an id is never used again.
func endedTenants(t *testing.T, r *fixture) {
	p := r.tenant(t, "Gone soon")
	r.addObjects(t, p)
	r.do(t, p.key, "POST", "/decisions/evaluate", 200, body{"user": body{"id": "u"}})
	wantRefused := func(c *apptest.Client, path string) {
		t.Helper()
		apptest.Eventually(t, time.Second, func() error {
			res := c.Do(t, "GET", path, nil)
			if res.Status != 401 && res.Status != 403 {
				return fmt.Errorf("GET %s = %d, want 401 or 403", path, res.Status)
			}
			checkRefusal(t, res, path)
			return nil
		})
	}
	platform := r.s.Admin
	login := body{"username": "root", "password": apptest.Password}
	platform.Do(t, "PUT", "/tenants/"+p.id, body{"status": "suspended"}).Want(200)
	wantRefused(p.key, "/policies")
	wantRefused(p.admin, "/auth/me")
	r.do(t, r.s.Anonymous().With("X-Tenant-ID", p.id), "POST", "/auth/login", 401, login)
	platform.Do(t, "PUT", "/tenants/"+p.id, body{"status": "active"}).Want(200)
	r.do(t, p.key, "GET", "/policies", 200, nil)

	r.do(t, r.alpha.admin, "DELETE", "/tenants/"+p.id, 403, nil)
	platform.Do(t, "DELETE", "/tenants/"+p.id, nil).Want(200)
	wantRefused(p.key, "/policies")
	wantRefused(p.admin, "/auth/me")
	wrong := r.do(t, withRequestID(r.s.Anonymous()).With("X-Tenant-ID", p.id), "POST", "/auth/login", 401, login)
	never := r.do(t, withRequestID(r.s.Anonymous()).With("X-Tenant-ID", "never-was"), "POST", "/auth/login", 401, login)
	if !bytes.Equal(wrong.Body, never.Body) {
		t.Errorf("sign-in to a deleted tenant = %s, want %s as for an unknown one", wrong.Body, never.Body)
	}
	platform.Do(t, "DELETE", "/tenants/"+p.id+"?hard_delete=true", nil).Want(200)
	r.do(t, platform, "GET", "/tenants/"+p.id, 404, nil)
	r.wantPurged(t, p.id)

	again := platform.Do(t, "POST", "/tenants", body{"name": "Gone soon"}).Want(201)
	if again.Get("id") == p.id {
		t.Errorf("the new tenant has the id %s of the deleted one", p.id)
	}
	wantRefused(p.key, "/policies")
	wantRefused(p.admin, "/auth/me")
}

// wantPurged checks that the store has nothing of a tenant.
func (r *fixture) wantPurged(t *testing.T, id string) {
	t.Helper()
	if address := r.s.DatabaseURL(); address != "" {
		conn, err := pgx.Connect(t.Context(), address)
		errtest.Must(t, err)
		defer conn.Close(t.Context())
		var schemas, credentials, tenants int
		for query, n := range map[string]*int{
			`SELECT count(*) FROM information_schema.schemata WHERE schema_name = 't_' || $1`: &schemas,
			`SELECT count(*) FROM gatehouse.credentials WHERE tenant = $1`:                    &credentials,
			`SELECT count(*) FROM gatehouse.tenants WHERE id = $1`:                            &tenants,
		} {
			errtest.Must(t, conn.QueryRow(t.Context(), query, id).Scan(n))
		}
		if schemas+credentials+tenants != 0 {
			t.Errorf("the purge left %d schemas, %d credentials and %d records, want none", schemas, credentials, tenants)
		}
		return
	}
	files, err := filepath.Glob(filepath.Join(r.s.Dir, "tenants", id+"*"))
	if err != nil || len(files) > 0 {
		t.Errorf("the purge left the files %v (%v), want none", files, err)
	}
	store, err := sql.Open("sqlite", "file:"+filepath.Join(r.s.Dir, "system.db")+"?mode=ro")
	errtest.Must(t, err)
	defer store.Close()
	if left := append(texts(t, store, "SELECT tenant FROM credentials WHERE tenant = '"+id+"'"), texts(t, store, "SELECT id FROM tenants WHERE id = '"+id+"'")...); len(left) > 0 {
		t.Errorf("the purge left %v in the system's store, want nothing", left)
	}
	if _, err := os.Stat(filepath.Join(r.s.Dir, "objects", id)); err == nil {
		t.Error("the purge left the tenant's objects")
	}
}

// foreignNumbers checks that metrics and health show a tenant its own figures, and no name of
// another.
func foreignNumbers(t *testing.T, r *fixture) {
	metrics := func() string { return string(r.alpha.key.Do(t, "GET", "/metrics", nil).Want(200).Body) }
	metrics()
	before := metrics()
	for range 50 {
		r.beta.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u"}}).Want(200)
		r.beta.key.Do(t, "GET", "/policies/987654321", nil).Want(404)
	}
	after := metrics()
	for _, text := range []string{r.beta.id, "default", `tenant="`} {
		if strings.Contains(after, text) {
			t.Errorf("GET /metrics with a tenant's key shows %q:\n%s", text, after)
		}
	}
	// The tenant's only request in between reads the metrics.
	if b, a := countRequests(before), countRequests(after); a != b+1 {
		t.Errorf("the tenant's request count went from %v to %v during requests of another, want one more", b, a)
	}
	r.do(t, r.s.Anonymous(), "GET", "/metrics", 401, nil)
	for _, path := range []string{"/health", "/health/ready", "/health/live", "/health/policy-bridge"} {
		text := string(r.s.Anonymous().Do(t, "GET", path, nil).Body)
		for _, inside := range []string{r.alpha.id, r.beta.id, "postgres://", "127.0.0.1", r.s.Dir} {
			if strings.Contains(text, inside) {
				t.Errorf("GET %s shows %q: %s", path, inside, text)
			}
		}
	}
}

// countRequests returns the sum of a tenant's requests in an exposition.
func countRequests(exposition string) (sum float64) {
	for line := range strings.Lines(exposition) {
		if rest, ok := strings.CutPrefix(line, "gatehouse_tenant_requests_total{"); ok {
			var n float64
			_, text, _ := strings.Cut(rest, "} ")
			if _, err := fmt.Sscan(text, &n); err == nil {
				sum += n
			}
		}
	}
	return sum
}
