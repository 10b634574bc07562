package hardening_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// claimDomain verifies a custom domain for the other tenant.
func (i *isolated) claimDomain(t *testing.T) {
	t.Helper()
	var d struct {
		DNS struct {
			Records []struct{ Name, Value string }
		} `json:"dns_instructions"`
	}
	domains := "/tenants/" + i.other.id + "/domains"
	i.other.admin.Do(t, "POST", domains, body{"domain": otherDomain}).Want(201).Into(&d)
	i.dns.CNAME(d.DNS.Records[0].Name, d.DNS.Records[0].Value)
	i.dns.TXT(d.DNS.Records[1].Name, d.DNS.Records[1].Value)
	i.other.admin.Do(t, "POST", domains+"/"+otherDomain+"/verify", nil).Want(200)
	apptest.Eventually(t, time.Minute, func() error {
		if res := i.own.key.With("Host", otherDomain).Do(t, "GET", "/policies", nil); res.Status != 403 {
			return fmt.Errorf("GET /policies at the custom domain = %d, want 403", res.Status)
		}
		return nil
	})
}

// callers returns the valid credentials of the own tenant, and a client without one.
func (i *isolated) callers(t *testing.T) map[string]*apptest.Client {
	t.Helper()
	_, bouncer := i.newBouncer(t, i.own, nil)
	agent, directory := i.s.Anonymous(), i.s.Anonymous()
	agent.APIKey = i.own.admin.Do(t, "POST", fmt.Sprintf("/ai-agents/%d/keys", i.own.agent), body{}).Want(201).Text("key")
	known, _ := directories.Load(i.own.key.APIKey)
	directory.Bearer, _ = known.(string)
	return map[string]*apptest.Client{
		"a key":                  i.own.key,
		"a person's token":       i.own.admin,
		"a key of sandbox":       i.bound(t, i.own, "sandbox", everyScope()...),
		"a key of production":    i.bound(t, i.own, "production", everyScope()...),
		"a bouncer's token":      bouncer,
		"the key of an AI agent": agent,
		"a directory's token":    directory,
		"no credential":          i.s.Anonymous(),
	}
}

// unknown returns a credential that never existed, in our form.
func (i *isolated) unknown() *apptest.Client {
	c := i.s.WithKey("gh_tenant_" + strings.Repeat("A", 43))
	return c
}

// ended returns ended credentials of the other tenant, and the key of a suspended tenant, whose
// holder may learn that.
func (i *isolated) ended(t *testing.T) map[string]*apptest.Client {
	t.Helper()
	_, expired := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope(), "expires_at": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)})
	revokedID, revoked := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope()})
	_, session := i.newPerson(t, i.other, "admin")
	session.Do(t, "POST", "/auth/logout", nil).Want(200)
	i.other.admin.Do(t, "DELETE", "/tenants/"+i.other.id+"/api-keys/"+revokedID, nil).Want(200)
	rotated, retired := i.newBouncer(t, i.other, nil)
	i.other.admin.Do(t, "DELETE", fmt.Sprintf("/bouncers/%d", rotated), nil).Want(200)
	suspended := i.tenant(t, "Suspended")
	i.s.Admin.Do(t, "PUT", "/tenants/"+suspended.id, body{"status": "suspended"}).Want(200)
	out := map[string]*apptest.Client{
		"an expired key": expired, "a revoked key": revoked, "an ended session": session, "the token of a removed bouncer": retired, "a key of a suspended tenant": suspended.key,
	}
	for what, c := range out {
		apptest.Eventually(t, 10*time.Second, func() error {
			for _, path := range []string{"/policies", "/bridge/self"} {
				if res := c.Do(t, "GET", path, nil); res.Status != 401 && !(res.Status == 403 && c == suspended.key) {
					return fmt.Errorf("%s: GET %s = %d, want 401", what, path, res.Status)
				}
			}
			return nil
		})
	}
	return out
}

// vendors creates two vendors. It adds the first one's key to the callers, and returns the tenant
// that the second one creates.
func (i *isolated) vendors(t *testing.T, callers map[string]*apptest.Client) (theirs string) {
	t.Helper()
	key := func() *apptest.Client {
		c := i.s.WithKey(i.s.Admin.Do(t, "POST", "/vendors", body{"name": i.name("vendor")}).Want(201).Text("key"))
		return c
	}
	callers["a vendor's key"] = key()
	other := *key()
	other.Base = i.s.URL + "/api/v2/oem"
	theirs = other.Do(t, "POST", "/tenants", body{"name": isolationMark + " of a vendor", "administrator": body{"email": "a@" + isolationMark + ".example"}}).Want(201).Text("tenant", "id")
	return theirs
}

// checkVendor checks that for a vendor, the tenants of another vendor and of none do not exist.
func (i *isolated) checkVendor(t *testing.T, op operation, c *apptest.Client, theirs string) {
	t.Helper()
	if !slices.Contains(op.callers, "vendor") || !strings.Contains(op.path, "{id}") {
		return
	}
	what := op.id + " on a tenant of another vendor"
	for _, foreign := range []string{theirs, i.own.id, i.other.id} {
		res := op.send(t, withRequestID(c), op.pathWith(inTenant(foreign, i.own.unused)))
		never := op.send(t, withRequestID(c), op.pathWith(inTenant(neverWas, i.own.unused)))
		res.Body = []byte(strings.ReplaceAll(string(res.Body), foreign, neverWas))
		res.Expect(what, 404, 422)
		i.checkSame(t, what, res, never)
	}
}

// compareWork checks that the server does no more work for a tenant or an object that exists than
// for an unknown one, so nobody can tell them apart by time. The work is the number of the
// process's write system calls: each query to PostgreSQL is one. The test compares the medians.
func (i *isolated) compareWork(t *testing.T, callers map[string]*apptest.Client) {
	t.Helper()
	if i.writeCalls(t) == 0 {
		t.Log("this system does not count the system calls of a process")
		return
	}
	login := func(tenant string) func() {
		c := i.s.Anonymous().With("X-Tenant-ID", tenant)
		return func() {
			c.Do(t, "POST", "/auth/login", body{"username": "nobody-" + i.name("x"), "password": "wrong"}).Want(401)
		}
	}
	get := func(c *apptest.Client, path string) func() {
		return func() { c.Do(t, "GET", path, nil) }
	}
	key, none := callers["a key"], callers["no credential"]
	for what, pair := range map[string][2]func(){
		"a sign-in":             {login(i.other.id), login(neverWas)},
		"a tenant by header":    {get(key.With("X-Tenant-ID", i.other.id), "/policies"), get(key.With("X-Tenant-ID", neverWas), "/policies")},
		"a tenant by subdomain": {get(key.With("Host", i.other.id+"."+baseDomain), "/policies"), get(key.With("Host", neverWas+"."+baseDomain), "/policies")},
		"a tenant by path":      {get(key, "/tenants/"+i.other.id), get(key, "/tenants/"+neverWas)},
		"a tenant, by nobody":   {get(none.With("X-Tenant-ID", i.other.id), "/policies"), get(none.With("X-Tenant-ID", neverWas), "/policies")},
		"a control":             {get(key, fmt.Sprintf("/policies/%d", i.other.policy)), get(key, "/policies/987654321")},
		"a resource":            {get(key, fmt.Sprintf("/resources/%d", i.other.resource)), get(key, "/resources/987654321")},
		"a person":              {get(key, "/users/"+i.other.user), get(key, "/users/never-used-id")},
		"a bouncer":             {get(key, fmt.Sprintf("/bouncers/%d", i.other.bouncer)), get(key, "/bouncers/987654321")},
		"the ways to sign in":   {get(none.With("X-Tenant-ID", i.other.id), "/auth/sso"), get(none.With("X-Tenant-ID", neverWas), "/auth/sso")},
		"single sign-on":        {get(none.With("X-Tenant-ID", i.other.id), "/auth/sso/login"), get(none.With("X-Tenant-ID", neverWas), "/auth/sso/login")},
	} {
		const rounds = 21
		var counts [2][]int64
		for range rounds {
			for n, ask := range pair {
				before := i.writeCalls(t)
				ask()
				counts[n] = append(counts[n], i.writeCalls(t)-before)
			}
		}
		i.cases++
		for _, c := range counts {
			slices.Sort(c)
		}
		if foreign, never := counts[0][rounds/2], counts[1][rounds/2]; foreign > never+1 || never > foreign+1 {
			t.Errorf("%s: the server writes %d times if it exists and %d times if not, want the same", what, foreign, never)
		}
	}
}

// writeCalls returns the number of the server's write system calls; 0 if the system does not count
// them.
func (i *isolated) writeCalls(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", i.s.Pid()))
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ": "); name == "syscw" {
			var n int64
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += n
		}
	}
	return sum
}
