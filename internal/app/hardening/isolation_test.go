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
	// neverWas is a tenant that was never there.
	neverWas = "never-was-there"
	// otherDomain is the custom domain of the other tenant.
	otherDomain = "shop.example.test"
	// leastIsolation is how many cases the documents must give.
	leastIsolation = 2000
	// sampleIsolation is which operations the inner loop looks at: one of so many.
	sampleIsolation = 24
)

// volatileMembers are the members of answers that differ between two equal requests: ids
// that are drawn for each decision, the time, and measured figures. Comparisons leave their values out.
var volatileMembers = regexp.MustCompile(`"(decision_id|evaluation_time_ms|latency_ms|uptime_seconds|waiting|waiting_bytes|lag_seconds|timestamp)": ?("[^"]*"|[0-9.e+-]+)`)

// isolated are two tenants whose objects have equal ids. The other one has some more, and
// its mark in all names.
type isolated struct {
	*rig
	own, other *party
	cases      int
}

// TestIsolation: each operation of the documents, with each way to name another tenant or
// its objects and with each credential, is answered as if the tenant, the object or the
// credential had never been there; and no answer has anything of the other tenant. Its
// cases come from the documents. The inner loop looks at a sample of the operations.
func TestIsolation(t *testing.T) {
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) {
			dns := dnstest.Start(t)
			s := apptest.StartServer(t, backend, "GATEHOUSE_BASE_DOMAIN="+baseDomain, "GATEHOUSE_DNS_SERVER="+dns.Addr)
			r := &rig{s: s, dns: dns, ops: operations(t, s, "/openapi.json", 40), reporting: map[string]bool{}}
			r.ops = append(r.ops, operations(t, s, "/api/v2/oem/openapi.json", 5)...)
			isolation(t, r)
		})
	}
}

func isolation(t *testing.T, r *rig) {
	i := &isolated{rig: r, own: r.tenant(t, "Isolated")}
	r.mark = isolationMark
	i.other = r.tenant(t, "The "+isolationMark)
	for _, p := range []*party{i.own, i.other, i.other, i.other} {
		if r.mark = isolationMark; p == i.own {
			r.mark = ""
		}
		r.fill(t, p)
	}
	r.mark = ""
	i.claim(t)
	callers, unknown, ended := i.callers(t), i.unknown(), i.ended(t)
	theirs := i.vendors(t, callers)
	for n, op := range r.ops {
		if fulltest.Inner() && n%sampleIsolation != 0 {
			continue
		}
		for what, c := range callers {
			i.named(t, op, what, c)
			i.objects(t, op, what, c)
		}
		for what, c := range ended {
			i.endedNamed(t, op, what, c, unknown)
		}
		i.ofVendor(t, op, callers["a vendor's key"], theirs)
	}
	if !fulltest.Inner() {
		i.work(t, callers)
		if i.cases < leastIsolation {
			t.Errorf("the documents give %d cases, want %d", i.cases, leastIsolation)
		}
	}
	t.Logf("%d cases of %d operations", i.cases, len(r.ops))
}

// naming is a way of a request to name a tenant. It gives nil where an operation has no
// such way.
type naming struct {
	what string
	send func(op operation, c *apptest.Client, path, tenant string) *apptest.Response
}

// namings are all ways to name a tenant but a custom domain, which is not made of its id.
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
			return op.send(t, c, op.at(inTenant(tenant, i.own.unused)))
		}},
		{"body", func(op operation, c *apptest.Client, path, tenant string) *apptest.Response {
			if !op.body {
				return nil
			}
			return op.sendBody(t, c, path, tenant)
		}},
	}
}

// same checks one case: what is foreign is answered as what never was. The names of both in
// the request may come back in an answer.
func (i *isolated) same(t *testing.T, what string, foreign, never *apptest.Response) {
	t.Helper()
	i.cases++
	if a, b := i.told(foreign), i.told(never); a != b {
		t.Errorf("%s: foreign is %s\nwhat never was %s", what, a, b)
	}
	i.clean(t, what, foreign)
}

// told is all that an answer tells: its status, its headers but for the date, and its body
// without the volatile members, with one name for both tenants.
func (i *isolated) told(res *apptest.Response) string {
	head := maps.Clone(res.Header)
	head.Del("Date")
	head.Del("Content-Length") // the names of the tenants differ in length
	text := fmt.Sprint(res.Status, " ", head, " ", string(volatileMembers.ReplaceAll(res.Body, []byte(`"$1":0`))))
	return strings.ReplaceAll(text, i.other.id, neverWas)
}

// clean checks that an answer has nothing of the other tenant but the id that was sent.
func (i *isolated) clean(t *testing.T, what string, res *apptest.Response) {
	t.Helper()
	text := bytes.ReplaceAll(bytes.ToLower(res.Body), []byte(i.other.id), nil)
	if bytes.Contains(text, []byte(isolationMark)) {
		t.Errorf("%s: %d shows the other tenant: %.600s", what, res.Status, res.Body)
	}
	if res.Status >= 500 {
		t.Errorf("%s: %d %s", what, res.Status, res.Body)
	}
}

// named are the cases of a tenant that is named by a caller of another one, or by nobody.
func (i *isolated) named(t *testing.T, op operation, who string, c *apptest.Client) {
	t.Helper()
	c = asked(c)
	unused := op.at(inTenant(i.own.id, i.own.unused))
	for _, n := range i.namings(t) {
		if foreign := n.send(op, c, unused, i.other.id); foreign != nil {
			i.same(t, op.id+" by "+n.what+" with "+who, foreign, n.send(op, c, unused, neverWas))
		}
	}
	if op.public || op.optional {
		return // it serves whom the domain belongs to
	}
	// The DNS record of a custom domain names the tenant, so an answer may, too.
	what := op.id + " by custom domain with " + who
	res := op.send(t, c.With("Host", otherDomain), unused)
	i.cases++
	if res.Status != 403 && res.Status != 401 {
		t.Errorf("%s: %d %s", what, res.Status, res.Body)
	}
	i.clean(t, what, res)
}

// endedNamed are the cases of a credential that ended: it is answered as one that never
// was, whatever tenant the request names.
func (i *isolated) endedNamed(t *testing.T, op operation, who string, c, unknown *apptest.Client) {
	t.Helper()
	if op.public {
		return
	}
	ends, never := asked(c), asked(unknown)
	if strings.HasPrefix(who, "a key of a suspended tenant") { // it may learn why it ended
		never = ends
	}
	path := op.at(inTenant(i.other.id, i.other.valueOf))
	for _, n := range i.namings(t) {
		foreign := n.send(op, ends, path, i.other.id)
		if foreign == nil {
			continue
		}
		what := op.id + " by " + n.what + " with " + who
		if foreign.Status != 401 && foreign.Status != 403 {
			t.Errorf("%s: %d %s", what, foreign.Status, foreign.Body)
		}
		i.same(t, what, foreign, n.send(op, never, path, i.other.id))
	}
	what := op.id + " by custom domain with " + who
	i.same(t, what, op.send(t, ends.With("Host", otherDomain), path), op.send(t, never.With("Host", otherDomain), path))
}

// objects are the cases of ids of objects: those that only the other tenant has, and equal
// ones, which lead to the own.
func (i *isolated) objects(t *testing.T, op operation, who string, c *apptest.Client) {
	t.Helper()
	foreign, never := op.at(inTenant(i.own.id, i.other.valueOf)), op.at(inTenant(i.own.id, i.own.unused))
	own := op.at(inTenant(i.own.id, i.own.valueOf))
	if foreign != own && foreign != never {
		i.same(t, op.id+" on an object with "+who, op.send(t, asked(c), foreign), op.send(t, asked(c), never))
	}
	if op.method == "GET" && !strings.HasSuffix(op.path, "/events/stream") { // which does not end
		i.cases++
		i.clean(t, op.id+" on the own with "+who, op.send(t, asked(c), own+op.query()))
	}
}

// inTenant are the values of path parameters in the tenant, as in p otherwise.
func inTenant(tenant string, values func(string) string) func(string) string {
	return func(param string) string {
		if param == "tenant_id" || param == "id" {
			return tenant
		}
		return values(param)
	}
}

// sendBody is send with a tenant in the body.
func (op operation) sendBody(t *testing.T, c *apptest.Client, path, tenant string) *apptest.Response {
	t.Helper()
	root := *op.shown(c)
	root.Base = strings.TrimSuffix(c.Base, "/api/v1")
	return root.Do(t, op.method, path, body{"tenant_id": tenant, "tenant": tenant})
}
