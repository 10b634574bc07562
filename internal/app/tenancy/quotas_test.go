package tenancy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// request is a request that can be sent from any goroutine.
type request struct {
	c            *apptest.Client
	method, path string
	body         any
	pinned       bool // only the first server can answer it
	// fresh makes a new request; nil: this one can be sent again.
	fresh func() request
}

// way is a way to create one more object of a limited kind.
type way struct {
	name string
	// ready prepares the n-th object and returns the request that creates it.
	ready func(n int) request
	// bulk returns a request for two objects; nil: the way creates one at a time.
	bulk func() request
	// validRefusal reports whether a refusal has the form of its protocol; nil: the usual error body.
	validRefusal func(res *apptest.Response, limit, used float64) bool
}

// quota is a limit of a tenant or a vendor that only this test uses.
type quota struct {
	used func() float64
	set  func(limit float64)
	ways []way
}

// quotas are the limits on the number of objects, by the names of their settings. A limit in the
// API document must be here or in notQuotas.
var quotas = map[string]func(t *testing.T, s *apptest.Server) quota{
	"max_policies": policyQuota,
	"max_users":    userQuota,
	"max_bouncers": bouncerQuota,
	"max_tenants":  tenantQuota,
}

// notQuotas are members of the API document that have the name of a limit but limit no objects.
var notQuotas = map[string]string{
	"max_attempts":      "how often one delivery is tried",
	"max_decisions":     "how many decisions one replay takes",
	"max_fires_per_day": "how often one alert rule fires",
}

// TestEveryQuotaIsTested checks that quotas or notQuotas has every limit in the documents of the
// API.
func TestEveryQuotaIsTested(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	declared := map[string]bool{}
	for _, path := range []string{"/openapi.json", "/api/v2/oem/openapi.json"} {
		var doc any
		(&apptest.Client{Base: s.URL}).Do(t, "GET", path, nil).Want(200).Into(&doc)
		collectLimits(doc, declared)
	}
	known := slices.Sorted(maps.Keys(quotas))
	known = slices.Sorted(slices.Values(append(known, slices.Collect(maps.Keys(notQuotas))...)))
	if names := slices.Sorted(maps.Keys(declared)); !slices.Equal(names, known) {
		t.Errorf("the documents have the limits %v, the test knows %v", names, known)
	}
}

// collectLimits adds the properties of schemas whose names begin like a limit.
func collectLimits(v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name := range properties {
			if strings.HasPrefix(name, "max_") {
				out[name] = true
			}
		}
		for _, member := range v {
			collectLimits(member, out)
		}
	case []any:
		for _, member := range v {
			collectLimits(member, out)
		}
	}
}

// TestQuotasHold checks that at a limit, every operation that would create one more object is
// refused and creates nothing. With room for one object, one of several parallel requests succeeds,
// over all servers of the deployment, and a request for two objects is refused.
func TestQuotasHold(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			s := apptest.StartServer(t, backend, loopback)
			servers := []string{s.URL}
			if s.DatabaseURL() != "" {
				servers = append(servers, s.Replica(t, loopback).URL)
			}
			for _, name := range slices.Sorted(maps.Keys(quotas)) {
				q := quotas[name](t, s)
				for _, w := range q.ways {
					t.Run(name+" by "+w.name, func(t *testing.T) { q.check(t, w, servers) })
				}
			}
			t.Run("a vendor's call", func(t *testing.T) { checkVendorLimits(t, s) })
		})
	}
}

// atOnce is the number of parallel requests for the last place.
const atOnce = 6

// check tests one way.
func (q quota) check(t *testing.T, w way, servers []string) {
	q.set(1000)
	var all []request
	for n := range atOnce + 1 {
		all = append(all, w.ready(n))
	}
	full := q.used()
	q.set(full)
	q.wantRefused(t, w, all[0].send(t), full, full)
	q.wantCount(t, full)

	q.set(full + 1)
	if w.bulk != nil {
		q.wantRefused(t, w, w.bulk().send(t), full+1, -1)
		q.wantCount(t, full)
	}
	answers := make([]*apptest.Response, atOnce)
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for n, r := range all[1:] {
		sent := r.prepared().to(servers, n)
		wg.Go(func() { answers[n], errs[n] = sent.try() })
	}
	wg.Wait()
	won := 0
	for n, res := range answers {
		switch {
		case errs[n] != nil:
			t.Fatal(errs[n])
		case res.Status < 400:
			won++
		default:
			q.wantRefused(t, w, res, full+1, full+1)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d parallel requests succeeded, want 1", won, atOnce)
	}
	q.wantCount(t, full+1)

	// A limit below the number of objects deletes none, and admits none.
	q.set(full)
	q.wantRefused(t, w, all[0].send(t), full, full+1)
	q.wantCount(t, full+1)
	q.set(full + 1 + atOnce)
	if res := all[0].send(t); res.Status >= 400 {
		t.Errorf("%s with room = %d %s, want success", w.name, res.Status, res.Body)
	}
	q.wantCount(t, full+2)
}

// wantCount checks the number of objects.
func (q quota) wantCount(t *testing.T, want float64) {
	t.Helper()
	if got := q.used(); got != want {
		t.Errorf("the number of objects is %v, want %v", got, want)
	}
}

// wantRefused checks a refusal. If used is -1, it does not check the used number.
func (q quota) wantRefused(t *testing.T, w way, res *apptest.Response, limit, used float64) {
	t.Helper()
	validRefusal := w.validRefusal
	if validRefusal == nil {
		validRefusal = func(res *apptest.Response, limit, used float64) bool {
			var got struct {
				Error       string
				Limit, Used float64
			}
			return res.Decode(&got) == nil && got.Error == "limit_exceeded" && got.Limit == limit && (used < 0 || got.Used == used)
		}
	}
	if res.Status != 403 || !validRefusal(res, limit, used) {
		t.Errorf("%s = %d %s, want 403 for the limit %v and %v used", w.name, res.Status, res.Body, limit, used)
	}
}

// send sends the request.
func (r request) send(t testing.TB) *apptest.Response {
	t.Helper()
	r = r.prepared()
	return r.c.Do(t, r.method, r.path, r.body)
}

// try is send for any goroutine.
func (r request) try() (*apptest.Response, error) { return r.c.Try(r.method, r.path, r.body) }

// prepared returns the request, or a new one if it can be sent only once.
func (r request) prepared() request {
	if r.fresh != nil {
		return r.fresh()
	}
	return r
}

// to returns the request to the n-th of the servers.
func (r request) to(servers []string, n int) request {
	if !r.pinned {
		c := *r.c
		c.Base = strings.Replace(c.Base, servers[0], servers[n%len(servers)], 1)
		r.c = &c
	}
	return r
}

// companyQuota returns a quota for a limit of a company.
func companyQuota(t *testing.T, s *apptest.Server, c company, kind string) quota {
	t.Helper()
	return quota{
		used: func() float64 {
			n, _ := s.Admin.Do(t, "GET", c.path(""), nil).Want(200).Get("limits", kind+"_used").(float64)
			return n
		},
		set: func(limit float64) {
			s.Admin.Do(t, "PUT", c.path(""), body{"settings": body{"max_" + kind: limit}}).Want(200)
		},
	}
}

// serials numbers the names of a test's objects.
type serials struct{ n int }

func (s *serials) next(kind string) string {
	s.n++
	return fmt.Sprintf("%s-%d", kind, s.n)
}

func policyQuota(t *testing.T, s *apptest.Server) quota {
	c := newCompany(t, s, body{"name": "Many controls"})
	q, names := companyQuota(t, s, c, "policies"), &serials{}
	module := func(name string) string {
		return "package " + strings.ReplaceAll(name, "-", "_") + "\n\nallow := true\n"
	}
	draft := func(kind string) body {
		name := names.next(kind)
		return body{"name": name, "rego_code": module(name), "environment": "sandbox"}
	}
	made := func(kind string) int64 { return c.admin.Do(t, "POST", "/policies", draft(kind)).Want(201).ID() }
	file := func() []string {
		name := names.next("file")
		return []string{"controls/" + name + ".rego", module(name)}
	}
	push := func(files ...string) request {
		return request{c: c.admin, method: "POST", path: "/policies-as-code/deploy", body: body{"files": apptest.CodeFiles(files...)}}
	}
	q.ways = []way{
		{name: "create-policy", ready: func(int) request {
			return request{c: c.admin, method: "POST", path: "/policies", body: draft("made")}
		}},
		{name: "create-policy of a library", ready: func(int) request {
			d := draft("library")
			d["kind"], d["rego_code"] = "library", "package lib."+strings.ReplaceAll(fmt.Sprint(d["name"]), "-", "_")+"\n\nyes := true\n"
			return request{c: c.admin, method: "POST", path: "/policies", body: d}
		}},
		{name: "create-policy from a template", ready: func(int) request {
			var list struct {
				Templates []struct{ ID string }
			}
			c.admin.Do(t, "GET", "/templates", nil).Want(200).Into(&list)
			if len(list.Templates) == 0 {
				t.Fatal("there are no templates")
			}
			d := draft("template")
			d["rego_code"] = c.admin.Do(t, "GET", "/templates/"+list.Templates[0].ID, nil).Want(200).Get("rego_code")
			return request{c: c.admin, method: "POST", path: "/policies", body: d}
		}},
		{name: "restore-policy", ready: func(int) request {
			id := made("deleted")
			c.admin.Do(t, "DELETE", fmt.Sprintf("/policies/%d", id), nil).Want(200)
			return request{c: c.admin, method: "POST", path: fmt.Sprintf("/policies/%d/restore", id)}
		}},
		{name: "promote-policy with a copy", ready: func(int) request {
			id := made("promoted")
			return request{c: c.admin, method: "POST", path: fmt.Sprintf("/policies/%d/promote", id), body: body{"keep_in_sandbox": true}}
		}},
		{
			name:  "deploy-policy-files",
			ready: func(int) request { return push(file()...) },
			bulk:  func() request { return push(append(file(), file()...)...) },
		},
		{
			name: "editor-a deploy",
			ready: func(int) request {
				f := file()
				return request{c: c.admin, method: "POST", path: "/ide-integration/editor-a", body: body{"action": "deploy", "policy_path": f[0], "policy_content": f[1]}}
			},
			validRefusal: func(res *apptest.Response, limit, used float64) bool { // answers to editors have no codes
				var got struct {
					Success     bool
					Message     string
					Limit, Used float64
				}
				return res.Decode(&got) == nil && !got.Success && got.Limit == limit && got.Used == used &&
					got.Message == fmt.Sprintf("the tenant may have %v policies and has %v", limit, used)
			},
		},
	}
	return q
}

func userQuota(t *testing.T, s *apptest.Server) quota {
	idp := newProvider(t)
	c := newCompanyWithProvider(t, s, "Many people", idp, nil)
	d := directoryOf(t, s, c)
	q, names := companyQuota(t, s, c, "users"), &serials{}
	line := func() string {
		name := names.next("imported")
		return fmt.Sprintf("{\"username\":%q,\"email\":\"%s@acme.example\"}\n", name, name)
	}
	imports := func(query, text string) request {
		return request{c: c.admin.With("Content-Type", "application/x-ndjson"), method: "POST", path: "/users/import" + query, body: []byte(text)}
	}
	q.ways = []way{
		{name: "create-user", ready: func(int) request {
			name := names.next("made")
			return request{c: c.admin, method: "POST", path: "/users", body: body{"username": name, "email": name + "@acme.example"}}
		}},
		{
			name:  "import-users",
			ready: func(int) request { return imports("", line()) },
			bulk:  func() request { return imports("", line()+line()) },
		},
		{
			name: "scim-create-user",
			ready: func(int) request {
				name := names.next("scim")
				return request{c: d.token.With("Content-Type", "application/scim+json"), method: "POST", path: "/scim/v2/Users", body: body{"userName": name, "emails": []string{name + "@acme.example"}}}
			},
			validRefusal: func(res *apptest.Response, limit, used float64) bool {
				var got struct{ Detail string }
				return res.Decode(&got) == nil && strings.HasSuffix(got.Detail, fmt.Sprintf("may have %v users and has %v", limit, used))
			},
		},
		{name: "finish-sign-on", ready: func(int) request {
			name := names.next("known")
			// A code is valid once, so each request is a new sign-in.
			return request{fresh: func() request {
				idp.setClaims(verifiedClaims(name, nil))
				a := startSignOn(t, s.Anonymous(), c.id, "/")
				browser := a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "cross-site")
				return request{c: browser, method: "GET", path: "/auth/sso/callback?" + a.callbackQuery(idp).Encode(), pinned: true}
			}}
		}},
	}
	return q
}

func bouncerQuota(t *testing.T, s *apptest.Server) quota {
	c := newCompany(t, s, body{"name": "Many bouncers"})
	q, names := companyQuota(t, s, c, "bouncers"), &serials{}
	q.ways = []way{{name: "create-bouncer", ready: func(int) request {
		return request{c: c.admin, method: "POST", path: "/bouncers", body: body{"name": names.next("edge"), "hostname": "edge.example", "port": 8443}}
	}}}
	return q
}

func tenantQuota(t *testing.T, s *apptest.Server) quota {
	id, vendor := newVendor(t, s, body{"name": "Many tenants"})
	names := &serials{}
	draft := func() body {
		return body{"name": names.next("Widget"), "administrator": body{"email": "root@widget.example"}}
	}
	deleted := func() string {
		id := vendor.Do(t, "POST", "/tenants", draft()).Want(201).Text("tenant", "id")
		vendor.Do(t, "DELETE", "/tenants/"+id, nil).Want(200)
		return "/tenants/" + id
	}
	active := body{"status": "active"}
	return quota{
		used: func() float64 {
			var list struct {
				Tenants []struct{ Status string }
			}
			vendor.Do(t, "GET", "/tenants?limit=100", nil).Want(200).Into(&list)
			n := 0.0
			for _, made := range list.Tenants {
				if made.Status != "deleted" {
					n++
				}
			}
			return n
		},
		set: func(limit float64) { s.Admin.Do(t, "PUT", "/vendors/"+id, body{"max_tenants": limit}).Want(200) },
		ways: []way{
			{name: "oem-create-tenant", ready: func(int) request { return request{c: vendor, method: "POST", path: "/tenants", body: draft()} }},
			{name: "oem-update-tenant of a deleted one", ready: func(int) request {
				return request{c: vendor, method: "PUT", path: deleted(), body: active}
			}},
			{name: "update-tenant of a deleted one", ready: func(int) request {
				return request{c: s.Admin, method: "PUT", path: deleted(), body: active}
			}},
		},
	}
}

// checkVendorLimits checks that the limits in a vendor's call apply to this call, and that a
// refused call leaves no tenant.
func checkVendorLimits(t *testing.T, s *apptest.Server) {
	_, vendor := newVendor(t, s, body{"name": "Strict"})
	call := func(limit string) *apptest.Response {
		return vendor.Do(t, "POST", "/tenants", body{
			"name": "Held", "settings": body{limit: 0}, "administrator": body{"email": "root@held.example"},
			"bouncer": body{"name": "edge", "hostname": "edge.example", "port": 8443},
		})
	}
	for _, limit := range []string{"max_users", "max_bouncers"} {
		if res := call(limit).Want(403); res.Get("error") != "limit_exceeded" || res.Get("limit") != 0.0 || res.Get("used") != 0.0 {
			t.Errorf("a call with %s of 0 = %s, want limit_exceeded", limit, res.Body)
		}
	}
	if list := vendor.Do(t, "GET", "/tenants", nil).Want(200); list.Get("total") != 0.0 {
		t.Errorf("GET /tenants after refused calls = %s, want none", list.Body)
	}
	made := call("max_policies").Want(201)
	key := s.WithKey(made.Text("api_keys", "0", "key"))
	key.Do(t, "POST", "/policies", body{"name": "one", "rego_code": "package one\n"}).ExpectError("max_policies of 0", 403, "limit_exceeded")
}
