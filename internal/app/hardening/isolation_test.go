package hardening_test

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/dnstest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

const (
	// isolationMark is in all names of the other tenant.
	isolationMark = "goldcrest"
	// neverWas is a tenant that never existed.
	neverWas = "never-was-there"
	// otherDomain is the custom domain of the other tenant.
	otherDomain = "shop.example.test"
	// leastIsolation is the least number of cases.
	leastIsolation = 2000
	// sampleIsolation is the number of operations of which the inner loop tests one.
	sampleIsolation = 24
)

// volatileMembers are the members that differ in the answers to two equal requests: random ids, the
// time, and measured figures. Comparisons ignore their values.
var volatileMembers = regexp.MustCompile(`"(decision_id|evaluation_time_ms|latency_ms|uptime_seconds|waiting|waiting_bytes|lag_seconds|timestamp)": ?("[^"]*"|[0-9.e+-]+)`)

// isolated is two tenants whose objects have equal ids. The other tenant has more objects, and its
// mark in all names.
type isolated struct {
	*fixture
	own, other *party
	cases      int
}

// TestIsolation checks that an operation answers a foreign tenant, object or ended credential as if
// it had never existed, and that no answer shows anything of the other tenant. It calls each
// operation of the documents, with each way to name a tenant and each credential. The inner loop
// tests a sample of the operations.
func TestIsolation(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			dns := dnstest.Start(t)
			s := apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN="+baseDomain, "GATEHOUSE_DNS_SERVER="+dns.Addr)
			r := &fixture{s: s, dns: dns, ops: operations(t, s, "/openapi.json", 40), reporting: map[string]bool{}}
			r.ops = append(r.ops, operations(t, s, "/api/v2/oem/openapi.json", 5)...)
			isolation(t, r)
		})
	}
}

// isolation runs the cases for all operations.
func isolation(t *testing.T, r *fixture) {
	i := &isolated{fixture: r, own: r.tenant(t, "Isolated")}
	r.mark = isolationMark
	i.other = r.tenant(t, "The "+isolationMark)
	for _, p := range []*party{i.own, i.other, i.other, i.other} {
		if r.mark = isolationMark; p == i.own {
			r.mark = ""
		}
		r.addObjects(t, p)
	}
	r.mark = ""
	i.claimDomain(t)
	callers, unknown, ended := i.callers(t), i.unknown(), i.ended(t)
	theirs := i.vendors(t, callers)
	for n, op := range r.ops {
		if fulltest.Inner() && n%sampleIsolation != 0 {
			continue
		}
		for what, c := range callers {
			i.checkNamings(t, op, what, c)
			i.checkObjects(t, op, what, c)
		}
		for what, c := range ended {
			i.checkEnded(t, op, what, c, unknown)
		}
		i.checkVendor(t, op, callers["a vendor's key"], theirs)
	}
	if !fulltest.Inner() {
		i.compareWork(t, callers)
		if i.cases < leastIsolation {
			t.Errorf("the documents give %d cases, want at least %d", i.cases, leastIsolation)
		}
	}
	t.Logf("%d cases of %d operations", i.cases, len(r.ops))
}

// naming is a way of a request to name a tenant. send returns nil if an operation does not have it.
type naming struct {
	what string
	send func(op operation, c *apptest.Client, path, tenant string) *apptest.Response
}

// namings returns all ways to name a tenant, except its custom domain, which does not contain its
// id.
func (i *isolated) namings(t *testing.T) []naming {
	return []naming{
		{"header", func(op operation, c *apptest.Client, path, tenant string) *apptest.Response {
			return op.send(t, c.With("X-Tenant-ID", tenant), path)
		}},
		{"query", func(op operation, c *apptest.Client, path, tenant string) *apptest.Response {
			return op.send(t, c, path+"?tenant_id="+tenant)
		}},
		{"subdomain", func(op operation, c *apptest.Client, path, tenant string) *apptest.Response {
			return op.send(t, c.With("Host", tenant+"."+baseDomain), path)
		}},
		{"path", func(op operation, c *apptest.Client, _, tenant string) *apptest.Response {
			if !strings.Contains(op.path, "{tenant_id}") && !strings.Contains(op.path, "{id}") {
				return nil
			}
			return op.send(t, c, op.pathWith(inTenant(tenant, i.own.unused)))
		}},
		{"body", func(op operation, c *apptest.Client, path, tenant string) *apptest.Response {
			if !op.body {
				return nil
			}
			return op.sendBody(t, c, path, tenant)
		}},
	}
}

// checkSame checks one case: the answer for the foreign tenant is that for one that never existed,
// except for the names in the request.
func (i *isolated) checkSame(t *testing.T, what string, foreign, never *apptest.Response) {
	t.Helper()
	i.cases++
	if a, b := i.comparable(foreign), i.comparable(never); a != b {
		t.Errorf("%s, foreign = %s\nwant, as for an unknown one: %s", what, a, b)
	}
	i.wantNoTrace(t, what, foreign)
}

// comparable returns everything that an answer reveals: its status, its headers except the date,
// and its body without the volatile members, with one name for both tenants.
func (i *isolated) comparable(res *apptest.Response) string {
	head := maps.Clone(res.Header)
	head.Del("Date")
	head.Del("Content-Length") // the lengths of the tenants' names differ
	text := fmt.Sprint(res.Status, " ", head, " ", string(volatileMembers.ReplaceAll(res.Body, []byte(`"$1":0`))))
	return strings.ReplaceAll(text, i.other.id, neverWas)
}

// wantNoTrace checks that an answer has nothing of the other tenant except the id that was sent,
// and is no 500.
func (i *isolated) wantNoTrace(t *testing.T, what string, res *apptest.Response) {
	t.Helper()
	text := bytes.ReplaceAll(bytes.ToLower(res.Body), []byte(i.other.id), nil)
	if bytes.Contains(text, []byte(isolationMark)) {
		t.Errorf("%s = %d and shows the other tenant: %.600s", what, res.Status, res.Body)
	}
	if res.Status >= 500 {
		t.Errorf("%s = %d %s, want no fault of the server", what, res.Status, res.Body)
	}
}

// checkNamings checks the requests in which a caller of another tenant, or one without a
// credential, names the other tenant.
func (i *isolated) checkNamings(t *testing.T, op operation, who string, c *apptest.Client) {
	t.Helper()
	c = withRequestID(c)
	unused := op.pathWith(inTenant(i.own.id, i.own.unused))
	for _, n := range i.namings(t) {
		if foreign := n.send(op, c, unused, i.other.id); foreign != nil {
			i.checkSame(t, op.id+" by "+n.what+" with "+who, foreign, n.send(op, c, unused, neverWas))
		}
	}
	if op.public || op.optional {
		return // it serves the tenant of the domain
	}
	// The DNS record of a custom domain names the tenant, so an answer may also name it.
	what := op.id + " by custom domain with " + who
	res := op.send(t, c.With("Host", otherDomain), unused)
	i.cases++
	res.Expect(what, 403, 401)
	i.wantNoTrace(t, what, res)
}

// checkEnded checks that an ended credential is answered like an unknown one, whatever tenant the
// request names.
func (i *isolated) checkEnded(t *testing.T, op operation, who string, c, unknown *apptest.Client) {
	t.Helper()
	if op.public {
		return
	}
	ends, never := withRequestID(c), withRequestID(unknown)
	if strings.HasPrefix(who, "a key of a suspended tenant") { // the answer may say why it ended
		never = ends
	}
	path := op.pathWith(inTenant(i.other.id, i.other.valueOf))
	for _, n := range i.namings(t) {
		foreign := n.send(op, ends, path, i.other.id)
		if foreign == nil {
			continue
		}
		what := op.id + " by " + n.what + " with " + who
		foreign.Expect(what, 401, 403)
		i.checkSame(t, what, foreign, n.send(op, never, path, i.other.id))
	}
	what := op.id + " by custom domain with " + who
	i.checkSame(t, what, op.send(t, ends.With("Host", otherDomain), path), op.send(t, never.With("Host", otherDomain), path))
}

// checkObjects checks the ids of objects: those that only the other tenant has, and equal ones,
// which mean the caller's own.
func (i *isolated) checkObjects(t *testing.T, op operation, who string, c *apptest.Client) {
	t.Helper()
	foreign, never := op.pathWith(inTenant(i.own.id, i.other.valueOf)), op.pathWith(inTenant(i.own.id, i.own.unused))
	own := op.pathWith(inTenant(i.own.id, i.own.valueOf))
	if foreign != own && foreign != never {
		i.checkSame(t, op.id+" on an object with "+who, op.send(t, withRequestID(c), foreign), op.send(t, withRequestID(c), never))
	}
	if op.method == "GET" && !strings.HasSuffix(op.path, "/events/stream") { // which does not end
		i.cases++
		i.wantNoTrace(t, op.id+" on the own with "+who, op.send(t, withRequestID(c), own+op.requiredQuery()))
	}
}

// inTenant returns values for path parameters: the tenant for its id, and values for the others.
func inTenant(tenant string, values func(string) string) func(string) string {
	return func(param string) string {
		if param == "tenant_id" || param == "id" {
			return tenant
		}
		return values(param)
	}
}

// sendBody is like send, with a tenant in the body.
func (op operation) sendBody(t *testing.T, c *apptest.Client, path, tenant string) *apptest.Response {
	t.Helper()
	root := *op.withCredential(c)
	root.Base = strings.TrimSuffix(c.Base, "/api/v1")
	return root.Do(t, op.method, path, body{"tenant_id": tenant, "tenant": tenant})
}
