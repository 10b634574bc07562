package decision

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// parseBulk reads the items of a bulk call: each a decision request with the
// caller's decision_id. One snapshot decides all, so an item may name no other
// environment than env, the call's. It collects the offences of all items.
func parseBulk(env scope.Env, items []value.Value) ([]rego.Request, []string, error) {
	if len(items) > MaxBulk {
		return nil, nil, fault.Invalidf("/decisions", "%d decisions; at most %d in one call", len(items), MaxBulk)
	}
	requests := make([]rego.Request, len(items))
	ids := make([]string, len(items))
	var offences []fault.Detail
	for i, item := range items {
		at := "/decisions/" + strconv.Itoa(i)
		if item.Kind() != value.ObjectKind {
			offences = append(offences, fault.Detail{Pointer: at, Message: "must be an object"})
			continue
		}
		asked, bad := environment(item)
		if len(bad) == 0 && asked != scope.AnyEnv && asked != env {
			bad = append(bad, fault.Detail{Pointer: "/environment", Message: "the call decides in " + string(env) + "; an item cannot name another environment"})
		}
		req, more := parse(item)
		for _, d := range append(bad, more...) {
			d.Pointer = at + d.Pointer
			offences = append(offences, d)
		}
		requests[i] = req
		ids[i], _ = item.Get("decision_id").Str()
	}
	if len(offences) > 0 {
		return nil, nil, invalid(offences)
	}
	return requests, ids, nil
}

// parse reads one decision request. Its decision_id is the caller's own: an item
// of a bulk call can be sent alone.
func parse(body value.Value) (rego.Request, []fault.Detail) {
	req, offences := rego.ParseRequest(body)
	if id := body.Get("decision_id"); id.Defined() {
		if s, ok := id.Str(); !ok || len(s) > 200 {
			offences = append(offences, fault.Detail{Pointer: "/decision_id", Message: "must be a string of at most 200 bytes"})
		}
	}
	return req, offences
}

// environment is the one that a request names in its body; AnyEnv is none.
func environment(body value.Value) (scope.Env, []fault.Detail) {
	v := body.Get("environment")
	if !v.Defined() {
		return scope.AnyEnv, nil
	}
	name, _ := v.Str()
	if env := scope.Env(name); env.Valid() {
		return env, nil
	}
	return scope.AnyEnv, []fault.Detail{{Pointer: "/environment", Message: "must be sandbox or production"}}
}

// within is the scope of a decision whose request names env itself, which is one
// source more beside the query, the header and what the credential is bound to.
func within(sc scope.Scope, env scope.Env) (scope.Scope, error) {
	switch {
	case env == scope.AnyEnv || env == sc.Env:
		return sc, nil
	case sc.EnvBound:
		return sc, fault.New(fault.Forbidden, "environment_denied", "this credential is good for the other environment only")
	case sc.Env != scope.AnyEnv:
		return sc, fault.New(fault.BadRequest, "environment_conflict", "the request names two different values for its environment")
	}
	sc.Env = env
	return sc, nil
}
