package delivery_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// discoveredHosts returns the discovered resources of an environment, by host.
func discoveredHosts(t testing.TB, a *apptest.Client, env string) map[string]body {
	t.Helper()
	var page struct{ Resources []body }
	a.Do(t, "GET", "/resources?limit=1000&environment="+env, nil).Want(200).Into(&page)
	out := map[string]body{}
	for _, r := range page.Resources {
		if r["auto_discovered"] == true {
			out[r["original_host"].(string)] = r
		}
	}
	return out
}

// waitForHost waits until a host is discovered, and returns its resource.
func waitForHost(t *testing.T, a *apptest.Client, b *apptest.BouncerProcess, host string) (found body) {
	t.Helper()
	apptest.Eventually(t, 30*time.Second, func() error {
		if found = discoveredHosts(t, a, "sandbox")[host]; found == nil {
			return fmt.Errorf("the host %s is not discovered: %s", host, b.Log)
		}
		return nil
	})
	return found
}

// TestDiscovery checks that after traffic through a bouncer to an unregistered model endpoint, the
// operator finds it classified, in need of attention and in the audit, and can add a control to it.
func TestDiscovery(t *testing.T) {
	apptest.Inner(t)
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a, app := s.Admin, apptest.NewBackend(t, nil)
		own := a.Do(t, "POST", "/resources", body{"name": "Shop", "type": "api", "path": "/shop", "original_host": "shop.example", "environment": "sandbox"}).Want(201).ID()
		b := s.Bouncer(t, a, body{"name": "models", "environment": "sandbox"}, app.Addr)
		through := func(host string) *apptest.Client { return (&apptest.Client{Base: b.URL}).With("Host", host) }
		through("api.openai.com").Do(t, "POST", "/v1/chat/completions?key=secret", body{"model": "gpt-4o"}).Want(200)
		through("API.openai.com:443").Do(t, "GET", "/v1/models", nil).Want(200)
		for _, host := range []string{"shop.example", "127.0.0.1:81", "localhost"} {
			through(host).Do(t, "GET", "/other", nil).Want(200)
		}
		found := waitForHost(t, a, b, "api.openai.com")
		for member, want := range map[string]any{
			"name": "api.openai.com", "type": "api", "environment": "sandbox", "path": "/**", "url": "http://api.openai.com/v1/chat/completions", "resource_kind": "llm_endpoint",
			"ai_provider": "openai", "classification_source": "heuristic", "data_classification": "internal", "version": 1.0,
		} {
			if found[member] != want {
				t.Errorf("the resource's %s is %v, want %v", member, found[member], want)
			}
		}
		if c, _ := found["classification_confidence"].(float64); c < 0.6 || found["last_classified_at"] == nil {
			t.Errorf("the confidence is %v at %v, want at least 0.6 and a time", found["classification_confidence"], found["last_classified_at"])
		}
		if all := discoveredHosts(t, a, "sandbox"); len(all) != 1 || len(discoveredHosts(t, a, "production")) != 0 {
			t.Errorf("the discovered hosts are %v, want one in sandbox only", all)
		}
		if v := a.Do(t, "GET", fmt.Sprint("/resources/", own), nil).Want(200); v.Get("version") != 1.0 || v.Get("auto_discovered") != false {
			t.Errorf("the registered resource is now %s, want it unchanged", v.Body)
		}
		id := int64(found["id"].(float64))
		if !slices.Contains(reasonsOf(t, a, id), "auto_discovered") {
			t.Errorf("the resource needs attention for %v, want auto_discovered", reasonsOf(t, a, id))
		}
		var log struct{ Events []body }
		a.Do(t, "GET", fmt.Sprintf("/audit/events?type=RESOURCE_CREATED&object_id=%d", id), nil).Want(200).Into(&log)
		if len(log.Events) != 1 || log.Events[0]["actor_kind"] != "bouncer" || log.Events[0]["actor_id"] != fmt.Sprint(b.ID) {
			t.Errorf("the audit has %v, want one event of the bouncer", log.Events)
		}
		apptest.Enforce(t, a, "sandbox")
		// The server links the bouncer to the resource that it discovered.
		if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID), nil).Want(200); fmt.Sprint(v.Get("resource_ids")) != fmt.Sprint([]int64{id}) {
			t.Errorf("the bouncer is %s, want the resource %d", v.Body, id)
		}
		policy := apptest.Activate(t, a, "models", "sandbox", closed, body{"resource_id": id})
		apptest.WaitForStatus(t, through("api.openai.com"), "/v1/models", 403, 10*time.Second)
		through("other.example").Do(t, "GET", "/v1/models", nil).Want(200)
		// The resource can be deleted after its control.
		a.Do(t, "DELETE", fmt.Sprint("/resources/", id), nil).Want(409)
		a.Do(t, "DELETE", fmt.Sprint("/policies/", policy), nil).Want(200, 204)
		a.Do(t, "DELETE", fmt.Sprint("/resources/", id), nil).Want(200, 204)
		if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID), nil).Want(200); fmt.Sprint(v.Get("resource_ids")) == fmt.Sprint([]int64{id}) {
			t.Errorf("the bouncer is %s, want no deleted resource", v.Body)
		}
	})
}

// reasonsOf returns why a resource needs attention.
func reasonsOf(t testing.TB, a *apptest.Client, id int64) (out []string) {
	t.Helper()
	var summary struct {
		Attention []struct {
			ID      int64
			Reasons []string
		} `json:"needs_attention"`
	}
	a.Do(t, "GET", "/resources/inventory-summary?environment=sandbox", nil).Want(200).Into(&summary)
	for _, x := range summary.Attention {
		if x.ID == id {
			out = x.Reasons
		}
	}
	return out
}

// TestDiscoveryOpensNothing checks that after a host is discovered, a control on a path of all hosts
// still applies to it, at the bouncer and in the API.
func TestDiscoveryOpensNothing(t *testing.T) {
	t.Parallel()
	apptest.Each(t, func(t *testing.T, s *apptest.Server) {
		a, app := s.Admin, apptest.NewBackend(t, nil)
		apptest.Enforce(t, a, "sandbox")
		guarded := a.Do(t, "POST", "/resources", body{"name": "Secret", "type": "api", "path": "/secret/**", "environment": "sandbox"}).Want(201).ID()
		apptest.Activate(t, a, "nobody", "sandbox", closed, body{"resource_id": guarded})
		b := s.Bouncer(t, a, body{"name": "shop", "environment": "sandbox", "resource_ids": []int64{guarded}}, app.Addr)
		shop := (&apptest.Client{Base: b.URL}).With("Host", "shop.example")
		apptest.WaitForStatus(t, shop, "/secret/1", 403, 10*time.Second)
		shop.Do(t, "GET", "/other", nil).Want(200)
		found := waitForHost(t, a, b, "shop.example")
		// A control of the new resource shows that the bouncer knows it, and applies to all its paths.
		policy := apptest.Activate(t, a, "shop", "sandbox", opened, body{"resource_id": int64(found["id"].(float64))})
		apptest.WaitForStatus(t, shop, "/secret/1", 200, 10*time.Second)
		a.Do(t, "DELETE", fmt.Sprint("/policies/", policy), nil).Want(200, 204)
		apptest.WaitForStatus(t, shop, "/secret/1", 403, 10*time.Second)
		asked := body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/secret/1", "host": "shop.example"}, "action": body{"method": "GET"}}
		if v := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", asked).Want(200); v.Get("policy_name") != "nobody" {
			t.Errorf("the API's decision is %s, want one by nobody", v.Body)
		}
	})
}

// TestDiscoveryIsBounded checks that a flood of unknown hosts from several addresses creates at most
// an hour's budget of resources, that a host name stays text, and that a bouncer with discovery off
// discovers nothing.
func TestDiscoveryIsBounded(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	a, app := s.Admin, apptest.NewBackend(t, nil)
	b := s.Bouncer(t, a, body{"name": "flooded", "environment": "sandbox"}, app.Addr)
	quiet := s.Bouncer(t, a, body{"name": "quiet", "environment": "sandbox", "configuration": body{"discovery": "off"}}, app.Addr)
	a.Do(t, "POST", "/bouncers", body{"name": "odd", "hostname": "edge.example", "port": 8443, "configuration": body{"discovery": "maybe"}}).Want(422)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 250 {
				c := (&apptest.Client{Base: b.URL}).With("Host", fmt.Sprintf("h%d-%d.example", w, i)).With("X-Forwarded-For", fmt.Sprint("192.0.2.", w+1))
				if _, err := c.Try("GET", "/", nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, host := range []string{"<script>alert(1)</script>", "a,b.example", "=cmd.example", "x'--.example", "..", "10.1.2.3"} {
		_, _ = (&apptest.Client{Base: b.URL}).With("Host", host).Try("GET", "/", nil)
	}
	(&apptest.Client{Base: quiet.URL}).With("Host", "quiet.example").Do(t, "GET", "/", nil).Want(200)
	all.Wait()
	apptest.Eventually(t, 30*time.Second, func() error {
		if n := len(discoveredHosts(t, a, "sandbox")); n != 100 {
			return fmt.Errorf("the server has %d discovered hosts, want 100", n)
		}
		return nil
	})
	post := func(token string, report any) *apptest.Response {
		return (&apptest.Client{Base: s.URL + "/api/v1", Bearer: token}).Do(t, "POST", "/bridge/discovery", report)
	}
	var out struct {
		Created, Refused []body
		Remaining        int
	}
	post(b.Token, body{"hosts": []body{{"host": "more.example"}}}).Want(200).Into(&out)
	if len(out.Created) != 0 || out.Remaining != 0 || len(out.Refused) != 1 || out.Refused[0]["reason"] != "rate_limited" {
		t.Errorf("a report beyond the budget = %+v, want rate_limited", out)
	}
	post(quiet.Token, body{"hosts": []body{{"host": "quiet.example"}}}).Want(200).Into(&out)
	if len(out.Created) != 0 || out.Refused[0]["reason"] != "discovery_off" {
		t.Errorf("a report with discovery off = %+v, want discovery_off", out)
	}
	a.Do(t, "POST", "/bridge/discovery", body{"hosts": []body{{"host": "person.example"}}}).Want(403)
	post("gh_bouncer_x", body{"hosts": []body{}}).Want(401)
	post(b.Token, []byte(`{"hosts":`)).Want(400)
	for host := range discoveredHosts(t, a, "sandbox") {
		if !strings.HasSuffix(host, ".example") || strings.ContainsAny(host, "<'=,") {
			t.Errorf("the server has discovered %q, want only plain names", host)
		}
	}
}
