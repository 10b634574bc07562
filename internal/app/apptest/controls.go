package apptest

import (
	"maps"
	"testing"
)

// CodeFiles returns the files of a request, given as path, content, path, content.
func CodeFiles(pairs ...string) []Body {
	out := []Body{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Body{"path": pairs[i], "content": pairs[i+1]})
	}
	return out
}

// Payroll is a control: HR may read payroll, and staff get it with secret values masked.
const Payroll = `package payroll

default allow := false

allow if "hr" in input.user.roles

allow if {
	"staff" in input.user.roles
	input.action.method == "GET"
}

mask contains path if {
	not "hr" in input.user.roles
	some path in ["ssn", "salary"]
}

reason := "only HR and staff may read payroll" if not allow
`

// Activate creates an active control and returns its id.
func Activate(t testing.TB, a *Client, name, env, rego string, members Body) int64 {
	t.Helper()
	full := Body{"name": name, "environment": env, "rego_code": rego, "status": "active"}
	maps.Copy(full, members)
	return a.Do(t, "POST", "/policies", full).Want(201).ID()
}

// Enforce makes environments enforce, in this order: production requires that sandbox enforces.
func Enforce(t testing.TB, a *Client, envs ...string) {
	t.Helper()
	for _, env := range envs {
		a.Do(t, "PUT", "/environments/"+env+"/enforcement", Body{"mode": "enforce"}).Want(200)
	}
}
