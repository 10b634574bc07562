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

// hosts gives the discovered resources of an environment, by host.
func hosts(t testing.TB, a *apptest.Client, env string) map[string]body {
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

// TestDiscovery: an operator points a bouncer at a model's endpoint that nobody
// registered, and finds it classified, among what needs attention, in the audit
// and ready for a control that then takes effect.
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
		var found body
		apptest.Eventually(t, 30*time.Second, func() error {
			if found = hosts(t, a, "sandbox")["api.openai.com"]; found == nil {
				return fmt.Errorf("not discovered: %s", b.Log)
			}
			return nil
		})
		for member, want := range map[string]any{
			"name": "api.openai.com", "type": "api", "environment": "sandbox", "path": "/**", "url": "http://api.openai.com/v1/chat/completions", "resource_kind": "llm_endpoint",
			"ai_provider": "openai", "classification_source": "heuristic", "data_classification": "internal", "version": 1.0,
		} {
			if found[member] != want {
				t.Errorf("%s is %v, want %v", member, found[member], want)
			}
		}
		if c, _ := found["classification_confidence"].(float64); c < 0.6 || found["last_classified_at"] == nil {
			t.Errorf("classified as %v at %v", found["classification_confidence"], found["last_classified_at"])
		}
		if all := hosts(t, a, "sandbox"); len(all) != 1 || len(hosts(t, a, "production")) != 0 {
			t.Errorf("discovered %v", all)
		}
		if v := a.Do(t, "GET", fmt.Sprint("/resources/", own), nil).Want(200); v.Get("version") != 1.0 || v.Get("auto_discovered") != false {
			t.Errorf("the registered resource was changed: %s", v.Body)
		}
		id := int64(found["id"].(float64))
		if !slices.Contains(reasonsOf(t, a, id), "auto_discovered") {
			t.Errorf("needs attention for %v", reasonsOf(t, a, id))
		}
		var log struct{ Events []body }
		a.Do(t, "GET", fmt.Sprintf("/audit/events?type=RESOURCE_CREATED&object_id=%d", id), nil).Want(200).Into(&log)
		if len(log.Events) != 1 || log.Events[0]["actor_kind"] != "bouncer" || log.Events[0]["actor_id"] != fmt.Sprint(b.ID) {
			t.Errorf("audited as %v", log.Events)
		}
		apptest.Enforce(t, a, "sandbox")
		// It stands before what it found: nobody links the two.
		if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID), nil).Want(200); fmt.Sprint(v.Get("resource_ids")) != fmt.Sprint([]int64{id}) {
			t.Errorf("the bouncer: %s", v.Body)
		}
		policy := apptest.Activate(t, a, "models", "sandbox", closed, body{"resource_id": id})
		apptest.WaitForStatus(t, through("api.openai.com"), "/v1/models", 403, 10*time.Second)
		through("other.example").Do(t, "GET", "/v1/models", nil).Want(200)
		// In the list by its discovery alone, it can be deleted with its control gone.
		a.Do(t, "DELETE", fmt.Sprint("/resources/", id), nil).Want(409)
		a.Do(t, "DELETE", fmt.Sprint("/policies/", policy), nil).Want(200, 204)
		a.Do(t, "DELETE", fmt.Sprint("/resources/", id), nil).Want(200, 204)
		if v := a.Do(t, "GET", fmt.Sprint("/bouncers/", b.ID), nil).Want(200); fmt.Sprint(v.Get("resource_ids")) == fmt.Sprint([]int64{id}) {
			t.Errorf("the bouncer still lists what is gone: %s", v.Body)
		}
	})
}

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

// TestDiscoveryOpensNothing: traffic to a host that nobody named makes it a resource, and
// the control of a path of every host holds for it as before, at the bouncer and in the API.
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
		var found body
		apptest.Eventually(t, 30*time.Second, func() error {
			if found = hosts(t, a, "sandbox")["shop.example"]; found == nil {
				return fmt.Errorf("not discovered: %s", b.Log)
			}
			return nil
		})
		// A control of the new resource shows that the bouncer knows of it, and stands for all its paths.
		policy := apptest.Activate(t, a, "shop", "sandbox", opened, body{"resource_id": int64(found["id"].(float64))})
		apptest.WaitForStatus(t, shop, "/secret/1", 200, 10*time.Second)
		a.Do(t, "DELETE", fmt.Sprint("/policies/", policy), nil).Want(200, 204)
		apptest.WaitForStatus(t, shop, "/secret/1", 403, 10*time.Second)
		asked := body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/secret/1", "host": "shop.example"}, "action": body{"method": "GET"}}
		if v := a.Do(t, "POST", "/decisions/evaluate?environment=sandbox", asked).Want(200); v.Get("policy_name") != "nobody" {
			t.Errorf("the API decides %s", v.Body)
		}
	})
}

// TestDiscoveryIsBounded: unknown hosts at full speed, from several addresses, bring
// about an hour's budget of resources and no more, by the bouncer's count and by the server's;
// text in a host name stays text; a bouncer that is told not to discover does not.
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
		if n := len(hosts(t, a, "sandbox")); n != 100 {
			return fmt.Errorf("%d hosts discovered", n)
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
		t.Errorf("beyond the budget: %+v", out)
	}
	post(quiet.Token, body{"hosts": []body{{"host": "quiet.example"}}}).Want(200).Into(&out)
	if len(out.Created) != 0 || out.Refused[0]["reason"] != "discovery_off" {
		t.Errorf("switched off: %+v", out)
	}
	a.Do(t, "POST", "/bridge/discovery", body{"hosts": []body{{"host": "person.example"}}}).Want(403)
	post("gh_bouncer_x", body{"hosts": []body{}}).Want(401)
	post(b.Token, []byte(`{"hosts":`)).Want(400)
	for host := range hosts(t, a, "sandbox") {
		if !strings.HasSuffix(host, ".example") || strings.ContainsAny(host, "<'=,") {
			t.Errorf("discovered %q", host)
		}
	}
}
