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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// The second C3 case is the last one, because it kills the server.
var concurrencyCases = []hardeningCase{
	{"C1 parallel promotions and creates", parallelCreates},
	{"C2 parallel updates", parallelUpdates},
	{"C4 delete, update and promote of one control", mixedChanges},
	{"C3 double submit", doubleSubmit},
	{"C3 double submit across kill -9", submitAndDie},
}

// inParallel runs f n times in parallel and returns the answers. It repeats a request that is
// answered 503 (the store has too much to do), as clients should, for dbtest.Patience.
func inParallel(t *testing.T, n int, f func(i int) (*apptest.Response, error)) []*apptest.Response {
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

// countStatuses counts the answers by status.
func countStatuses(list []*apptest.Response) map[int]int {
	out := map[int]int{}
	for _, res := range list {
		out[res.Status]++
	}
	return out
}

// countAudit returns the number of entries of one type about an object in the administrative log.
func (p *party) countAudit(t *testing.T, kind string, id any) int {
	t.Helper()
	list, _ := p.admin.Do(t, "GET", fmt.Sprintf("/audit/events?limit=1000&type=%s&object_id=%v", kind, id), nil).Want(200).Get("events").([]any)
	return len(list)
}

// countEvents returns the number of a tenant's events of one type in the store.
func (r *fixture) countEvents(t *testing.T, tenant, kind string) int {
	t.Helper()
	if address := r.s.DatabaseURL(); address != "" {
		conn, err := pgx.Connect(t.Context(), address)
		errtest.Must(t, err)
		defer conn.Close(t.Context())
		var n int
		errtest.Must(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{"t_" + tenant, "events"}.Sanitize()+" WHERE type = $1", kind).Scan(&n))
		return n
	}
	store, err := sql.Open("sqlite", "file:"+filepath.Join(r.s.Dir, "tenants", tenant+".db")+"?mode=ro&_pragma=busy_timeout(5000)")
	errtest.Must(t, err)
	defer store.Close()
	return len(texts(t, store, "SELECT type FROM events WHERE type = '"+kind+"'"))
}

// parallelCreates checks that one of fifty promotions succeeds, and as many of fifty creates as the
// limit allows.
func parallelCreates(t *testing.T, r *fixture) {
	p := r.tenant(t, "Crowd")
	id := r.newControl(t, p, nil)
	got := inParallel(t, 50, func(int) (*apptest.Response, error) {
		return p.key.Try("POST", fmt.Sprintf("/policies/%d/promote", id), body{})
	})
	if n := countStatuses(got); n[200] != 1 || n[409] != 49 {
		t.Errorf("the statuses of fifty promotions = %v, want 200 once and 409", n)
	}
	if n, m := p.countAudit(t, "POLICY_PROMOTED", id), r.countEvents(t, p.id, "policy.promoted"); n != 1 || m != 1 {
		t.Errorf("fifty promotions left %d audit entries and %d events, want 1 of each", n, m)
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
		got := inParallel(t, 50, func(i int) (*apptest.Response, error) { return p.key.Try("POST", c.path, c.draft(i)) })
		if n := countStatuses(got); n[201] != c.room || n[403] != 50-c.room {
			t.Errorf("the statuses of fifty new %s with room for %d = %v, want 201 %[2]d times and 403", c.kind, c.room, n)
		}
		for _, res := range got {
			if res.Status == 403 && !bytes.Contains(res.Body, []byte("limit_exceeded")) {
				t.Errorf("POST %s over the limit = %s, want limit_exceeded", c.path, res.Body)
			}
		}
	}
	if total := p.admin.Do(t, "GET", "/policies", nil).Want(200).Get("total"); total != 10.0 {
		t.Errorf("the tenant has %v controls, want 10", total)
	}
	// The first request gets a name or a domain.
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
		if n := countStatuses(inParallel(t, 10, f)); n[201] != 1 || n[409] != 9 {
			t.Errorf("the statuses of ten %s = %v, want 201 once and 409", what, n)
		}
	}
}

// parallelUpdates checks that each update becomes a version and none is lost, and that of several
// updates that expect one version, one succeeds.
func parallelUpdates(t *testing.T, r *fixture) {
	p := r.tenant(t, "Writers")
	id := r.newControl(t, p, nil)
	path := fmt.Sprintf("/policies/%d", id)
	got := inParallel(t, 100, func(i int) (*apptest.Response, error) {
		return p.key.Try("PUT", path, body{"description": fmt.Sprint(i)})
	})
	if n := countStatuses(got); n[200] != 100 {
		t.Fatalf("the statuses of a hundred updates = %v, want 200", n)
	}
	var versions []int
	for _, res := range got {
		var v struct{ Version int }
		errtest.Must(t, json.Unmarshal(res.Body, &v))
		versions = append(versions, v.Version)
	}
	slices.Sort(versions)
	if versions[0] != 2 || versions[99] != 101 || len(slices.Compact(versions)) != 100 {
		t.Errorf("the versions of a hundred updates = %v, want 2 to 101", versions)
	}
	if n := p.countAudit(t, "POLICY_UPDATED", id); n != 100 {
		t.Errorf("a hundred updates left %d audit entries, want 100", n)
	}
	if total := p.admin.Do(t, "GET", path+"/versions?limit=1000", nil).Want(200).Get("total"); total != 101.0 {
		t.Errorf("the control has %v versions, want 101", total)
	}
	r.do(t, p.admin.With("If-Match", `"7"`), "PUT", path, 412, body{"description": "stale"})
	r.do(t, p.admin.With("If-Match", `"7"`), "DELETE", path, 412, nil)
	for _, kind := range []struct {
		path  string
		first int
	}{{path, 101}, {r.newResource(t, p), 1}} {
		conditional := p.key.With("If-Match", fmt.Sprintf("%q", fmt.Sprint(kind.first)))
		if n := countStatuses(inParallel(t, 50, func(i int) (*apptest.Response, error) {
			return conditional.Try("PUT", kind.path, body{"description": fmt.Sprint(i)})
		})); n[200] != 1 || n[412] != 49 {
			t.Errorf("the statuses of fifty updates of one version of %s = %v, want 200 once and 412", kind.path, n)
		}
	}
	p.verifyAudit(t)
}

// verifyAudit checks the hash chain of the tenant's administrative log.
func (p *party) verifyAudit(t *testing.T) {
	t.Helper()
	if v := p.admin.Do(t, "GET", "/audit/verify", nil).Want(200); v.Get("valid") != true {
		t.Errorf("GET /audit/verify = %s, want it valid", v.Body)
	}
}

// newResource creates a resource and returns its path.
func (r *fixture) newResource(t *testing.T, p *party) string {
	t.Helper()
	return fmt.Sprintf("/resources/%d", p.admin.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/c2"}).Want(201).ID())
}

// mixedChanges checks that whatever order delete, update and promote of one control happen in, each
// answer fits the log, and no bundle keeps a deleted control.
func mixedChanges(t *testing.T, r *fixture) {
	p := r.tenant(t, "Mixed")
	edges := map[string]*apptest.Client{}
	bundles := map[string]string{}
	for _, env := range []string{"sandbox", "production"} {
		id, c := r.newBouncer(t, p, body{"environment": env})
		edges[env], bundles[env] = c, fmt.Sprintf("/bridge/bundles/%d", id)
	}
	const n = 12
	var ids []int64
	for i := range n {
		ids = append(ids, r.newControl(t, p, body{"status": "active", "rego_code": fmt.Sprintf("package p\n\nallow := true\n\nreason := \"canary-%02d\"", i)}))
	}
	got := inParallel(t, 4*n, func(i int) (*apptest.Response, error) {
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
			t.Errorf("call %d on control %d = %d, want %v: %.300s", i/n, ids[i%n], res.Status, allowed, res.Body)
		}
	}
	for i, id := range ids {
		r.do(t, p.admin, "GET", fmt.Sprintf("/policies/%d", id), 404, nil)
		// Each change that succeeded has an entry.
		for kind, call := range map[string]int{"POLICY_UPDATED": 0, "POLICY_PROMOTED": 1, "POLICY_DELETED": 2} {
			want := 0
			if got[call*n+i].Status == 200 {
				want = 1
			}
			if have := p.countAudit(t, kind, id); have != want {
				t.Errorf("control %d has %d audit entries %s, want %d", id, have, kind, want)
			}
		}
	}
	for env, c := range edges {
		apptest.Eventually(t, 5*time.Second, func() error {
			if text := apptest.Unpacked(t, c.Do(t, "GET", bundles[env], nil).Want(200).Body); strings.Contains(text, "canary-") {
				return fmt.Errorf("the bundle for %s has a deleted control", env)
			}
			return nil
		})
	}
}

// doubleSubmit checks that a create with an Idempotency-Key happens once, however often it is sent,
// also in parallel, and that the key is refused with another body.
func doubleSubmit(t *testing.T, r *fixture) {
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
		got := inParallel(t, 20, func(int) (*apptest.Response, error) { return keyed.Try("POST", c.path, c.draft) })
		for _, res := range got {
			if res.Status != 201 || !bytes.Equal(res.Body, got[0].Body) {
				t.Errorf("POST %s, sent twenty times with one key, = %d %s, want 201 %s", c.path, res.Status, res.Body, got[0].Body)
			}
		}
		r.do(t, keyed, "POST", c.path, 422, c.next)
		// Another caller's key is another key.
		if after := p.admin.Do(t, "GET", c.list, nil).Want(200).Get("total"); after != before.(float64)+1 {
			t.Errorf("GET %s = %v objects before and %v after twenty equal creates, want one more", c.list, before, after)
		}
		r.do(t, p.admin.With("Idempotency-Key", "double-"+c.path), "POST", c.path, 201, c.next)
	}
	for _, bad := range []string{"", strings.Repeat("x", 300), "a\tb", "schlüssel"} {
		c := p.key.With("X", "")
		c.Header["Idempotency-Key"] = []string{bad}
		r.do(t, c, "POST", "/policies", 400, body{"name": "x", "rego_code": "package p"})
	}
}

// submitAndDie kills the server during creates, starts it again and repeats them all. Each create
// must have happened once, and a create that was answered before the kill must get the same answer.
func submitAndDie(t *testing.T, r *fixture) {
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
						return // the server was killed
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
				t.Errorf("the repeated create of %s = %d %s, want 201 and the answer before the kill: %s", s.key, res.Status, res.Body, s.before)
			}
			list := p.admin.Do(t, "GET", "/policies?name="+s.key, nil).Want(200)
			var stored int
			for _, c := range list.Get("policies").([]any) {
				if c.(map[string]any)["name"] == s.key {
					stored++
				}
			}
			if stored != 1 {
				t.Errorf("the store has %d controls %s, want 1", stored, s.key)
			}
		}
	}
	if events, creates := r.countEvents(t, p.id, "policy.created"), rounds*senders*each; events != creates {
		t.Errorf("%d creates left %d events, want one each", creates, events)
	}
	p.verifyAudit(t)
}
