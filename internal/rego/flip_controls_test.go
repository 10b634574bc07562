package rego_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// controls are written as authors write them: helpers, functions, else, sets of
// reasons, negation, loops, defaults, data.
var controls = []struct {
	name, source string
	inputs       []map[string]any
}{
	{"roles", `package c

default allow := false

allow if is_admin

allow if {
	is_editor
	input.action.name in {"read", "write"}
	input.resource.status != "archived"
}

is_admin if "admin" in input.user.roles

is_editor if {
	some r in input.user.roles
	r == "editor"
}
`, []map[string]any{
		{"user": m{"roles": l{"admin"}}, "action": m{"name": "read"}, "resource": m{"status": "live"}},
		{"user": m{"roles": l{"viewer", "editor"}}, "action": m{"name": "read"}, "resource": m{"status": "live"}},
		{"user": m{"roles": l{"viewer"}}, "action": m{"name": "drop"}, "resource": m{"status": "archived"}},
		{},
	}},
	{"limits", `package c

deny contains "too much" if input.context.amount > limit

deny contains "frozen" if frozen

deny contains msg if {
	some tag in input.resource.tags
	tag == "secret"
	not cleared
	msg := sprintf("tag %s", [tag])
}

limit := 1000 if input.user.level == "senior"

else := 100

frozen if input.resource.state == "frozen"

cleared if input.user.clearance >= 3

allow if input.user.active
`, []map[string]any{
		{"user": m{"level": "senior", "active": true, "clearance": 1.0}, "context": m{"amount": 500.0}, "resource": m{"state": "ok", "tags": l{"secret"}}},
		{"user": m{"level": "junior", "active": true, "clearance": 4.0}, "context": m{"amount": 500.0}, "resource": m{"state": "frozen", "tags": l{"secret", "a"}}},
		{"user": m{"level": "junior", "clearance": 4.0}, "context": m{"amount": 50.0}, "resource": m{"state": "ok", "tags": l{}}},
	}},
	{"functions", `package c

allow if {
	owns(input.user, input.resource)
	inside(input.context.ip)
}

allow if {
	input.user.id in data.resources["1"].guests
	not blocked(input.user)
}

owns(u, r) if u.id == r.owner

owns(u, r) if {
	u.team == r.team
	u.level > 2
}

inside(ip) if net.cidr_contains("10.0.0.0/8", ip)

blocked(u) if u.status == "blocked"

blocked(u) if u.strikes >= 3
`, []map[string]any{
		{"user": m{"id": "a", "team": "x", "level": 1.0}, "resource": m{"owner": "a", "team": "y"}, "context": m{"ip": "10.2.3.4"}},
		{"user": m{"id": "b", "team": "x", "level": 1.0, "status": "blocked"}, "resource": m{"owner": "a", "team": "x"}, "context": m{"ip": "8.8.8.8"}},
		{"user": m{"id": "g", "strikes": 5.0}, "resource": m{"owner": "a", "team": "x"}, "context": m{"ip": "8.8.8.8"}},
		{"user": m{"id": "g", "strikes": 1.0}, "resource": m{"owner": "a"}},
	}},
	{"masks", `package c

default allow := false

allow if input.user.email != ""

mask contains "ssn" if not privileged

mask contains field if {
	some field in input.resource.pii
	input.user.region != "eu"
}

privileged if {
	input.user.department == "payroll"
	input.user.grade > 5
}

reason := "Ask the payroll desk" if not allow
`, []map[string]any{
		{"user": m{"email": "a@b", "department": "payroll", "grade": 6.0, "region": "eu"}, "resource": m{"pii": l{"email"}}},
		{"user": m{"email": "a@b", "department": "sales", "grade": 6.0, "region": "us"}, "resource": m{"pii": l{"email", "phone"}}},
		{"user": m{"email": ""}, "resource": m{"pii": l{}}},
	}},
	{"every", `package c

default allow := false

allow if {
	every s in input.scopes {
		s in {"read", "list"}
	}
	level >= 2
}

default level := 0

level := 3 if input.user.role == "chief"

level := 2 if {
	input.user.role == "lead"
	input.user.years > 1
}

allow if {
	u := input.user
	lower(u.name) == "root"
	startswith(input.path, "/admin")
}

deny if {
	input.path == "/admin/drop"
	not input.context.mfa
}
`, []map[string]any{
		{"scopes": l{"read"}, "user": m{"role": "chief", "name": "x", "years": 3.0}, "path": "/a"},
		{"scopes": l{"read", "drop"}, "user": m{"role": "lead", "name": "Root", "years": 1.0}, "path": "/admin/drop", "context": m{"mfa": false}},
		{"scopes": l{}, "user": m{"role": "none", "name": "x"}, "path": "/b", "context": m{"mfa": true}},
	}},
	{"sets", `package c

allow if input.action.name in permissions

permissions contains "read"

permissions contains "write" if input.user.role == "editor"

permissions contains p if {
	some g in input.user.groups
	some p in data.pip.groups[g]
}

deny contains "night" if {
	input.context.hour < 6
	not "oncall" in input.user.groups
}
`, []map[string]any{
		{"action": m{"name": "read"}, "user": m{"role": "viewer", "groups": l{"ops"}}, "context": m{"hour": 12.0}},
		{"action": m{"name": "write"}, "user": m{"role": "viewer", "groups": l{}}, "context": m{"hour": 12.0}},
		{"action": m{"name": "deploy"}, "user": m{"role": "viewer", "groups": l{"ops"}}, "context": m{"hour": 3.0}},
	}},
}

type (
	m = map[string]any
	l = []any
)

// flipControls asks the controls above about inputs, and two changes away from them.
func flipControls(t *testing.T, y *tally) {
	data := m{"resources": m{"1": m{"guests": l{"g"}}}, "pip": m{"groups": m{"ops": l{"deploy"}}}}
	for _, x := range controls {
		c, issues := rego.Compile(rego.Meta{ID: 1, Name: x.name, Version: 1}, x.source)
		if issues != nil {
			t.Fatal(x.name, issues)
		}
		for _, in := range x.inputs {
			for _, w := range variants(c, world{in, data}) {
				y.add(t, c, w)
			}
		}
	}
}
