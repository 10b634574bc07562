package rego_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestStoppedAgents checks that a set denies stopped agents whatever its controls, its cache and a
// request for access say, that a set made by With keeps or replaces them, and that the set of a bundle
// decides alike.
func TestStoppedAgents(t *testing.T) {
	stopped := actor.NewAgents([]int64{2}, 3, nil)
	open := rego.SetSpec{
		Revision: 5, Env: "sandbox",
		Controls:  []*rego.Control{compiledControl(t, rego.Meta{ID: 1, Name: "open", ResourceID: 1}, annotated+"package open\n\nallow := true\n")},
		Resources: []target.Resource{{ID: 1, Type: "api", Path: "/a/**", AuditLevel: "comprehensive", Doc: valuetest.Decode(t, `{"id":1}`)}},
	}
	spec := open
	spec.Agents = stopped
	set := rego.NewSet(spec)
	data, err := bundle.Write(bundle.Spec{Revision: "1", Set: rego.NewSet(open), Meta: value.Object(bundle.AgentsMeta(stopped))})
	errtest.Must(t, err)
	read, err := readBundle(data)
	errtest.Must(t, err)
	none := actor.Agents{}
	free := set.With(rego.Change{Revision: 6, Agents: &none})
	kept := set.With(rego.Change{Revision: 6})
	cache := rego.NewCache(1 << 20)
	opt := rego.Options{Cache: cache, Now: time.Now()}
	for _, c := range []struct{ user, path, want string }{
		{`{"id":"agent:1"}`, "/a/x", "agent:1"},
		{`{"id":"ann","act":{"sub":"agent:2","act":{"sub":"agent:3"}}}`, "/a/x", "agent:3"},
		{`{"id":"agent:3"}`, "/b", "agent:3"},
		{`{"id":"agent:2"}`, "/a/x", ""},
		{`{"id":"agent:4"}`, "/a/x", ""},
		{`{"id":"ann","act":{"sub":"x"}}`, "/a/x", ""},
		{`{}`, "/a/x", ""},
	} {
		req := rego.Request{User: valuetest.Decode(t, c.user), Path: c.path, Action: valuetest.Decode(t, `{"name":"read"}`)}
		if d := free.Decide(context.Background(), &req, opt); d.Stopped || d.Permit != (c.path == "/a/x") {
			t.Errorf("%s without stopped agents: %s, want the answer of the control", c.user, described(d))
		}
		for name, s := range map[string]*rego.Set{"the set": set, "the set made by With": kept, "the set of the bundle": read.Set} {
			d := s.Decide(context.Background(), &req, opt) // the cache has the answer of the control
			if c.want == "" {
				if d.Stopped || !d.Permit {
					t.Errorf("%s, %s: %s, want it permitted", name, c.user, described(d))
				}
				continue
			}
			reason := "The AI agent " + c.want + " is not active"
			if !d.Stopped || d.Permit || d.Effect != rego.Deny || d.Reason != reason || d.CallerReason() != reason || d.PolicyName != "" || d.CacheHit || d.Err != nil || len(d.Ran) > 0 || (d.Resource == nil) != (c.path == "/b") {
				t.Errorf("%s, %s: %s, want a denial with the reason %q and no control", name, c.user, described(d), reason)
			}
			if _, ok := d.AccessHint(&req); ok {
				t.Errorf("%s, %s: access may be requested, although a grant would not help", name, c.user)
			}
			if why := explain.Decision(context.Background(), s, &req, opt, d); len(why) > 0 {
				t.Errorf("%s, %s: the explanation is %+v, want none of a control that was not evaluated", name, c.user, why)
			}
			if steps, why := explain.TraceDecision(context.Background(), s, &req, opt, d); len(steps)+len(why) > 0 {
				t.Errorf("%s, %s: the trace is %+v, %+v, want none", name, c.user, steps, why)
			}
		}
	}
}
