package rego

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

func mustCompile(t testing.TB, m Meta, source string) *Control {
	t.Helper()
	c, issues := Compile(m, source)
	if issues != nil {
		t.Fatalf("%v\n%s", issues, source)
	}
	return c
}

// abac is a control of the usual kind: roles, attributes, a deny with reasons.
const abac = `package acme.documents

default allow := false

allow if {
	"editor" in input.user.roles
	input.action.name == "read"
	input.resource.data_classification != "restricted"
}

allow if {
	input.user.id == input.resource.attributes.owner
}

deny contains "outside office hours" if input.context.hour > 20

deny contains "suspended" if data.pip.hr.suspended[input.user.id]

reason := "the owner may" if input.user.id == input.resource.attributes.owner
`

// hostile are programs that ask for too much time or memory: each must end near the deadline and
// within its memory, on either evaluator.
var hostile = map[string]string{
	"reachable_paths":      `allow if { nodes := numbers.range(1, 11); g := {n: nodes | some n in nodes}; count(graph.reachable_paths(g, {1})) > 0 }`,
	"lsh":                  `allow if bits.lsh(1, 10000000) > 0`,
	"lsh of input":         `allow if bits.lsh(1, input.big) > 0`,
	"squaring":             `allow if { a := bits.lsh(3, 60000); b := a * a; c := b * b; d := c * c; e := d * d; e * e > 0 }`,
	"json.patch":           `allow if { l := numbers.range(1, 20000); p := [{"op": "add", "path": "/0", "value": 1} | some _ in l]; count(json.patch(l, p)) > 0 }`,
	"json.marshal":         `allow if { l := numbers.range(1, 90000); x := [l | some _ in numbers.range(1, 300)]; count(json.marshal(x)) > 0 }`,
	"doubling":             "s0 := \"xxxxxxxxxxxxxxxx\"\n" + doubling(30, `s%d := concat("", [s%d, s%[2]d])`) + "\nallow if count(s30) > 0",
	"array doubling":       "s0 := [1, 2, 3, 4]\n" + doubling(30, `s%d := array.concat(s%d, s%[2]d)`) + "\nallow if count(s30) > 0",
	"hex doubling":         "s0 := \"xxxxxxxxxxxxxxxx\"\n" + doubling(30, `s%d := hex.encode(s%d)`) + "\nallow if count(s30) > 0",
	"replace growth":       "s0 := \"xxxxxxxxxxxxxxxx\"\n" + doubling(10, `s%d := replace(s%d, "x", "xxxxxxxxxxxxxxxx")`) + "\nallow if count(s10) > 0",
	"sprintf width":        `allow if count(sprintf("%999999d%999999d%999999d%999999d%999999d%999999d%999999d%999999d%999999d%999999d", [1,1,1,1,1,1,1,1,1,1])) > 0`,
	"sprintf index":        "allow if { x := concat(\"\", [\"" + strings.Repeat("y", 1000) + "\" | some _ in numbers.range(1, 900)]); f := concat(\"\", [\"%[1]s\" | some _ in numbers.range(1, 9000)]); count(sprintf(f, [x])) > 0 }",
	"split":                `allow if { s := concat("", ["` + strings.Repeat("y", 1000) + `" | some _ in numbers.range(1, 900)]); count(split(s, "")) > 0 }`,
	"regex.find_n":         `allow if { s := concat("", ["` + strings.Repeat("y", 1000) + `" | some _ in numbers.range(1, 250)]); count(regex.find_n("a?", s, -1)) > 0 }`,
	"regex.match":          `allow if { s := concat("", ["` + strings.Repeat("y", 1000) + `" | some _ in numbers.range(1, 900)]); regex.match("(y{30}){30}z", s) }`,
	"regex.replace":        `allow if { s := concat("", ["` + strings.Repeat("y", 1000) + `" | some _ in numbers.range(1, 900)]); count(regex.replace(s, "y", "` + strings.Repeat("$0", 100) + `")) > 0 }`,
	"cidr_expand":          `allow if count(net.cidr_expand("10.0.0.0/8")) > 0`,
	"range":                `allow if count(numbers.range(1, 100000000)) > 0`,
	"big range":            `allow if count(numbers.range(1, 9223372036854775807)) > 0`,
	"range_step":           `allow if count(numbers.range_step(1, 9007199254740993, 1)) > 0`,
	"nested loops":         `allow if { some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); some c in numbers.range(1, 5000); a + b + c == 0 }`,
	"comprehension":        `allow if count([a | some a in numbers.range(1, 5000); some b in numbers.range(1, 5000); b > 0]) > 0`,
	"walk":                 `allow if { x := [numbers.range(1, 2000) | some _ in numbers.range(1, 2000)]; count([p | walk(x, [p, _])]) > 0 }`,
	"result of many parts": "x0 := [1,1,1,1,1,1,1,1]\n" + doubling(8, `x%d := [x%d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d, x%[2]d]`) + "\nmask := x8",
	"huge exponent":        `allow if floor(to_number("1e400000000")) > 1`,
	"huge exponent sum":    `allow if to_number("1e400000000") + 1 > 1`,
	"huge exponent bits":   `allow if bits.or(to_number("1e99999999"), 1) > 1`,
	"product":              `allow if product([n | some i in numbers.range(1, 90000); n := 99999999999 + i]) > 0`,
	"object.union_n":       `allow if { o := {i: i | some i in numbers.range(1, 5000)}; count(object.union_n([o | some _ in numbers.range(1, 5000)])) > 0 }`,
	"globs":                `allow if regex.globs_match("` + strings.Repeat("[a-z]*", 40) + `", "` + strings.Repeat("[a-z]*", 40) + `")`,
	"subset":               `allow if { a := numbers.range(1, 50000); object.subset(a, array.reverse(a)) }`,
	"string building":      `allow if count([s | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); s := sprintf("%d-%d", [a, b])]) > 0`,
	"set of sets":          `allow if count({{a, b} | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000)}) > 0`,
}

func doubling(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i+1, i)
	}
	return b.String()
}

func TestHostileControls(t *testing.T) {
	fulltest.Only(t)
	const deadline = 250 * time.Millisecond
	in := valuetest.Decode(t, `{"big": 100000000}`)
	for name, rules := range hostile {
		c, issues := Compile(Meta{ID: 1, Name: name}, "package hostile\n"+rules)
		if issues != nil {
			t.Errorf("%s: %v", name, issues)
			continue
		}
		t.Run(name, func(t *testing.T) {
			var out Outcome
			var took time.Duration
			var made int64
			for range 3 { // a machine that others use too may keep one waiting, not three
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				out = c.Eval(context.Background(), in, nil, Limits{Deadline: deadline, Clock: time.Now})
				took = time.Since(start)
				runtime.ReadMemStats(&after)
				if made = int64(after.TotalAlloc-before.TotalAlloc) >> 20; took <= deadline+250*time.Millisecond {
					break
				}
			}
			if took > deadline+250*time.Millisecond || made > 400 {
				t.Errorf("took %v and made %d MiB", took, made)
			}
			if out.Err != nil && (!errors.Is(out.Err, ErrLimit) || out.Reason != ReasonLimit || out.Effect != Deny) {
				t.Logf("%v %s", out.Effect, out.Reason)
			}
			t.Logf("%v, %d MiB: %v %.80s", took.Round(time.Millisecond), made, out.Effect, out.Reason)
		})
	}
}

func TestEvalIsCancelled(t *testing.T) {
	c := mustCompile(t, Meta{ID: 1}, "package a\n"+hostile["nested loops"])
	for name, clock := range map[string]func() time.Time{"clock": time.Now, "timer": nil} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		out := c.Eval(ctx, value.Object(), nil, Limits{Deadline: time.Minute, Clock: clock})
		if out.Effect != Deny || out.Reason != ReasonLimit || !errors.Is(out.Err, ErrLimit) {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestRefs(t *testing.T) {
	c := mustCompile(t, Meta{ID: 1}, `package a
import input.user as u
import data.pip.hr
allow if { x := input.resource; x.attributes.level > hr.levels[u.id]; time.now_ns() > 0 }
deny if input.mcp.tool in data.resources["7"].tools
reason := r if r := f(input.action.name) with input.context.ip as rand.intn("x", 3)
f(n) := [n, input.llm[input.action.kind]]
mask contains input.user.roles[_]
allow if input.user.roles[0] == "x"
`)
	got := fmt.Sprintf("%+v", c.Refs())
	want := "{Input:[[action kind] [action name] [context ip] [llm] [mcp tool] [resource] [user id] [user roles]] Data:[[pip hr levels] [resources 7 tools]] Clock:true NonDeterministic:true Request:false MCP:true LLM:true Usage:false}"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c := mustCompile(t, Meta{ID: 1}, "package a\nallow if { some k; input[k] == 1 }"); len(c.Refs().Input) != 1 || len(c.Refs().Input[0]) != 0 || !c.Refs().Usage {
		t.Errorf("%+v", c.Refs())
	}
}

// testNow is the time of evaluations.
var testNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// What a control reads is its own, whichever control was compiled before it.
func TestRefsAreTheControlsOwn(t *testing.T) {
	for i, c := range []struct{ source, want string }{
		{`allow if input.user.level >= 3`, "[[user level]] []"},
		{`allow if input.user.level >= 4`, "[[user level]] []"},
		{`allow if input.user.grade >= 3`, "[[user grade]] []"},
		{`allow if input.user["level"] >= 5`, "[[user level]] []"},
		{`allow if input.user.roles[_] == "x"`, "[[user roles]] []"},
		{`allow if input.user.level >= data.pip.least`, "[[user level]] [[pip least]]"},
		{`allow if input.user.level >= data.pip.most`, "[[user level]] [[pip most]]"},
		{`allow if input.user.level >= data.resources["7"].level`, "[[user level]] [[resources 7 level]]"},
		{`allow if input.user.level >= data.resources["8"].level`, "[[user level]] [[resources 8 level]]"},
	} {
		m := Meta{ID: int64(i + 1), Name: "c", Version: 1}
		ctl, issues := Compile(m, fmt.Sprintf("package refs%d\n\n%s\n", i, c.source))
		if issues != nil {
			t.Fatal(c.source, issues)
		}
		if got := fmt.Sprint(ctl.Refs().Input, ctl.Refs().Data); got != c.want {
			t.Errorf("%s reads %s, want %s", c.source, got, c.want)
		}
	}
}
