package native

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// controls are typical controls. Each must compile, and agree with topdown on all inputs below.
var controls = map[string]string{
	"roles": `
default allow := false
allow if input.user.role == "admin"
allow if { input.user.role == "editor"; input.action in {"read", "write"} }
deny contains "suspended" if input.user.suspended
deny contains msg if { input.user.failures > 3; msg := sprintf("%d failures of %s", [input.user.failures, input.user.id]) }
reason := concat("; ", [m | some m in deny])`,
	"roles from data": `
allow if {
	some grant in data.pip.hr.grants[input.user.id]
	grant.action == input.action
	startswith(input.resource.path, grant.prefix)
}`,
	"ownership": `
allow if input.user.id == input.resource.owner
allow if input.user.id in input.resource.shared_with
allow if { some i; input.resource.acl[i].user == input.user.id; input.resource.acl[i].actions[_] == input.action }`,
	"by id": `
allow if data.resources[input.resource.id].department == input.user.department
sensitive if data.resources[input.resource.id].sensitivity >= 3
deny if { sensitive; not input.user.mfa }
names := {r.name | some r in data.resources}
first := [id | some id, r in data.resources; r.sensitivity == 1]`,
	"hours": `
allow if { [h, _, _] := time.clock(time.now_ns()); h >= 8; h < 18; not weekend }
weekend if time.weekday(time.now_ns()) in {"Saturday", "Sunday"}
zone := time.clock([time.now_ns(), "Europe/Berlin"])
fresh if time.now_ns() - time.parse_rfc3339_ns(input.context.time) < time.parse_duration_ns("24h")
later := time.add_date(time.now_ns(), 0, 1, 0)
day := time.date(time.now_ns())`,
	"networks": `
allow if net.cidr_contains("10.0.0.0/8", input.context.ip)
allow if { some c in data.pip.nets; net.cidr_contains(c, input.context.ip) }
matches := net.cidr_contains_matches(data.pip.nets, [input.context.ip])
deny if not valid
valid if net.cidr_is_valid(concat("/", [input.context.ip, "32"]))`,
	"masks as a set": `
mask contains "user.email" if input.user.role != "admin"
mask contains concat(".", ["user", k]) if { some k, _ in input.user; startswith(k, "p") }
allow := true`,
	"masks as an object": `
mask["user.email"] := "hash" if input.user.role == "editor"
mask["user.email"] := "redact" if input.user.role == "guest"
mask[path] := "last4" if { some f in ["phone", "plastic"]; input.user[f]; path := sprintf("user.%s", [f]) }
allow if true`,
	"else": `
level := "high" if input.user.clearance > 3
else := "middle" if input.user.clearance > 1
else := "low" if input.user.clearance
else := "none"
allow if level in {"high", "middle"}
reason := $"level {level} of {input.user.id} and {input.user.nothing}"`,
	"every and not": `
allow if { count(input.resource.tags) > 0; every t in input.resource.tags { t in input.user.tags } }
deny if { some t in input.resource.tags; not t in input.user.tags; not exempt(t) }
exempt("public")
exempt(t) if startswith(t, "open-")
none if { every k, v in input.user { k != "evil"; v != "evil" } }`,
	"functions": `
rank(role) := 3 if role == "admin"
rank(role) := 2 if role == "editor"
default rank(_) := 0
within(_, {"max": m}, n) if n <= m
pair([a, b]) := {"a": a, "b": b}
allow if rank(input.user.role) >= 2
allow if within("x", {"max": 5}, input.user.failures)
made := pair(input.context.pair)
best := max([rank(r) | some r in input.user.roles])
fact(n) := 1 if n <= 0
odd(n) if n % 2 == 1
odds := [n | some n in numbers.range(1, 9); odd(n)]`,
	"strings": `
allow if regex.match("^[a-z0-9._]+@corp\\.example$", input.user.email)
allow if glob.match("*.corp.example", ["."], split(input.user.email, "@")[1])
parts := split(input.resource.path, "/")
ext := substring(input.resource.path, indexof(input.resource.path, "."), -1)
up := upper(trim_space(input.user.id))
clean := replace(lower(input.user.id), "-", "_")
n := to_number(input.context.n) + 1
f := format_int(input.user.failures, 2)
g := [format_int(n, b) | some b in [2, 8, 10, 16]; some n in [0, -255, 255, 4711, 2147483647, 2147483648, 1.5, -1.5]]`,
	"documents": `
merged := object.union(input.user, {"extra": [1, 2, {"x": null}]})
kept := object.filter(input.user, ["id", "role"])
less := object.remove(input.user, ["email"])
found := object.get(input, ["resource", "acl", 0, "user"], "none")
deep := [p | walk(input.resource, [p, v]); v == "read"]
sets := {1, 2, 3} & {x | some x in input.context.pair} | {9}
totals := {d: n | some d in {r.department | some r in data.resources}; n := count([1 | some r in data.resources; r.department == d])}
parsed := json.unmarshal(json.marshal(input.context))
hash := crypto.sha256(input.user.id)
big := 12345678901234567890 * 10
part := 10 / 4
both := z if { [x, y] := [part * 2, input.user.failures]; [z, 3] = [[x, y], y] }`,
	"conflicts": `
allow := true if input.user.role == "admin"
allow := false if input.user.suspended
f(x) := 1 if x > 1
f(x) := 2 if x > 2
v := f(input.user.failures)
o[k] := v if { some k, v in {"a": 1}; true }
o.a := input.user.failures`,
	"undefined": `
allow if { not input.nothing; not data.resources.nothing; input.user.id != "" }
a := input.user.nothing
b := [x | x := input.nothing[_]]
c := count(input.nothing)
d if not false
e := false
g if e
h if not e
i := to_number("x")
j if input.user["id"] = input.user.id
k := 1 / 0
l := null
m if l`,
}

var controlInputs = []string{
	`{}`,
	`{"user":{"id":"u-1","role":"admin","email":"a.b@corp.example","department":"finance","clearance":5,"failures":0,"tags":["x","y"],"roles":["admin","editor"],"mfa":true,"phone":"123"},"action":"read","resource":{"id":"1","owner":"u-1","path":"/a/b.txt","tags":["x"]},"context":{"ip":"10.1.2.3","time":"2026-03-04T09:00:00Z","pair":[1,2],"n":"41"}}`,
	`{"user":{"id":"u-2","role":"editor","email":"x@sub.corp.example","clearance":2,"failures":4,"suspended":true,"tags":[],"roles":[],"plastic":"4111"},"action":"write","resource":{"id":1,"shared_with":["u-2"],"path":"/a","tags":["x","open-1"],"acl":[{"user":"u-2","actions":["read","write"]}]},"context":{"ip":"192.168.1.1","pair":[3,"a"],"n":"x"}}`,
	`{"user":{"id":" U-3 ","role":"guest","clearance":0,"failures":3,"suspended":false,"tags":["public"],"roles":["none"],"p":1},"action":"read","resource":{"id":"nope","tags":["public"],"acl":{"x":{"user":" U-3 ","actions":{"a":"read"}}}},"context":{"ip":"fe80::1","time":"bad","pair":{"a":1}}}`,
	`{"user":{"id":7,"role":["admin"],"clearance":"5","failures":2.0,"suspended":null,"tags":{"x":1},"evil":"evil"},"action":["read"],"resource":{"id":2.0,"tags":"x"},"context":{"ip":10,"pair":[]}}`,
	`[1,2]`,
}

const controlData = `{"resources":{"1":{"name":"one","department":"finance","sensitivity":3},"2":{"name":"two","department":"sales","sensitivity":1},"3":{"name":"three","department":"sales","sensitivity":1}},
"pip":{"hr":{"grants":{"u-1":[{"action":"read","prefix":"/a"}],"u-2":[{"action":"write","prefix":"/b"}]}},"nets":["192.168.0.0/16","10.1.0.0/16","fe80::/10"]}}`

func TestControls(t *testing.T) {
	for name, src := range controls {
		t.Run(name, func(t *testing.T) {
			s, err := load("package control\n" + src + "\n")
			errtest.Must(t, err)
			if s.err != nil {
				t.Fatal(s.err)
			}
			for _, in := range controlInputs {
				for _, rule := range s.names {
					if _, err := s.agree(t, rule, valuetest.Decode(t, in), valuetest.Decode(t, controlData)); errors.Is(err, eval.ErrLimit) {
						t.Logf("%s left to topdown for %s", rule, in)
					}
				}
			}
		})
	}
}

func TestEval(t *testing.T) {
	s, err := load("package control\n" + controls["roles"] + "\nmask := 3")
	if err != nil || s.err != nil {
		t.Fatal(err, s.err)
	}
	in := valuetest.Decode(t, controlInputs[2])
	r, err := s.prog.Eval(&eval.Env{Now: testNow}, in, nil)
	errtest.Must(t, err)
	if !r.Allow.True() || r.Deny.Len() != 2 || !value.Equal(r.Mask, value.Int(3)) {
		t.Errorf("got %+v", r)
	}
	if text, _ := r.Reason.Str(); text != "4 failures of u-2; suspended" {
		t.Errorf("reason %q", text)
	}
	if r, err = s.prog.Eval(&eval.Env{Now: testNow, SkipReason: true}, in, nil); err != nil || r.Reason.Defined() {
		t.Errorf("a reason that no one asked for: %+v, %v", r, err)
	}
	var names []string
	for _, e := range s.prog.entries {
		names = append(names, e.name)
	}
	if got := strings.Join(names, " "); got != "allow deny mask reason" {
		t.Errorf("rules %s", got)
	}
}

// TestTimeIsFromEnv: the only clock is that of Env.
func TestTimeIsFromEnv(t *testing.T) {
	s, err := load("package control\nallow := time.now_ns()\nreason := time.format(time.now_ns())\nmask := time.clock([time.now_ns(), \"UTC\"])\n")
	if err != nil || s.err != nil {
		t.Fatal(err, s.err)
	}
	for _, now := range []time.Time{testNow, testNow.Add(time.Hour)} {
		r, err := s.prog.Eval(&eval.Env{Now: now}, value.Value{}, nil)
		if err != nil || !value.Equal(r.Allow, value.Int(now.UnixNano())) || !value.Equal(r.Mask.Index(0), value.Int(int64(now.Hour()))) {
			t.Errorf("at %v: %+v, %v", now, r, err)
		}
	}
}

func TestConflictIsAnError(t *testing.T) {
	s, err := load("package control\nallow := true if input.a\nallow := false if input.b\n")
	if err != nil || s.err != nil {
		t.Fatal(err, s.err)
	}
	_, err = s.prog.Eval(&eval.Env{Now: testNow}, valuetest.Decode(t, `{"a":1,"b":1}`), nil)
	if e, ok := errors.AsType[*eval.Error](err); !ok || e.Code != "eval_conflict_error" || e.Line != 3 {
		t.Errorf("got %v", err)
	}
	// A machine must be clean after an error.
	if r, err := s.prog.Eval(&eval.Env{Now: testNow}, valuetest.Decode(t, `{"b":1}`), nil); err != nil || !r.Allow.False() {
		t.Errorf("after an error: %+v, %v", r, err)
	}
}

// TestUnsupportedIsNamed: the error names what cannot be compiled, and its line.
func TestUnsupportedIsNamed(t *testing.T) {
	for src, what := range map[string]string{
		`allow if http.send({"method": "get", "url": "http://x"})`:              "http.send",
		`allow if data[input.x].y`:                                              "rule",
		`allow if input.x < 1e2000`:                                             "range",
		`allow if input.x > 1e-400`:                                             "range",
		`allow if regex.match("` + strings.Repeat("a{900}", 25) + `", input.x)`: "regular expression",
	} {
		s, err := load("package control\n\n" + src + "\n")
		errtest.Must(t, err)
		if u, ok := errors.AsType[*ErrUnsupported](s.err); !ok || !strings.Contains(u.What, what) || u.Location == nil || u.Location.Row != 3 || u.Location.Col == 0 {
			t.Errorf("%s: %+v", src, s.err)
		}
	}
}

func TestDone(t *testing.T) {
	s, err := load("package control\nallow if { some a in numbers.range(1, 9999); some b in numbers.range(1, 9999); a + b == 0 }\n")
	if err != nil || s.err != nil {
		t.Fatal(err, s.err)
	}
	done := make(chan struct{})
	close(done)
	if _, err := s.prog.Eval(&eval.Env{Now: testNow, Done: done}, value.Value{}, nil); !errors.Is(err, eval.ErrLimit) {
		t.Errorf("got %v", err)
	}
	if _, err := s.prog.Eval(&eval.Env{Now: testNow, Steps: 1000}, value.Value{}, nil); !errors.Is(err, eval.ErrLimit) {
		t.Errorf("steps: got %v", err)
	}
}

// TestConcurrentUse: concurrent requests share programs, values and their lazily built indices.
func TestConcurrentUse(t *testing.T) {
	s, in, data := benchSubject(t)
	sales := in.With("resource", in.Get("resource").With("id", value.String("r-5532")))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				x, want := in, true
				if i%2 == 1 {
					x, want = sales, false
				}
				r, err := s.prog.Eval(&eval.Env{Now: testNow}, x, tree{data})
				if err != nil || r.Allow.True() != want {
					t.Errorf("got %+v, %v", r, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
