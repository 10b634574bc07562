package hardening_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var isolationCases = []hardeningCase{{"T8 every operation on another tenant", isolation}}

const (
	// isolationMark is in all names of the other tenant.
	isolationMark = "zebrafinch"
	// neverWas is a tenant that was never there.
	neverWas = "never-was-there"
	// otherDomain is the custom domain of the other tenant.
	otherDomain = "shop.example.test"
	// leastIsolation is how many cases the documents must give.
	leastIsolation = 2000
)

// isolated are two tenants whose objects have equal ids. The other one has some more, and
// its mark in all names.
type isolated struct {
	*rig
	own, other *party
	cases      int
}

// isolation: each operation of the documents, with each way to name another tenant or its
// objects and with each credential that ended, is answered as if the tenant, the object or
// the credential had never been there; and no answer has anything of the other tenant.
func isolation(t *testing.T, r *rig) {
	i := &isolated{rig: r, own: r.tenant(t, "Isolated")}
	r.mark = isolationMark
	i.other = r.tenant(t, "The "+isolationMark)
	for _, p := range []*party{i.own, i.other, i.other} {
		if r.mark = isolationMark; p == i.own {
			r.mark = ""
		}
		r.fill(t, p)
	}
	r.mark = ""
	i.claim(t)
	ended := i.endedCredentials(t)
	ops := append(r.secured(), operations(t, r.s, "/api/v2/oem/openapi.json", 5)...)
	for _, op := range ops {
		i.namings(t, op)
		i.objects(t, op)
		for _, c := range ended {
			i.ended(t, op, c)
		}
	}
	i.vendors(t)
	if i.cases < leastIsolation {
		t.Errorf("the documents give %d cases, want %d", i.cases, leastIsolation)
	}
	t.Logf("%d cases of %d operations", i.cases, len(ops))
}

// same checks one case: what is foreign is answered as what never was. The names of both in
// the request may come back in an answer.
func (i *isolated) same(t *testing.T, what string, foreign, never *apptest.Response) {
	t.Helper()
	i.cases++
	text := strings.ReplaceAll(string(foreign.Body), i.other.id, neverWas)
	if foreign.Status != never.Status || text != string(never.Body) {
		t.Errorf("%s: foreign is %d %s, what never was %d %s", what, foreign.Status, foreign.Body, never.Status, never.Body)
	}
	i.clean(t, what, foreign)
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

// domain is the case of the other tenant's custom domain. Its DNS record names the tenant's
// id, so an answer may, too.
func (i *isolated) domain(t *testing.T, what string, res *apptest.Response) {
	t.Helper()
	i.cases++
	if res.Status != 403 {
		t.Errorf("%s: %d %s", what, res.Status, res.Body)
	}
	i.clean(t, what, res)
}

// claim gives the other tenant a custom domain.
func (i *isolated) claim(t *testing.T) {
	t.Helper()
	var d struct {
		DNS struct {
			Records []struct{ Name, Value string }
		} `json:"dns_instructions"`
	}
	at := "/tenants/" + i.other.id + "/domains"
	i.other.admin.Do(t, "POST", at, body{"domain": otherDomain}).Want(201).Into(&d)
	i.dns.CNAME(d.DNS.Records[0].Name, d.DNS.Records[0].Value)
	i.dns.TXT(d.DNS.Records[1].Name, d.DNS.Records[1].Value)
	i.other.admin.Do(t, "POST", at+"/"+otherDomain+"/verify", nil).Want(200)
	apptest.Eventually(t, time.Minute, func() error {
		if res := i.own.key.With("Host", otherDomain).Do(t, "GET", "/policies", nil); res.Status != 403 {
			return fmt.Errorf("the domain names nobody yet: %d", res.Status)
		}
		return nil
	})
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

// namings are the cases of a tenant that is named by header, query, host, body and path, by
// the key of another tenant and by its administrator.
func (i *isolated) namings(t *testing.T, op operation) {
	t.Helper()
	unused := op.at(inTenant(i.own.id, i.own.unused))
	for _, c := range []*apptest.Client{i.own.key, i.own.admin} {
		c = asked(c)
		i.same(t, op.id+" by header", op.send(t, c.With("X-Tenant-ID", i.other.id), unused), op.send(t, c.With("X-Tenant-ID", neverWas), unused))
		if strings.HasPrefix(op.path, "/api/v1/") {
			i.same(t, op.id+" by query", op.send(t, c, unused+"?tenant_id="+i.other.id), op.send(t, c, unused+"?tenant_id="+neverWas))
		}
		if op.body {
			i.same(t, op.id+" by body", op.sendBody(t, c, unused, i.other.id), op.sendBody(t, c, unused, neverWas))
		}
		i.same(t, op.id+" by subdomain", op.send(t, c.With("Host", i.other.id+"."+baseDomain), unused), op.send(t, c.With("Host", neverWas+"."+baseDomain), unused))
		i.domain(t, op.id+" by custom domain", op.send(t, c.With("Host", otherDomain), unused))
		if strings.Contains(op.path, "{tenant_id}") || strings.Contains(op.path, "{id}") {
			i.same(t, op.id+" by path", op.send(t, c, op.at(inTenant(i.other.id, i.own.unused))), op.send(t, c, op.at(inTenant(neverWas, i.own.unused))))
		}
	}
	// Without a credential nobody learns which tenants there are.
	c := asked(i.s.Anonymous())
	i.same(t, op.id+" without a credential", op.send(t, c.With("X-Tenant-ID", i.other.id), unused), op.send(t, c.With("X-Tenant-ID", neverWas), unused))
}

// objects are the cases of ids of objects: those that only the other tenant has, and equal
// ones, which lead to the own.
func (i *isolated) objects(t *testing.T, op operation) {
	t.Helper()
	foreign, never := op.at(inTenant(i.own.id, i.other.known)), op.at(inTenant(i.own.id, i.own.unused))
	own := op.at(inTenant(i.own.id, i.own.known))
	for _, c := range []*apptest.Client{i.own.key, i.own.admin} {
		if foreign != own && foreign != never {
			i.same(t, op.id+" on an object", op.send(t, asked(c), foreign), op.send(t, asked(c), never))
		}
		if op.method == "GET" && !strings.HasSuffix(op.path, "/events/stream") { // which does not end
			i.cases++
			i.clean(t, op.id+" on the own", op.send(t, asked(c), own+op.query()))
		}
	}
}

// endedCredential is a credential that ended, and one of its kind that never was; nil: the
// holder may learn why it ended.
type endedCredential struct {
	what          string
	client, never *apptest.Client
}

// endedCredentials are those of the other tenant.
func (i *isolated) endedCredentials(t *testing.T) []endedCredential {
	t.Helper()
	key, token := i.s.Anonymous(), i.s.Anonymous()
	key.APIKey = "gh_tenant_" + strings.Repeat("A", 43)
	token.Bearer = "never.was.there"
	_, expired := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope(), "expires_at": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)})
	revokedID, revoked := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope()})
	_, session := i.person(t, i.other, "admin")
	session.Do(t, "POST", "/auth/logout", nil).Want(200)
	i.other.admin.Do(t, "DELETE", "/tenants/"+i.other.id+"/api-keys/"+revokedID, nil).Want(200)
	gone := i.tenant(t, "Suspended") // its key may learn its id
	i.s.Admin.Do(t, "PUT", "/tenants/"+gone.id, body{"status": "suspended"}).Want(200)
	out := []endedCredential{
		{"an expired key", expired, key}, {"a revoked key", revoked, key}, {"an ended session", session, token}, {"a key of a suspended tenant", gone.key, nil},
	}
	for _, c := range out {
		apptest.Eventually(t, 10*time.Second, func() error {
			if res := c.client.Do(t, "GET", "/policies", nil); res.Status != 401 && res.Status != 403 {
				return fmt.Errorf("%s: %d", c.what, res.Status)
			}
			return nil
		})
	}
	return out
}

// ended is the case of a credential that ended.
func (i *isolated) ended(t *testing.T, op operation, c endedCredential) {
	t.Helper()
	what := op.id + " with " + c.what
	path := op.at(inTenant(i.other.id, i.other.known))
	res := op.send(t, asked(c.client), path)
	if res.Status != 401 && res.Status != 403 {
		t.Errorf("%s: %d %s", what, res.Status, res.Body)
	}
	if c.never != nil {
		i.same(t, what, res, op.send(t, asked(c.never), op.at(inTenant(neverWas, i.other.known))))
		return
	}
	i.same(t, what, res, op.send(t, asked(c.client), op.at(inTenant(neverWas, i.other.unused))))
}

// vendors: a vendor learns nothing of the tenants of another one.
func (i *isolated) vendors(t *testing.T) {
	t.Helper()
	key := func() *apptest.Client {
		c := i.s.Anonymous()
		c.APIKey, _ = i.s.Admin.Do(t, "POST", "/vendors", body{"name": i.name("vendor")}).Want(201).Get("key").(string)
		return c
	}
	one, other := key(), key()
	oem := *other
	oem.Base = i.s.URL + "/api/v2/oem"
	made := oem.Do(t, "POST", "/tenants", body{"name": isolationMark + " of a vendor", "administrator": body{"email": "a@" + isolationMark + ".example"}}).Want(201)
	theirs, _ := made.Get("tenant", "id").(string)
	for _, op := range operations(t, i.s, "/api/v2/oem/openapi.json", 5) {
		for _, foreign := range []string{theirs, i.other.id} {
			res := op.send(t, asked(one), op.at(inTenant(foreign, i.own.unused)))
			never := op.send(t, asked(one), op.at(inTenant(neverWas, i.own.unused)))
			res.Body = bytes.ReplaceAll(res.Body, []byte(foreign), []byte(neverWas))
			i.same(t, op.id+" of another vendor", res, never)
		}
	}
}

// sendBody is send with a tenant in the body.
func (op operation) sendBody(t *testing.T, c *apptest.Client, path, tenant string) *apptest.Response {
	t.Helper()
	root := *op.shown(c)
	root.Base = strings.TrimSuffix(c.Base, "/api/v1")
	return root.Do(t, op.method, path, body{"tenant_id": tenant, "tenant": tenant})
}
