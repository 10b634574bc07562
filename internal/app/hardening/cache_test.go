package hardening_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

var cacheCases = []hardeningCase{
	{"D1 a cached decision fits its request", cachedDecisions},
	{"D1 parallel requests", parallelDecisions},
	{"D1 a change takes effect", cacheInvalidation},
}

// echoControl is a control whose reason shows the input of the evaluation.
const echoControl = `package p

default allow := false

allow if input.user.id == "yes"

reason := json.marshal([object.get(input.context, "a", "absent"), object.get(input.context, "b", "absent"), object.get(input.user, "id", "absent")])
`

// similarValues returns values that a careless cache key would confuse.
func similarValues() []any {
	return []any{
		nil, false, true, 0.0, 1.0, -1.0, 1.5, "", "0", "1", "true", "null", "absent", "a", "b", "a,b", "a|b", "a:b", "a;b", "a\x1fb", "a/b", `a"b`, `a\b`, `","`, `"a"`, "a\n", "ab",
		[]any{},
		[]any{"a"},
		[]any{"a", "b"},
		[]any{"b", "a"},
		[]any{"a,b"},
		[]any{[]any{"a"}, "b"},
		[]any{[]any{"a", "b"}},
		[]any{nil},
		[]any{1.0},
		[]any{"1"},
		map[string]any{},
		map[string]any{"a": "b"},
		map[string]any{"b": "a"},
		map[string]any{"a": nil},
		map[string]any{"a": 1.0},
		map[string]any{"a": "1"},
		map[string]any{"a,b": ""},
		map[string]any{"a": map[string]any{"b": 1.0}},
		"é", "e\u0301", "\u00a0", "A", 1e21, 9007199254740993.0, 0.1, 1e-7,
	}
}

// cachedDecisions sends requests whose values differ only in type, order and delimiters, each
// twice, and compares each answer with its request.
func cachedDecisions(t *testing.T, r *fixture) {
	p := r.tenant(t, "Cache")
	r.newControl(t, p, body{"status": "active", "environment": "production", "rego_code": echoControl})
	values := similarValues()
	var sent []body
	for _, a := range values {
		for _, b := range values {
			sent = append(sent, body{"user": body{"id": "u"}, "context": body{"a": a, "b": b}})
		}
		sent = append(sent, body{"user": body{"id": "u"}, "context": body{"a": a}}, body{"user": body{"id": "u"}, "context": body{"b": a}})
	}
	sent = append(sent, sent...)
	order := rand.New(rand.NewPCG(1, 2)) // the same in each run
	order.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
	for len(sent) > 0 {
		n := min(1000, len(sent))
		var out struct {
			Results []struct{ Reason, Decision string }
		}
		p.key.Do(t, "POST", "/decisions/evaluate/bulk", body{"decisions": sent[:n]}).Want(200).Into(&out)
		for i, res := range out.Results {
			sentContext, _ := sent[i]["context"].(body)
			want := []any{"absent", "absent", "u"}
			for k, name := range []string{"a", "b"} {
				if v, ok := sentContext[name]; ok {
					want[k] = v
				}
			}
			var got []any
			if err := json.Unmarshal([]byte(res.Reason), &got); err != nil || !reflect.DeepEqual(got, want) || res.Decision != "DENY" {
				t.Fatalf("the decision for the context %v = %s for %s, want DENY for %v", sentContext, res.Decision, res.Reason, want)
			}
		}
		sent = sent[n:]
	}
	if hit := p.key.Do(t, "POST", "/decisions/evaluate", body{"user": body{"id": "u"}, "context": body{"a": "a", "b": "b"}}).Want(200).Get("cache_hit"); hit != true {
		t.Error("no decision came from the cache, so this test did not test it")
	}
}

// parallelDecisions checks that hundreds of parallel requests, in two tenants and two environments,
// each get their own answer.
func parallelDecisions(t *testing.T, r *fixture) {
	var parties []*party
	for i := range 2 {
		p := r.tenant(t, "Parallel")
		for _, env := range []string{"sandbox", "production"} {
			r.newControl(t, p, body{"status": "active", "environment": env, "rego_code": fmt.Sprintf("package p\n\nallow := true\n\nreason := sprintf(\"%d %s %%v\", [input.user.id])", i, env)})
		}
		parties = append(parties, p)
	}
	var all sync.WaitGroup
	for n := range 500 {
		all.Go(func() {
			i, env, user := n%2, []string{"sandbox", "production"}[n/2%2], fmt.Sprint("u", n/8)
			res, err := parties[i].key.Try("POST", "/decisions/evaluate?environment="+env, body{"user": body{"id": user}})
			if err != nil {
				t.Error(err)
				return
			}
			var got struct{ Reason string }
			if want := fmt.Sprintf("%d %s %s", i, env, user); json.Unmarshal(res.Body, &got) != nil || got.Reason != want {
				t.Errorf("the decision for %q = %d %s", want, res.Status, res.Body)
			}
		})
	}
	all.Wait()
}

// cacheInvalidation checks that a change of a control or a resource takes effect with the next
// decision on this replica, and within five seconds on another.
func cacheInvalidation(t *testing.T, r *fixture) {
	p := r.tenant(t, "Changes")
	resource := p.admin.Do(t, "POST", "/resources", body{"name": "r", "type": "api", "path": "/d1", "environment": "production", "attributes": body{"level": "low"}}).Want(201).ID()
	id := r.newControl(t, p, body{"status": "active", "environment": "production", "resource_id": resource, "rego_code": "package p\n\nallow if input.resource.attributes.level == \"low\""})
	clients := []*apptest.Client{p.key}
	if r.s.DatabaseURL() != "" {
		other := *p.key
		other.Base = r.s.Replica(t).Anonymous().Base
		clients = append(clients, &other)
	}
	ask := body{"user": body{"id": "u"}, "resource": body{"type": "api", "path": "/d1"}}
	expect := func(what, want string) {
		t.Helper()
		for i, c := range clients {
			if got := c.Do(t, "POST", "/decisions/evaluate", ask).Want(200); i == 0 && got.Get("decision") != want {
				t.Errorf("%s: the next decision = %s, want %s", what, got.Body, want)
			}
			apptest.Eventually(t, 5*time.Second, func() error {
				if got := c.Do(t, "POST", "/decisions/evaluate", ask).Want(200); got.Get("decision") != want {
					return fmt.Errorf("%s: the decision of replica %d = %s, want %s", what, i, got.Body, want)
				}
				return nil
			})
		}
	}
	policy, of := fmt.Sprintf("/policies/%d", id), fmt.Sprintf("/resources/%d", resource)
	expect("at first", "PERMIT")
	p.admin.Do(t, "PUT", of, body{"attributes": body{"level": "high"}}).Want(200)
	expect("resource changed", "DENY")
	p.admin.Do(t, "PUT", policy, body{"rego_code": "package p\n\nallow if input.resource.attributes.level == \"high\""}).Want(200)
	expect("control changed", "PERMIT")
	p.admin.Do(t, "PUT", policy, body{"status": "inactive"}).Want(200)
	expect("control inactive", "DENY")
	p.admin.Do(t, "PUT", policy, body{"status": "active"}).Want(200)
	expect("control active", "PERMIT")
	p.admin.Do(t, "DELETE", policy, nil).Want(200)
	expect("control deleted", "DENY")
	p.admin.Do(t, "POST", policy+"/restore", nil).Want(200)
	expect("control restored", "PERMIT")
	p.admin.Do(t, "POST", "/policies", body{"name": "no", "rego_code": "package p\n\ndeny := true", "environment": "production", "status": "active"}).Want(201)
	expect("a denial added", "DENY")
}
