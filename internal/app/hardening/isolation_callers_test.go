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

// claim gives the other tenant a verified custom domain.
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

// callers are the credentials that are valid, all of the own tenant, and none.
func (i *isolated) callers(t *testing.T) map[string]*apptest.Client {
	t.Helper()
	_, bouncer := i.enforcer(t, i.own, nil)
	agent, directory := i.s.Anonymous(), i.s.Anonymous()
	agent.APIKey, _ = i.own.admin.Do(t, "POST", fmt.Sprintf("/ai-agents/%d/keys", i.own.agent), body{}).Want(201).Get("key").(string)
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

// unknown is a credential that never was, in the form of ours.
func (i *isolated) unknown() *apptest.Client {
	c := i.s.Anonymous()
	c.APIKey = "gh_tenant_" + strings.Repeat("A", 43)
	return c
}

// ended are credentials that ended: those of the other tenant, and the key of a suspended
// one, whose holder may learn that.
func (i *isolated) ended(t *testing.T) map[string]*apptest.Client {
	t.Helper()
	_, expired := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope(), "expires_at": time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339Nano)})
	revokedID, revoked := i.key(t, i.other, body{"name": isolationMark, "scopes": everyScope()})
	_, session := i.person(t, i.other, "admin")
	session.Do(t, "POST", "/auth/logout", nil).Want(200)
	i.other.admin.Do(t, "DELETE", "/tenants/"+i.other.id+"/api-keys/"+revokedID, nil).Want(200)
	rotated, retired := i.enforcer(t, i.other, nil)
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
					return fmt.Errorf("%s: %d", what, res.Status)
				}
			}
			return nil
		})
	}
	return out
}

// vendors makes two vendors. It adds the first one's key to the callers, and gives the
// tenant that the other one made.
func (i *isolated) vendors(t *testing.T, callers map[string]*apptest.Client) (theirs string) {
	t.Helper()
	key := func() *apptest.Client {
		c := i.s.Anonymous()
		c.APIKey, _ = i.s.Admin.Do(t, "POST", "/vendors", body{"name": i.name("vendor")}).Want(201).Get("key").(string)
		return c
	}
	callers["a vendor's key"] = key()
	other := *key()
	other.Base = i.s.URL + "/api/v2/oem"
	theirs, _ = other.Do(t, "POST", "/tenants", body{"name": isolationMark + " of a vendor", "administrator": body{"email": "a@" + isolationMark + ".example"}}).Want(201).Get("tenant", "id").(string)
	return theirs
}

// ofVendor are the cases of the tenants of another vendor, and of none: to a vendor they
// are not there.
func (i *isolated) ofVendor(t *testing.T, op operation, c *apptest.Client, theirs string) {
	t.Helper()
	if !slices.Contains(op.callers, "vendor") || !strings.Contains(op.path, "{id}") {
		return
	}
	for _, foreign := range []string{theirs, i.own.id, i.other.id} {
		res := op.send(t, asked(c), op.at(inTenant(foreign, i.own.unused)))
		never := op.send(t, asked(c), op.at(inTenant(neverWas, i.own.unused)))
		res.Body = []byte(strings.ReplaceAll(string(res.Body), foreign, neverWas))
		if res.Status != 404 && res.Status != 422 {
			t.Errorf("%s on a tenant of another vendor: %d %s", op.id, res.Status, res.Body)
		}
		i.same(t, op.id+" on a tenant of another vendor", res, never)
	}
}

// work: the server does no more for a tenant or an object that there is than for one that
// never was, so that nobody tells them apart by time. Work is counted in the reads and
// system calls with which the process writes, to stores too: each question to PostgreSQL is
// one. The medians of both are compared.
func (i *isolated) work(t *testing.T, callers map[string]*apptest.Client) {
	t.Helper()
	if i.calls(t) == 0 {
		t.Log("this system does not count the calls of a process")
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
		"a sign-in":               {login(i.other.id), login(neverWas)},
		"a tenant by header":      {get(key.With("X-Tenant-ID", i.other.id), "/policies"), get(key.With("X-Tenant-ID", neverWas), "/policies")},
		"a tenant by subdomain":   {get(key.With("Host", i.other.id+"."+baseDomain), "/policies"), get(key.With("Host", neverWas+"."+baseDomain), "/policies")},
		"a tenant by path":        {get(key, "/tenants/"+i.other.id), get(key, "/tenants/"+neverWas)},
		"a tenant, by nobody":     {get(none.With("X-Tenant-ID", i.other.id), "/policies"), get(none.With("X-Tenant-ID", neverWas), "/policies")},
		"a control":               {get(key, fmt.Sprintf("/policies/%d", i.other.policy)), get(key, "/policies/987654321")},
		"a resource":              {get(key, fmt.Sprintf("/resources/%d", i.other.resource)), get(key, "/resources/987654321")},
		"a person":                {get(key, "/users/"+i.other.user), get(key, "/users/never-used-id")},
		"a bouncer":               {get(key, fmt.Sprintf("/bouncers/%d", i.other.bouncer)), get(key, "/bouncers/987654321")},
		"what sign-ins there are": {get(none.With("X-Tenant-ID", i.other.id), "/auth/sso"), get(none.With("X-Tenant-ID", neverWas), "/auth/sso")},
		"a sign-in elsewhere":     {get(none.With("X-Tenant-ID", i.other.id), "/auth/sso/login"), get(none.With("X-Tenant-ID", neverWas), "/auth/sso/login")},
	} {
		const rounds = 21
		var counts [2][]int64
		for range rounds {
			for n, ask := range pair {
				before := i.calls(t)
				ask()
				counts[n] = append(counts[n], i.calls(t)-before)
			}
		}
		i.cases++
		for _, c := range counts {
			slices.Sort(c)
		}
		if foreign, never := counts[0][rounds/2], counts[1][rounds/2]; foreign > never+1 || never > foreign+1 {
			t.Errorf("%s: %d writes for one that there is, %d for one that never was", what, foreign, never)
		}
	}
}

// calls is how often the server's process has written; 0 where the system does not count it.
func (i *isolated) calls(t *testing.T) int64 {
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
