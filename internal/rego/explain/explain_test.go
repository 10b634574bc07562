package explain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

const payroll = `package payroll

default allow := false

allow if {
	is_clerk
	input.action.name == "read"
}

allow if {
	input.user.id == input.resource.owner
	not frozen
}

is_clerk if {
	some r in input.user.roles
	r == "clerk"
}

frozen if input.resource.status == "frozen"

deny contains "outside of the network" if not inside(input.context.ip)

deny contains "too much" if input.amount > 100

inside(ip) if startswith(ip, "10.")
`

func explained(t *testing.T, source, input string) (rego.Outcome, reason.Explanation) {
	t.Helper()
	c, issues := rego.Compile(rego.Meta{ID: 7, Name: "Payroll", Version: 3}, source)
	if issues != nil {
		t.Fatal(issues)
	}
	in := valuetest.Decode(t, input)
	out, e := Control(context.Background(), c, in, nil, rego.Limits{Now: explainNow})
	if want := c.Eval(context.Background(), in, nil, rego.Limits{Now: explainNow}); out.Effect != want.Effect || out.Reason != want.Reason {
		t.Errorf("Explain answers %v %q, Eval %v %q", out.Effect, out.Reason, want.Effect, want.Reason)
	}
	return out, e
}

// told writes conditions as line:source=holds{values}, so that a test can name them.
func told(list []reason.Condition) string {
	parts := []string{}
	for _, c := range list {
		values := []string{}
		for _, v := range c.Values {
			values = append(values, v.String())
		}
		parts = append(parts, fmt.Sprintf("%d %s %v {%s}", c.Line, c.Source, c.Holds, strings.Join(values, "; ")))
		if len(c.Because) > 0 {
			parts = append(parts, "  "+strings.ReplaceAll(told(c.Because), "\n", "\n  "))
		}
	}
	return strings.Join(parts, "\n")
}

func TestExplainAllow(t *testing.T) {
	out, e := explained(t, payroll, `{"user":{"roles":["x","clerk"]},"action":{"name":"read"},"context":{"ip":"10.1.1.1"}}`)
	if out.Effect != rego.Allow || e.Effect != "ALLOW" || e.Rule != "allow" || e.Line != 5 || e.Nearest != nil {
		t.Fatalf("%v %+v", out, e)
	}
	want := `6 is_clerk true {is_clerk = true}
  16 some r in input.user.roles true {input.user.roles[1] = "clerk"}
  17 r == "clerk" true {r, input.user.roles[1] = "clerk"}
7 input.action.name == "read" true {input.action.name = "read"}`
	if got := told(e.Conditions); got != want {
		t.Errorf("conditions:\n%s\nwant:\n%s", got, want)
	}
	if e.Text == "" || e.Public != (&rego.Decision{Effect: rego.Allow}).CallerReason() || e.PolicyID != 7 || e.PolicyName != "Payroll" || e.PolicyVersion != 3 {
		t.Errorf("%+v", e)
	}
}

// What is missing is told by the conditions of the helper rule, all of them.
func TestExplainMissing(t *testing.T) {
	_, e := explained(t, payroll, `{"user":{"roles":["x"]},"action":{"name":"write"},"context":{"ip":"10.1.1.1"},"resource":{"owner":"o"}}`)
	if e.Effect != "DENY" || e.Rule != "allow" || e.Line != 3 || len(e.Conditions) != 0 {
		t.Fatalf("%+v", e)
	}
	if e.Nearest == nil || e.Nearest.Line != 10 {
		t.Fatalf("nearest: %+v", e.Nearest)
	}
	if got, want := told(e.Nearest.Missing), `11 input.user.id == input.resource.owner false {input.user.id is absent; input.resource.owner = "o"}`; got != want {
		t.Errorf("missing:\n%s\nwant:\n%s", got, want)
	}
	_, e = explained(t, payroll, `{"user":{"id":"o"},"action":{"name":"write"},"context":{"ip":"10.1.1.1"},"resource":{"owner":"o","status":"frozen"}}`)
	if got, want := told(e.Nearest.Missing), `20 input.resource.status == "frozen" true {input.resource.status = "frozen"}`; got != want {
		t.Errorf("missing under not:\n%s\nwant:\n%s", got, want)
	}
}

func TestExplainDeny(t *testing.T) {
	_, e := explained(t, payroll, `{"user":{"id":"o"},"amount":200,"context":{"ip":"8.8.8.8"},"resource":{"owner":"o"}}`)
	if e.Rule != "deny" || e.Line != 22 || len(e.Also) != 1 || e.Also[0].Line != 24 {
		t.Fatalf("%+v", e)
	}
	want := `22 not inside(input.context.ip) true {input.context.ip = "8.8.8.8"}
  26 startswith(ip, "10.") false {ip, input.context.ip = "8.8.8.8"}`
	if got := told(e.Conditions); got != want {
		t.Errorf("conditions:\n%s\nwant:\n%s", got, want)
	}
	if e.Nearest == nil || len(e.Nearest.Missing) != 0 {
		t.Errorf("nearest: %+v", e.Nearest)
	}
	if e.Public != "outside of the network; too much" {
		t.Errorf("public: %q", e.Public)
	}
	for _, part := range []string{`rule deny in line 22 holds`, `Rule deny in line 24 holds too`, `Without that, rule allow in line 10 would have allowed`} {
		if !strings.Contains(e.Text, part) {
			t.Errorf("%q is not in:\n%s", part, e.Text)
		}
	}
}

// The end user's text holds nothing of the control, its rules or its values.
func TestExplainPublic(t *testing.T) {
	_, e := explained(t, payroll, `{"user":{"roles":["secret-role"]},"context":{"ip":"10.1.1.1"}}`)
	if e.Public != (&rego.Decision{}).CallerReason() {
		t.Errorf("public: %q", e.Public)
	}
	_, e = explained(t, "package x\n\nallow if input.a == 1\n\nreason := \"Ask the payroll desk\"\n\ndeny if input.b", `{"b":true}`)
	if e.Public != "Ask the payroll desk" {
		t.Errorf("public: %q", e.Public)
	}
	out, e := explained(t, "package x\n\ndeny if to_number(input.a) > 1", `{"a":"secret"}`)
	if out.Err == nil || e.Public != (&rego.Decision{Err: rego.ErrLimit}).CallerReason() || e.Line != 3 {
		t.Errorf("%+v", e)
	}
}

// A secret that a condition saw is hidden in the texts too.
func TestExplainRedacted(t *testing.T) {
	_, e := explained(t, "package x\n\nallow if input.user.password == \"hunter3\"", `{"user":{"password":"hunter2"}}`)
	if !strings.Contains(e.Text, "hunter2") {
		t.Fatalf("the value is not in the text:\n%s", e.Text)
	}
	r := e.Redacted(func(path string, v value.Value) value.Value {
		if path == "input.user.password" {
			return value.String("[redacted]")
		}
		return v
	})
	if strings.Contains(r.Text, "hunter2") || !strings.Contains(r.Text, "[redacted]") || strings.Contains(told(r.Nearest.Missing), "hunter2") {
		t.Errorf("%s", r.Text)
	}
}

func TestTrace(t *testing.T) {
	c, issues := rego.Compile(rego.Meta{ID: 7, Name: "Payroll", Version: 3}, payroll)
	if issues != nil {
		t.Fatal(issues)
	}
	in := valuetest.Decode(t, `{"user":{"roles":["x"]},"action":{"name":"write"},"context":{"ip":"10.1.1.1"},"resource":{"owner":"o"}}`)
	out, steps, e := Trace(context.Background(), c, in, nil, rego.Limits{Now: explainNow})
	if out.Effect != rego.Deny || e.Nearest == nil {
		t.Fatalf("%+v", out)
	}
	var lines []string
	for i, s := range steps {
		if s.Number != i+1 {
			t.Errorf("step %d has the number %d", i+1, s.Number)
		}
		if s.Type == reason.StepCondition {
			n, _ := s.Details.Get("line").Int64()
			lines = append(lines, fmt.Sprintf("%d:%v", n, s.Result))
		}
		if strings.Contains(s.Description, "__local") {
			t.Errorf("a temporary of the compiler: %s", s.Description)
		}
	}
	// deny 22 (its helper 26), deny 24, allow 5 by its helper, allow 10.
	if got, want := strings.Join(lines, " "), "26:true 22:false 24:false 16:true 17:false 6:false 11:false"; got != want {
		t.Errorf("conditions %s, want %s", got, want)
	}
	if first, last := steps[0], steps[len(steps)-1]; first.Type != reason.StepMatched || last.Type != reason.StepFinal || last.Result || effectOf(last) != "DENY" {
		t.Errorf("%+v ... %+v", first, last)
	}
}

func effectOf(s reason.Step) string {
	text, _ := s.Details.Get("effect").Str()
	return text
}

// What a condition asks with another input is not looked into: it stands for itself.
func TestExplainWith(t *testing.T) {
	const source = `package x

default allow := false

allow if {
	input.user.role == "admin"
	ok with input.user.level as 3
	input.action.name == "read"
}

ok if {
	input.user.level == 3
	input.user.active
}

deny if input.blocked == true
`
	_, e := explained(t, source, `{"user":{"role":"admin"},"action":{"name":"read"}}`)
	if e.Partial || e.Rule != "allow" || e.Line != 3 || e.Nearest == nil {
		t.Fatalf("%+v", e)
	}
	if got, want := told(e.Nearest.Missing), `7 ok with input.user.level as 3 false {}`; got != want {
		t.Errorf("missing:\n%s\nwant:\n%s", got, want)
	}
	_, e = explained(t, source, `{"user":{"role":"admin","active":true},"action":{"name":"read"},"blocked":true}`)
	if e.Rule != "deny" || e.Line != 16 || told(e.Conditions) != "16 input.blocked == true true {input.blocked = true}" {
		t.Errorf("%+v", e)
	}
	_, e = explained(t, source, `{"user":{"role":"admin","active":true},"action":{"name":"read"}}`)
	if e.Rule != "allow" || e.Line != 5 || len(e.Conditions) != 3 {
		t.Errorf("%+v", e)
	}
}

// A control whose rules ask one another in every way there is ends an
// explanation at its bound, and the outcome stands.
func TestExplainBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("package x\n\nallow if f0(input.a)\n")
	for i := range 9 {
		for j := range 4 {
			fmt.Fprintf(&b, "\nf%d(x) if {\n\tf%d(x)\n\tnot f%d([x])\n\tf%d({x: %d})\n\tx == %d\n}\n", i, i+1, i+1, i+1, j, j)
		}
	}
	b.WriteString("\nf9(x) if x == input.b\n")
	out, e := explained(t, b.String(), `{"a":1,"b":2}`)
	if out.Effect != rego.NoMatch || !e.Partial {
		t.Errorf("%v, partial %v", out.Effect, e.Partial)
	}
}

// explainNow is the time of evaluations.
var explainNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
