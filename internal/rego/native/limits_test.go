package native

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// hostile programs either end at a limit or are cheap. Each is the rule allow and what it needs,
// over a list of 2,000 numbers and a string of 100 kB.
var hostile = map[string]string{
	"nested loops":        `allow if { some a in input.l; some b in input.l; some c in input.l; some d in input.l; a + b + c + d == -1 }`,
	"loops in not":        `allow if { not none }` + "\n" + `none if { some a in input.l; some b in input.l; some c in input.l; a + b + c < 0 }`,
	"every":               `allow if { every a in input.l { every b in input.l { every c in input.l { a + b + c >= 0 } } } }`,
	"comprehension":       `allow if { count([1 | some a in input.l; some b in input.l; some c in input.l]) == 1 }`,
	"set comprehension":   `allow if { count({[a, b, c] | some a in input.l; some b in input.l; some c in input.l}) == 1 }`,
	"object":              `allow if { count({[a, b]: b | some a in input.l; some b in input.l; some _ in input.l}) == 1 }`,
	"partial set":         "p contains [a, b] if { some a in input.l; some b in input.l }\nallow if { some x in p; some y in p; x == [y[1], -1] }",
	"result of parts":     blowUp("b", eight, 8) + "allow := b8",
	"equal parts":         blowUp("b", eight, 12) + blowUp("c", eight, 12) + "allow if b12 == c12",
	"object of parts":     blowUp("b", "{i: % | some i in numbers.range(1, 6)}", 12) + "allow if count(json.marshal(b12)) > 1",
	"small parts, often":  blowUp("b", eight, 5) + blowUp("c", eight, 5) + "allow if { some _ in input.l; some _ in input.l; b5 != c5 }",
	"marshal often":       `allow if { some _ in input.l; some _ in input.l; json.marshal(input.l) == "" }`,
	"concat doubling":     doubling(`concat("", [%, %])`),
	"sprintf doubling":    doubling(`sprintf("%s%s", [%, %])`),
	"replace":             `allow if { count(replace(input.s, "", input.s)) > 1 }`,
	"regex.replace":       `allow if { count(regex.replace(input.s, "", input.s)) > 1 }`,
	"replace_n":           `allow if { count(strings.replace_n({"a": input.s}, input.s)) > 1 }`,
	"sprintf width":       `allow if { some _ in input.l; some _ in input.l; sprintf("%999999d%999999d%999999d", [1, 2, 3]) == "" }`,
	"sprintf star":        `allow if { sprintf("%*d", [900000, 3]) == "" }`,
	"split":               `allow if { some _ in input.l; some _ in input.l; count(split(input.s, "")) == 1 }`,
	"split bridged":       `allow if { some _ in input.l; some _ in input.l; count(regex.split("", input.s)) == 1 }`,
	"numbers.range":       `allow if { count(numbers.range(1, 1000000000)) == 1 }`,
	"numbers.range often": `allow if { some _ in input.l; some _ in input.l; count(numbers.range(1, 10000)) == 1 }`,
	"numbers.range huge":  `allow if { count(numbers.range(1, 100000000000000000000000000000000000)) == 1 }`,
	"squaring":            "n0 := 12345678901234567890\n" + chain("n", "n% * n%", 30) + "allow if n30 == 1",
	"product":             `allow if { product([y | some x in input.l; y := x * 1000000]) == 1 }`,
	"sum of strings":      `allow if { some _ in input.l; some _ in input.l; sum(input.l) == 1 }`,
	"walk":                `allow if { walk(input, [_, x]); walk(input, [_, y]); walk(input, [_, z]); [x, y] == [z, 3] }`,
	"walk paths":          "w := " + strings.Repeat("[", 60) + "input.l" + strings.Repeat("]", 60) + "\nallow if { walk(w, [p, _]); walk(w, [q, _]); p == [q] }",
	"regex":               `allow if { some _ in input.l; some _ in input.l; regex.match("(a|aa)+$", input.s) }`,
	"regex bridged":       `allow if { some x in input.l; some y in input.l; regex.match(sprintf("(a{%d}){%d}", [x, y]), input.s) }`,
	"glob":                `allow if { some _ in input.l; some _ in input.l; glob.match("*a*b*c*d*", [], input.s) }`,
	"lower":               `allow if { some _ in input.l; some _ in input.l; lower(input.s) == "" }`,
	"calls of calls":      "f0(x) := x\n" + callChain(40) + "allow if f40(1) == 1",
	"union":               `allow if { some a in input.l; some b in input.l; s := {x | some x in input.l} | {a}; s == {b} }`,
	"sort":                `allow if { some a in input.l; some b in input.l; sort(input.l) == [a, b] }`,
	"cidr_merge":          `allow if { count(net.cidr_merge([c | some a in input.l; some b in input.l; x := a % 256; y := b % 256; c := sprintf("10.%d.%d.0/24", [x, y])])) == 1 }`,
}

// eight returns an array of one element eight times, in a form that OPA's type checker does not
// expand: for [x, x, ...] the checker itself would never end.
const eight = "[% | some _ in numbers.range(1, 8)]"

// blowUp returns numbered rules, each made of several copies of the one before.
func blowUp(name, shape string, n int) string {
	return name + "0 := [1, 2, 3]\n" + chain(name, strings.ReplaceAll(shape, "%", name+"%"), n)
}

func chain(name, body string, n int) string {
	var out strings.Builder
	for i := 1; i <= n; i++ {
		out.WriteString(name + text10(i) + " := " + strings.ReplaceAll(body, "%", text10(i-1)) + "\n")
	}
	return out.String()
}

func text10(i int) string { return string(value.Int(int64(i)).AppendJSON(nil)) }

func doubling(call string) string {
	call = strings.ReplaceAll(strings.ReplaceAll(call, "%s", "#"), "%", "d%")
	return "d0 := input.s\n" + strings.ReplaceAll(chain("d", call, 30), "#", "%s") + `allow if d30 == ""`
}

func callChain(n int) string {
	var out strings.Builder
	for i := 1; i <= n; i++ {
		f := "f" + text10(i-1)
		out.WriteString("f" + text10(i) + "(x) := y if { a := " + f + "(x); x1 := x + 1; b := " + f + "(x1); y := a + b }\n")
	}
	return out.String()
}

func TestHostileProgramsEnd(t *testing.T) {
	fulltest.Only(t)
	list := make([]value.Value, 2000)
	for i := range list {
		list[i] = value.Int(int64(i))
	}
	input := value.Object(value.Member{Key: "l", Value: value.Array(list...)}, value.Member{Key: "s", Value: value.String(strings.Repeat("a", 100_000))})
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			s, err := load("package hostile\n\n" + src + "\n")
			errtest.Must(t, err)
			if s.err != nil {
				t.Fatal(s.err)
			}
			for _, deadline := range []time.Duration{0, 50 * time.Millisecond} {
				env := &eval.Env{Now: testNow}
				if deadline > 0 {
					env.Clock, env.Deadline = time.Now, time.Now().Add(deadline)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				start := time.Now()
				r, err := s.prog.Eval(env, input, tree{})
				took := time.Since(start)
				runtime.ReadMemStats(&after)
				made := (after.TotalAlloc - before.TotalAlloc) >> 20
				if err != nil && !errors.Is(err, eval.ErrLimit) {
					t.Errorf("error %v", err)
				}
				t.Logf("deadline %v: took %v, made %d MiB, %v %v", deadline, took, made, err, r.Allow.Size())
				// A generous bound, because the machine may be busy. It catches programs that run
				// away.
				if took > 15*time.Second+deadline || made > 512 {
					t.Errorf("took %v and made %d MiB", took, made)
				}
			}
		})
	}
}
