package native

import (
	gobinary "encoding/binary"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/open-policy-agent/opa/v1/ast"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/shape"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// pairs are two rules each, and whether their modules share one code.
var pairs = []struct {
	name, a, b string
	one        bool
}{
	{"numbers", `r if input.a > 1`, `r if input.a > 20.5`, true},
	{"strings", `r := concat("-", [input.a, "x"])`, `r := concat("+", [input.a, "yy"])`, true},
	{"equations", `r if input.a == "x"`, `r if input.a == "y"`, true},
	{"lists of any length", `r if input.a in ["x", "y"]`, `r if input.a in ["z"]`, true},
	{"formats", `r := sprintf("%v!", [input.a])`, `r := sprintf("%v?", [input.a])`, true},
	{"values", `r := "x" if input.a`, `r := "y" if input.a`, true},
	{"defaults", `default r := 1`, `default r := 2`, true},
	{"elements", `r contains "x" if input.a`, `r contains "y" if input.a`, true},
	{"comprehensions", `r := {x | some x in input.l; x > 1}`, `r := {x | some x in input.l; x > 2}`, true},
	{"functions", "f(x) := concat(x, [\"a\", \"b\"])\nr := f(\"-\")", "f(x) := concat(x, [\"c\", \"d\"])\nr := f(\"+\")", true},
	{"every", `r if every x in input.l { x < 5 }`, `r if every x in input.l { x < 1 }`, true},
	{"else", `r := 1 if input.z else := 2`, `r := 3 if input.z else := 4`, true},

	{"booleans", `r := true if input.a`, `r := false if input.a`, false},
	{"null", `r := null if input.a`, `r := 1 if input.a`, false},
	{"kinds", `r if input.a == "1"`, `r if input.a == 1`, false},
	{"members of the input", `r := input.a`, `r := input.n`, false},
	{"keys of an object", `r := {"x": input.a}`, `r := {"y": input.a}`, false},
	{"patterns", `r if regex.match("^x", input.a)`, `r if regex.match("^y", input.a)`, false},
	{"networks", `r if net.cidr_contains("10.0.0.0/8", input.ip)`, `r if net.cidr_contains("11.0.0.0/8", input.ip)`, false},
	{"equal values", "r := 1 if input.a\nr := 1 if input.n", "r := 1 if input.a\nr := 2 if input.z", false},
	{"equal values in two forms", "r := 1 if input.a\nr := 1.0 if input.n", "r := 1 if input.a\nr := 2 if input.z", false},
	{"lists that are taken apart", `r := x if [x, 1] = [input.a, 1]`, `r := x if [x, 1, 2] = [input.a, 1, 2]`, false},
	{"lines", `r := to_number(input.a)`, "\nr := to_number(input.a)", false},
	{"negation", `r if not input.a == "x"`, `r if input.a == "x"`, false},
	{"names of rules", `r := 1`, `s := 1`, false},
	{"with", `r if input.a == "x" with input.a as "x"`, `r if input.a == "y" with input.a as "x"`, false},
	{"composites", `r if input.l == [1, 2]`, `r if input.l == [1, 2, 3]`, false},
}

// TestShapes: modules that differ only in constants share one code, others do not, and both answer
// as OPA does.
func TestShapes(t *testing.T) {
	input := valuetest.Decode(t, `{"a":"x","n":1,"l":[1,2],"ip":"11.1.2.3"}`)
	for _, c := range pairs {
		a, err := load("package one\n\n" + c.a + "\n")
		if err != nil || a.err != nil {
			t.Fatalf("%s: %v %v", c.name, err, a.err)
		}
		b, err := load("package other.name\n\n" + c.b + "\n")
		if err != nil || b.err != nil {
			t.Fatalf("%s: %v %v", c.name, err, b.err)
		}
		if got := a.prog.code == b.prog.code; got != c.one {
			t.Errorf("%s: one code: %v, want %v", c.name, got, c.one)
		}
		for _, s := range []*subject{a, b} {
			for _, name := range s.names {
				_, _ = s.agree(t, name, input, value.Object())
			}
		}
	}
}

// TestUnusedCodeIsFreed: a code that no program uses is not kept.
func TestUnusedCodeIsFreed(t *testing.T) {
	there := func(of func(c *code) bool) (key shape.Digest, ok bool) {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		for key, c := range shared.list {
			if of(c.Value()) {
				return key, true
			}
		}
		return key, false
	}
	load := func() shape.Digest {
		s, err := load("package gone\n\nr := concat(\"-\", [input.gone, \"x\"])\n")
		if err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		key, ok := there(func(c *code) bool { return c == s.prog.code })
		if !ok {
			t.Fatal("no shape")
		}
		return key
	}
	key := load()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for {
		runtime.GC()
		shared.mu.Lock()
		_, kept := shared.list[key]
		shared.mu.Unlock()
		if !kept {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the code of a program that is gone is kept")
		}
	}
}

// TestSiblingsShareStrings: programs of one shape keep their common strings once, and PerCode
// creates its value once.
func TestSiblingsShareStrings(t *testing.T) {
	load := func(team string) *Program {
		s, err := load("package p\n\nallow if input.role in {`analyst of the shared`, `" + team + "`}\n")
		if err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		return s.prog
	}
	a, b := load("team-one"), load("team-two")
	if a.code != b.code {
		t.Fatal("the two do not share their code")
	}
	texts := func(p *Program) map[string]*byte {
		out := map[string]*byte{}
		for _, c := range p.constants {
			c.Strings(func(s string) { out[s] = unsafe.StringData(s) })
		}
		return out
	}
	of := texts(b)
	if shared := of["analyst of the shared"]; shared == nil || shared != texts(a)["analyst of the shared"] {
		t.Error("a string of both is kept twice")
	}
	if of["team-two"] == nil {
		t.Errorf("the constants are %v", of)
	}
	made := 0
	create := func() any { made++; return made }
	if a.PerCode(create) != b.PerCode(create) || made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestSiblings generates modules and changes their constants, wherever they are: the second module
// answers as OPA does, whether or not it shares the code.
func TestSiblings(t *testing.T) {
	fulltest.Only(t)
	sameDraws(t)
	all, one := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := newMaker(drawsOf(gobinary.BigEndian.AppendUint64(nil, rapid.Uint64().Draw(t, "seed"))))
		_, s, _ := g.module()
		if s == nil {
			return
		}
		mod := changed(g.below, s.mod)
		b, err := loadModules(mod, map[string]*ast.Module{"control.rego": mod})
		if err != nil || b.err != nil {
			return // such as two constants that became one key
		}
		all++
		if b.prog.code == s.prog.code {
			one++
		}
		input := g.input()
		data := value.Object(value.Member{Key: "resources", Value: g.document(2)}, value.Member{Key: "pip", Value: g.input()})
		for _, name := range b.names {
			_, _ = b.agree(t, name, input, data)
		}
	})
	t.Logf("%d of %d modules share the code of another", one, all)
	if one == 0 {
		t.Error("no module shares")
	}
}

// changed returns mod with other strings and numbers, replaced consistently. Half of the time it
// keeps those in references.
func changed(below draws, mod *ast.Module) *ast.Module {
	to := map[string]ast.Value{}
	if below(2) == 0 { // keep those in references
		ast.WalkRefs(mod, func(r ast.Ref) bool {
			for _, part := range r {
				if ast.IsScalar(part.Value) {
					to[part.Value.String()] = part.Value
				}
			}
			return false
		})
	}
	swap := func(v ast.Value, list ...ast.Value) ast.Value {
		key := v.String()
		if to[key] == nil {
			list = append(list, v)
			to[key] = list[below(len(list))]
		}
		return to[key]
	}
	out, err := ast.Transform(ast.NewGenericTransformer(func(x any) (any, error) {
		switch v := x.(type) {
		case ast.String:
			return swap(v, ast.String("b"), ast.String("2"), ast.String("x yz"), ast.String("")), nil
		case ast.Number:
			return swap(v, ast.Number("2"), ast.Number("1.0"), ast.Number("7"), ast.Number("-3.5")), nil
		}
		return x, nil
	}), mod.Copy())
	if err != nil {
		panic(err) // a transformation that never fails
	}
	return out.(*ast.Module)
}
