package hardening_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// C3 comes last: it kills the server.
var concurrencyCases = []hardeningCase{
	{"C1 parallel promotions and creates", parallelCreates},
	{"C2 parallel updates", parallelUpdates},
	{"C4 delete, update and promote of one control", mixedChanges},
	{"C3 double submit", doubleSubmit},
	{"C3 double submit across kill -9", submitAndDie},
}

// at runs f n times in parallel and gives what each answered. Who is told 503,
// that the store has too much to do, asks again, as clients are told to, for
// dbtest.Patience.
func at(t *testing.T, n int, f func(i int) (*apptest.Response, error)) []*apptest.Response {
	t.Helper()
	out := make([]*apptest.Response, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			res, err := f(i)
			for began := time.Now(); err == nil && res.Status == 503; res, err = f(i) {
				if time.Since(began) > dbtest.Patience {
					err = fmt.Errorf("request %d of %d: still 503 after %s: %s", i+1, n, dbtest.Patience, res.Body)
					break
				}
			}
			if err != nil {
				t.Error(err)
				res = &apptest.Response{}
			}
			out[i] = res
		})
	}
	all.Wait()
	return out
}

func statuses(list []*apptest.Response) map[int]int {
	out := map[int]int{}
	for _, res := range list {
		out[res.Status]++
	}
	return out
}

// events counts the entries of an administrative log of one object.
func (p *party) events(t *testing.T, kind string, id any) int {
	t.Helper()
	list, _ := p.admin.Do(t, "GET", fmt.Sprintf("/audit/events?limit=1000&type=%s&object_id=%v", kind, id), nil).Want(200).Get("events").([]any)
	return len(list)
}

// outbox counts a tenant's events of one type that were ever written and are
// still there.
func (r *rig) outbox(t *testing.T, tenant, kind string) int {
	t.Helper()
	if address := r.s.DatabaseURL(); address != "" {
		conn, err := pgx.Connect(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{"t_" + tenant, "events"}.Sanitize()+" WHERE type = $1", kind).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	store, err := sql.Open("sqlite", "file:"+filepath.Join(r.s.Dir, "tenants", tenant+".db")+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	return len(texts(t, store, "SELECT type FROM events WHERE type = '"+kind+"'"))
}

// parallelCreates: of fifty promotions one happens, and of fifty creates as many
// as there is room for.
func parallelCreates(t *testing.T, r *rig) {
	p := r.tenant(t, "Crowd")
	id := r.control(t, p, nil)
	got := at(t, 50, func(int) (*apptest.Response, error) {
		return p.key.Try("POST", fmt.Sprintf("/policies/%d/promote", id), body{})
	})
	if n := statuses(got); n[200] != 1 || n[409] != 49 {
		t.Errorf("fifty promotions: %v", n)
	}
	if n, m := p.events(t, "POLICY_PROMOTED", id), r.outbox(t, p.id, "policy.promoted"); n != 1 || m != 1 {
		t.Errorf("fifty promotions left %d audit entries and %d events", n, m)
	}
	r.s.Admin.Do(t, "PUT", "/tenants/"+p.id, body{"settings": body{"max_policies": 10, "max_users": 5, "max_bouncers": 5}}).Want(200)
	for _, c := range []struct {
		kind, path, entry string
		draft             func(i int) body
		room              int
	}{
		{"policies", "/policies", "POLICY_CREATED", func(i int) body { return body{"name": fmt.Sprint("c", i), "rego_code": "package p"} }, 9},
		{"bouncers", "/bouncers", "BOUNCER_CREATED", func(i int) body { return body{"name": fmt.Sprint("b", i), "hostname": "edge.example", "port": 8443} }, 5},
		{"users", "/users", "USER_CREATED", func(i int) body {
			return body{"username": fmt.Sprint("u", i), "email": fmt.Sprintf("u%d@example.com", i)}
		}, 4},
	} {
		got := at(t, 50, func(i int) (*apptest.Response, error) { return p.key.Try("POST", c.path, c.draft(i)) })
		if n := statuses(got); n[201] != c.room || n[403] != 50-c.room {
			t.Errorf("fifty %s with room for %d: %v", c.kind, c.room, n)
		}
		for _, res := range got {
			if res.Status == 403 && !bytes.Contains(res.Body, []byte("limit_exceeded")) {
				t.Errorf("over the limit: %s", res.Body)
			}
		}
	}
	if total := p.admin.Do(t, "GET", "/policies", nil).Want(200).Get("total"); total != 10.0 {
		t.Errorf("%v controls with room for ten", total)
	}
	// One name, one tenant, one domain: whoever comes first.
	for what, f := range map[string]func(int) (*apptest.Response, error){
		"people of one name": func(i int) (*apptest.Response, error) {
			return r.alpha.key.Try("POST", "/users", body{"username": []string{"Same", "sAME"}[i%2], "email": fmt.Sprintf("same%d@example.com", i)})
		},
		"bouncers of one name": func(int) (*apptest.Response, error) {
			return r.alpha.key.Try("POST", "/bouncers", body{"name": "same", "hostname": "edge.example", "port": 8443})
		},
		"tenants of one domain": func(i int) (*apptest.Response, error) {
			return r.s.Admin.Try("POST", "/tenants", body{"name": fmt.Sprint("Domain ", i), "custom_domain": "one.example"})
		},
	} {
		if n := statuses(at(t, 10, f)); n[201] != 1 || n[409] != 9 {
			t.Errorf("ten %s: %v", what, n)
		}
	}
}

// parallelUpdates: each update is a version of its own, none is lost; of those
// that expect one version, one happens.
func parallelUpdates(t *testing.T, r *rig) {
	p := r.tenant(t, "Writers")
	id := r.control(t, p, nil)
	path := fmt.Sprintf("/policies/%d", id)
	got := at(t, 100, func(i int) (*apptest.Response, error) {
		return p.key.Try("PUT", path, body{"description": fmt.Sprint(i)})
	})
	if n := statuses(got); n[200] != 100 {
		t.Fatalf("a hundred updates: %v", n)
	}
	var versions []int
	for _, res := range got {
		var v struct{ Version int }
		if err := json.Unmarshal(res.Body, &v); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, v.Version)
	}
	slices.Sort(versions)
	if versions[0] != 2 || versions[99] != 101 || len(slices.Compact(versions)) != 100 {
		t.Errorf("the versions are %v", versions)
	}
	if n := p.events(t, "POLICY_UPDATED", id); n != 100 {
		t.Errorf("a hundred updates left %d audit entries", n)
	}
	if total := p.admin.Do(t, "GET", path+"/versions?limit=1000", nil).Want(200).Get("total"); total != 101.0 {
		t.Errorf("%v versions are kept", total)
	}
	r.do(t, p.admin.With("If-Match", `"7"`), "PUT", path, 412, body{"description": "stale"})
	r.do(t, p.admin.With("If-Match", `"7"`), "DELETE", path, 412, nil)
	for _, kind := range []struct {
		path  string
		first int
	}{{path, 101}, {r.resourceOf(t, p), 1}} {
		conditional := p.key.With("If-Match", fmt.Sprintf("%q", fmt.Sprint(kind.first)))
		if n := statuses(at(t, 50, func(i int) (*apptest.Response, error) {
			return conditional.Try("PUT", kind.path, body{"description": fmt.Sprint(i)})
		})); n[200] != 1 || n[412] != 49 {
			t.Errorf("fifty updates of one version of %s: %v", kind.path, n)
		}
	}
	if v := p.admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Errorf("after that the audit does not verify: %v", v)
	}
}

func (r *rig) resourceOf(t *testing.T, p *party) string {
	t.Helper()
	return fmt.Sprintf("/resources/%d", p.admin.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/c2"}).Want(201).ID())
}

// mixedChanges: whatever order delete, update and promote of one control come
// to, each says what it found, and no bundle keeps what is deleted.
func mixedChanges(t *testing.T, r *rig) {
	p := r.tenant(t, "Mixed")
	edges := map[string]*apptest.Client{}
	bundles := map[string]string{}
	for _, env := range []string{"sandbox", "production"} {
		id, c := r.enforcer(t, p, body{"environment": env})
		edges[env], bundles[env] = c, fmt.Sprintf("/bridge/bundles/%d", id)
	}
	const n = 12
	var ids []int64
	for i := range n {
		ids = append(ids, r.control(t, p, body{"status": "active", "rego_code": fmt.Sprintf("package p\n\nallow := true\n\nreason := \"canary-%02d\"", i)}))
	}
	got := at(t, 4*n, func(i int) (*apptest.Response, error) {
		path := fmt.Sprintf("/policies/%d", ids[i%n])
		switch i / n {
		case 0:
			return p.key.Try("PUT", path, body{"description": "changed"})
		case 1:
			return p.key.Try("POST", path+"/promote", body{})
		case 2:
			return p.key.Try("DELETE", path, nil)
		default:
			env := []string{"sandbox", "production"}[i%2]
			return edges[env].Try("GET", bundles[env], nil)
		}
	})
	for i, res := range got {
		allowed := [][]int{{200, 404}, {200, 404}, {200}, {200, 304}}[i/n]
		if !slices.Contains(allowed, res.Status) {
			t.Errorf("call %d of control %d: %d %.300s", i/n, ids[i%n], res.Status, res.Body)
		}
	}
	for i, id := range ids {
		r.do(t, p.admin, "GET", fmt.Sprintf("/policies/%d", id), 404, nil)
		// As many entries as changes that said they happened.
		for kind, call := range map[string]int{"POLICY_UPDATED": 0, "POLICY_PROMOTED": 1, "POLICY_DELETED": 2} {
			want := 0
			if got[call*n+i].Status == 200 {
				want = 1
			}
			if have := p.events(t, kind, id); have != want {
				t.Errorf("control %d: %d entries %s, want %d", id, have, kind, want)
			}
		}
	}
	for env, c := range edges {
		apptest.Eventually(t, 5*time.Second, func() error {
			if text := apptest.Unpacked(t, c.Do(t, "GET", bundles[env], nil).Want(200).Body); strings.Contains(text, "canary-") {
				return fmt.Errorf("the bundle for %s holds a deleted control", env)
			}
			return nil
		})
	}
}

// doubleSubmit: a create with an Idempotency-Key happens once, however often
// and however parallel it is sent; with another body the key is refused.
func doubleSubmit(t *testing.T, r *rig) {
	p := r.tenant(t, "Doubles")
	for _, c := range []struct {
		path        string
		draft, next body
		list        string
	}{
		{"/policies", body{"name": "once", "rego_code": "package p"}, body{"name": "twice", "rego_code": "package p"}, "/policies"},
		{"/resources", body{"name": "once", "type": "api", "path": "/c3"}, body{"name": "twice", "type": "api", "path": "/c3/twice"}, "/resources"},
		{"/bouncers", body{"name": "once", "hostname": "edge.example", "port": 8443}, body{"name": "twice", "hostname": "edge.example", "port": 8443}, "/bouncers"},
		{"/users", body{"username": "once", "email": "once@example.com"}, body{"username": "twice", "email": "twice@example.com"}, "/users"},
		{"/tenants/" + p.id + "/api-keys", body{"name": "once", "scopes": []string{"policies:read"}}, body{"name": "twice", "scopes": []string{"policies:read"}}, "/tenants/" + p.id + "/api-keys"},
	} {
		before := p.admin.Do(t, "GET", c.list, nil).Want(200).Get("total")
		keyed := p.key.With("Idempotency-Key", "double-"+c.path)
		got := at(t, 20, func(int) (*apptest.Response, error) { return keyed.Try("POST", c.path, c.draft) })
		for _, res := range got {
			if res.Status != 201 || !bytes.Equal(res.Body, got[0].Body) {
				t.Errorf("%s sent twenty times: %d %s, and %s", c.path, res.Status, res.Body, got[0].Body)
			}
		}
		r.do(t, keyed, "POST", c.path, 422, c.next)
		// Another caller's key is another key.
		if after := p.admin.Do(t, "GET", c.list, nil).Want(200).Get("total"); after != before.(float64)+1 {
			t.Errorf("%s: %v before, %v after", c.path, before, after)
		}
		r.do(t, p.admin.With("Idempotency-Key", "double-"+c.path), "POST", c.path, 201, c.next)
	}
	for _, bad := range []string{"", strings.Repeat("x", 300), "a\tb", "schlüssel"} {
		c := p.key.With("X", "")
		c.Header["Idempotency-Key"] = []string{bad}
		r.do(t, c, "POST", "/policies", 400, body{"name": "x", "rego_code": "package p"})
	}
}

// submitAndDie kills the server while creates are on their way, starts it again
// and repeats them all: each has happened once, and whoever was answered before
// is answered the same.
func submitAndDie(t *testing.T, r *rig) {
	p := r.tenant(t, "Survivors")
	const rounds, senders, each = 2, 8, 6
	for round := range rounds {
		type submit struct {
			key    string
			draft  body
			before []byte
		}
		all := make([]submit, senders*each)
		for i := range all {
			name := fmt.Sprintf("survivor-%d-%d", round, i)
			all[i] = submit{key: name, draft: body{"name": name, "rego_code": "package p"}}
		}
		answered := make(chan struct{}, len(all))
		var work sync.WaitGroup
		for sender := range senders {
			work.Go(func() {
				for i := sender; i < len(all); i += senders {
					res, err := p.key.With("Idempotency-Key", all[i].key).Try("POST", "/policies", all[i].draft)
					if err != nil {
						return // the server is gone
					}
					if res.Status == 201 {
						all[i].before = res.Body
					}
					answered <- struct{}{}
				}
			})
		}
		for range 5 + 15*round {
			<-answered
		}
		r.s.Kill()
		work.Wait()
		r.s.Start()
		for _, s := range all {
			res := p.key.With("Idempotency-Key", s.key).Do(t, "POST", "/policies", s.draft)
			if res.Status != 201 || s.before != nil && !bytes.Equal(res.Body, s.before) {
				t.Errorf("%s: %d %s, before the kill %s", s.key, res.Status, res.Body, s.before)
			}
			list := p.admin.Do(t, "GET", "/policies?name="+s.key, nil).Want(200)
			var same int
			for _, c := range list.Get("policies").([]any) {
				if c.(map[string]any)["name"] == s.key {
					same++
				}
			}
			if same != 1 {
				t.Errorf("%s is there %d times", s.key, same)
			}
		}
	}
	if created, kept := r.outbox(t, p.id, "policy.created"), rounds*senders*each; created != kept {
		t.Errorf("%d events of %d creates", created, kept)
	}
	if v := p.admin.Do(t, "GET", "/audit/verify", nil).Want(200).Get("valid"); v != true {
		t.Errorf("after that the audit does not verify: %v", v)
	}
}
