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
	// fresh makes a request that has not been sent; nil: this one can be sent again.
	fresh func() request
}

// way is one way to get one object more of a limited kind.
type way struct {
	name string
	// ready prepares the n-th object and returns the request that makes it.
	ready func(n int) request
	// bulk is a request for two objects at once; nil: the way makes one at a time.
	bulk func() request
	// told reports whether a refusal is as its protocol wants; nil: the usual error body.
	told func(res *apptest.Response, limit, used float64) bool
}

// quota is a limit under test, in a tenant (or of a vendor) of its own.
type quota struct {
	used func() float64
	set  func(limit float64)
	ways []way
}

// quotas are the limits that hold back the making of objects, by the name of their setting.
// A limit that is declared in the API document must be here, or in notQuotas.
var quotas = map[string]func(t *testing.T, s *apptest.Server) quota{
	"max_policies": policyQuota,
	"max_users":    userQuota,
	"max_bouncers": bouncerQuota,
	"max_tenants":  tenantQuota,
}

// notQuotas are members of the API document that begin like limits but hold back no object.
var notQuotas = map[string]string{
	"max_attempts":      "how often one delivery is tried",
	"max_decisions":     "how many decisions one replay takes",
	"max_fires_per_day": "how often one alert rule tells of itself",
}

// TestEveryQuotaIsTested: a limit that is declared anywhere in the documents of the API has
// its row here.
func TestEveryQuotaIsTested(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	declared := map[string]bool{}
	for _, path := range []string{"/openapi.json", "/api/v2/oem/openapi.json"} {
		var doc any
		(&apptest.Client{Base: s.URL}).Do(t, "GET", path, nil).Want(200).Into(&doc)
		collectLimits(doc, declared)
	}
	rows := map[string]bool{}
	for name := range quotas {
		rows[name] = true
	}
	for name := range notQuotas {
		rows[name] = true
	}
	if !maps.Equal(declared, rows) {
		t.Errorf("declared are %v, tested or explained are %v", slices.Sorted(maps.Keys(declared)), slices.Sorted(maps.Keys(rows)))
	}
}

// collectLimits finds the properties of schemas that begin like a limit.
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

// TestQuotasHold: at the limit, every operation that would make one object more is refused
// and makes nothing; with room for one, only one of many requests at once gets it, over all
// servers of the deployment; with room for one, a request for two gets none.
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
					t.Run(name+" by "+w.name, func(t *testing.T) { q.holds(t, w, servers) })
				}
			}
			t.Run("a vendor's call", func(t *testing.T) { vendorCallsHold(t, s) })
		})
	}
}

// atOnce is how many requests want the last place.
const atOnce = 6

// holds tests one way.
func (q quota) holds(t *testing.T, w way, servers []string) {
	q.set(1000)
	var all []request
	for n := range atOnce + 1 {
		all = append(all, w.ready(n))
	}
	full := q.used()
	q.set(full)
	q.refused(t, w, all[0].send(t), full, full)
	q.counts(t, full)

	q.set(full + 1)
	if w.bulk != nil {
		q.refused(t, w, w.bulk().send(t), full+1, -1)
		q.counts(t, full)
	}
	answers := make([]*apptest.Response, atOnce)
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for n, r := range all[1:] {
		sent := r.prepared().at(servers, n)
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
			q.refused(t, w, res, full+1, full+1)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d requests at once got the last place", won, atOnce)
	}
	q.counts(t, full+1)

	// A limit below what there is takes nothing away, and lets nothing in.
	q.set(full)
	q.refused(t, w, all[0].send(t), full, full+1)
	q.counts(t, full+1)
	q.set(full + 1 + atOnce)
	if res := all[0].send(t); res.Status >= 400 {
		t.Errorf("with room: %d %s", res.Status, res.Body)
	}
	q.counts(t, full+2)
}

// counts checks how many objects there are.
func (q quota) counts(t *testing.T, want float64) {
	t.Helper()
	if got := q.used(); got != want {
		t.Errorf("there are %v, want %v", got, want)
	}
}

// refused checks a refusal; used -1: what was used is not to be compared.
func (q quota) refused(t *testing.T, w way, res *apptest.Response, limit, used float64) {
	t.Helper()
	told := w.told
	if told == nil {
		told = func(res *apptest.Response, limit, used float64) bool {
			var got struct {
				Error       string
				Limit, Used float64
			}
			return res.Decode(&got) == nil && got.Error == "limit_exceeded" && got.Limit == limit && (used < 0 || got.Used == used)
		}
	}
	if res.Status != 403 || !told(res, limit, used) {
		t.Errorf("over the limit %v with %v: %d %s", limit, used, res.Status, res.Body)
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

// prepared is the request, made now if it can be sent only once.
func (r request) prepared() request {
	if r.fresh != nil {
		return r.fresh()
	}
	return r
}

// at is the request to the n-th of the servers.
func (r request) at(servers []string, n int) request {
	if !r.pinned {
		c := *r.c
		c.Base = strings.Replace(c.Base, servers[0], servers[n%len(servers)], 1)
		r.c = &c
	}
	return r
}

// limited is a company whose limit of a kind can be set.
func limited(t *testing.T, s *apptest.Server, c company, kind string) quota {
	t.Helper()
	return quota{
		used: func() float64 {
			n, _ := s.Admin.Do(t, "GET", c.at(""), nil).Want(200).Get("limits", kind+"_used").(float64)
			return n
		},
		set: func(limit float64) {
			s.Admin.Do(t, "PUT", c.at(""), body{"settings": body{"max_" + kind: limit}}).Want(200)
		},
	}
}

// serials numbers names, so that no two objects of a test have the same.
type serials struct{ n int }

func (s *serials) next(kind string) string {
	s.n++
	return fmt.Sprintf("%s-%d", kind, s.n)
}

func policyQuota(t *testing.T, s *apptest.Server) quota {
	c := found(t, s, body{"name": "Many controls"})
	q, names := limited(t, s, c, "policies"), &serials{}
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
	deploy := func(files ...string) request {
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
			ready: func(int) request { return deploy(file()...) },
			bulk:  func() request { return deploy(append(file(), file()...)...) },
		},
		{
			name: "editor-a deploy",
			ready: func(int) request {
				f := file()
				return request{c: c.admin, method: "POST", path: "/ide-integration/editor-a", body: body{"action": "deploy", "policy_path": f[0], "policy_content": f[1]}}
			},
			told: func(res *apptest.Response, limit, used float64) bool { // answers to editors have no codes
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
	c := configured(t, s, "Many people", idp, nil)
	d := directory{company: c, token: &apptest.Client{Base: s.URL}}
	d.token.Bearer, _ = c.admin.Do(t, "POST", c.at("/scim/tokens"), body{"name": "Okta"}).Want(201).Get("token").(string)
	q, names := limited(t, s, c, "users"), &serials{}
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
			told: func(res *apptest.Response, limit, used float64) bool {
				var got struct{ Detail string }
				return res.Decode(&got) == nil && strings.HasSuffix(got.Detail, fmt.Sprintf("may have %v users and has %v", limit, used))
			},
		},
		{name: "finish-sign-on", ready: func(int) request {
			name := names.next("known")
			// A code is good once: each request is a sign-in of its own.
			return request{fresh: func() request {
				idp.says(verified(name, nil))
				a := begin(t, s.Anonymous(), c.id, "/")
				browser := a.c.With("Cookie", a.cookies.String()).With("Sec-Fetch-Site", "cross-site")
				return request{c: browser, method: "GET", path: "/auth/sso/callback?" + a.answer(idp).Encode(), pinned: true}
			}}
		}},
	}
	return q
}

func bouncerQuota(t *testing.T, s *apptest.Server) quota {
	c := found(t, s, body{"name": "Many bouncers"})
	q, names := limited(t, s, c, "bouncers"), &serials{}
	q.ways = []way{{name: "create-bouncer", ready: func(int) request {
		return request{c: c.admin, method: "POST", path: "/bouncers", body: body{"name": names.next("edge"), "hostname": "edge.example", "port": 8443}}
	}}}
	return q
}

func tenantQuota(t *testing.T, s *apptest.Server) quota {
	id, vendor := registered(t, s, body{"name": "Many tenants"})
	names := &serials{}
	draft := func() body {
		return body{"name": names.next("Widget"), "administrator": body{"email": "root@widget.example"}}
	}
	deleted := func() string {
		id, _ := vendor.Do(t, "POST", "/tenants", draft()).Want(201).Get("tenant", "id").(string)
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

// vendorCallsHold: the limits that a call sets hold in it, and a refused call leaves no
// tenant behind.
func vendorCallsHold(t *testing.T, s *apptest.Server) {
	_, vendor := registered(t, s, body{"name": "Strict"})
	call := func(limit string) *apptest.Response {
		return vendor.Do(t, "POST", "/tenants", body{
			"name": "Held", "settings": body{limit: 0}, "administrator": body{"email": "root@held.example"},
			"bouncer": body{"name": "edge", "hostname": "edge.example", "port": 8443},
		})
	}
	for _, limit := range []string{"max_users", "max_bouncers"} {
		if res := call(limit).Want(403); res.Get("error") != "limit_exceeded" || res.Get("limit") != 0.0 || res.Get("used") != 0.0 {
			t.Errorf("%s of 0: %s", limit, res.Body)
		}
	}
	if list := vendor.Do(t, "GET", "/tenants", nil).Want(200); list.Get("total") != 0.0 {
		t.Errorf("refused calls leave %s", list.Body)
	}
	made := call("max_policies").Want(201)
	key := s.Anonymous()
	key.APIKey, _ = member(t, made, "api_keys", "0", "key").(string)
	if res := key.Do(t, "POST", "/policies", body{"name": "one", "rego_code": "package one\n"}).Want(403); res.Get("error") != "limit_exceeded" {
		t.Errorf("max_policies of 0: %s", res.Body)
	}
}
