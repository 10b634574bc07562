package native

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maker writes random modules. It keeps to what parses and mostly compiles;
// what OPA's compiler refuses is passed over.
type maker struct {
	t     *rapid.T
	vars  []string // bound here
	rules []string // terms that refer to finished rules
	fns   []string // finished functions, by name
	arity map[string]int
	n     int
}

func (g *maker) pick(from ...string) string { return rapid.SampledFrom(from).Draw(g.t, "pick") }

func (g *maker) below(n int) int { return rapid.IntRange(0, n-1).Draw(g.t, "n") }

func (g *maker) fresh() string {
	g.n++
	return fmt.Sprintf("v%d", g.n)
}

func (g *maker) scalar() string {
	return g.pick("0", "1", "2", "3", "1.0", "2.5", "-1", `"a"`, `"b"`, `"1"`, `"x y"`, `""`, "true", "false", "null")
}

func (g *maker) key() string { return g.pick("a", "b", "c", "l", "o", "n", "s", "t") }

// ref is a reference without unbound variables, or with a wildcard.
func (g *maker) ref() string {
	var base string
	switch g.below(8) {
	case 0, 1, 2:
		base = "input." + g.key()
	case 3:
		base = "data.resources"
	case 4:
		base = "data.pip." + g.key()
	case 5, 6:
		if len(g.rules) > 0 {
			base = g.pick(g.rules...)
			break
		}
		fallthrough
	default:
		if len(g.vars) == 0 {
			return "input"
		}
		base = g.pick(g.vars...)
	}
	for range g.below(3) {
		switch g.below(6) {
		case 0, 1:
			base += "." + g.key()
		case 2:
			base += "[" + g.scalar() + "]"
		case 3:
			base += "[_]"
		case 4:
			if len(g.vars) > 0 {
				base += "[" + g.pick(g.vars...) + "]"
			}
		case 5:
			base += "[" + g.ref() + "]"
		}
	}
	return base
}

func (g *maker) term(depth int) string {
	top := 5
	if depth > 0 {
		top = 14
	}
	switch g.below(top) {
	case 0, 1:
		if g.below(5) == 0 {
			return g.scalar()
		}
		return g.ref()
	case 2, 3:
		if len(g.vars) > 0 {
			return g.pick(g.vars...)
		}
		return g.ref()
	case 4:
		if g.below(3) > 0 {
			return g.ref()
		}
		return g.pick(`{"a", "b", 1}`, `["a", 1, 2.5]`, `{"a": 1, "b": [1, 2]}`, "[]", "{}", "set()", `{1, 2, 3}`, `["x y", "a"]`)
	case 5:
		return "[" + g.term(depth-1) + ", " + g.term(depth-1) + "]"
	case 6:
		return `{"a": ` + g.term(depth-1) + `, "k": ` + g.term(depth-1) + "}"
	case 7:
		return "{" + g.term(depth-1) + ", " + g.term(depth-1) + "}"
	case 8, 9:
		return g.comprehension(depth - 1)
	case 10:
		return fmt.Sprintf("(%s %s %s)", g.term(depth-1), g.pick("+", "-", "*", "/", "%", "|", "&", "==", "<", "in"), g.term(depth-1))
	case 11, 12:
		return g.call(depth - 1)
	}
	if len(g.fns) == 0 {
		return g.ref()
	}
	f := g.pick(g.fns...)
	args := make([]string, g.arity[f])
	for i := range args {
		args[i] = g.term(depth - 1)
	}
	return f + "(" + strings.Join(args, ", ") + ")"
}

func (g *maker) call(depth int) string {
	t := func() string { return g.term(depth) }
	name := g.pick("count", "sum", "max", "min", "abs", "round", "to_number", "lower", "upper", "trim_space", "is_string", "is_number", "is_set", "is_object",
		"type_name", "object.keys", "array.reverse", "contains", "startswith", "endswith", "split", "concat", "array.concat", "trim", "trim_prefix", "object.get", "sprintf",
		"substring", "replace", "format_int", "union", "intersection", "sort", "product", "indexof", "json.marshal", "net.cidr_contains", "regex.match", "glob.match", "object.union",
		"time.clock", "time.weekday", "time.parse_rfc3339_ns", "numbers.range", "array.slice", "object.remove", "ceil", "floor")
	switch name {
	case "contains", "startswith", "endswith", "split", "concat", "array.concat", "trim", "trim_prefix", "format_int", "indexof", "object.union", "numbers.range", "object.remove":
		return fmt.Sprintf("%s(%s, %s)", name, t(), t())
	case "net.cidr_contains":
		return fmt.Sprintf("%s(%s, %s)", name, g.pick(`"10.0.0.0/8"`, `"::/0"`, `"bad"`, t()), g.pick(`"10.1.2.3"`, `"::ffff:10.1.2.3"`, `"10.0.0.0/24"`, `"fe80::1"`, t()))
	case "regex.match":
		return fmt.Sprintf("%s(%s, %s)", name, g.pick(`"^a.*$"`, `"[0-9]+"`, `"("`, t()), t())
	case "glob.match":
		return fmt.Sprintf("%s(%s, %s, %s)", name, g.pick(`"*"`, `"a*"`, `"*.b"`, t()), g.pick("[]", `["."]`, "null"), t())
	case "object.get", "substring", "replace", "array.slice":
		return fmt.Sprintf("%s(%s, %s, %s)", name, t(), t(), t())
	case "sprintf":
		return fmt.Sprintf("sprintf(%s, [%s, %s])", g.pick(`"%v %v"`, `"%d-%s"`, `"%5d|%s"`, `"%s"`, `"%d"`), t(), t())
	}
	return name + "(" + t() + ")"
}

// inner runs f and forgets the variables that it bound.
func (g *maker) inner(f func() string) string {
	vars := slices.Clone(g.vars)
	out := f()
	g.vars = vars
	return out
}

func (g *maker) comprehension(depth int) string {
	return g.inner(func() string {
		body := g.body(depth, 1+g.below(2))
		switch g.below(3) {
		case 0:
			return "[" + g.term(depth) + " | " + body + "]"
		case 1:
			return "{" + g.term(depth) + " | " + body + "}"
		}
		return "{" + g.term(0) + ": " + g.term(depth) + " | " + body + "}"
	})
}

func (g *maker) body(depth, n int) string {
	var out []string
	had := len(g.vars)
	for range n {
		out = append(out, g.expr(depth))
	}
	if len(g.vars) > had { // a variable that is declared has to be used
		out = append(out, "["+strings.Join(g.vars[had:], ", ")+"] != 0")
	}
	return strings.Join(out, "; ")
}

func (g *maker) expr(depth int) string {
	switch g.below(13) {
	case 0, 1:
		return fmt.Sprintf("%s %s %s", g.term(depth), g.pick("==", "!=", "<", "<=", ">", ">=", "="), g.term(depth))
	case 2:
		return g.ref()
	case 3, 4:
		t := g.term(depth)
		v := g.fresh()
		g.vars = append(g.vars, v)
		return v + " := " + t
	case 5:
		t := g.term(depth)
		v := g.fresh()
		g.vars = append(g.vars, v)
		return "some " + v + " in " + t
	case 6:
		t := g.term(depth)
		k, v := g.fresh(), g.fresh()
		g.vars = append(g.vars, k, v)
		return fmt.Sprintf("some %s, %s in %s", k, v, t)
	case 7:
		return g.term(depth) + " in " + g.term(depth)
	case 8:
		return g.inner(func() string { return "not " + g.term(depth) + g.pick("", " == "+g.scalar()) })
	case 9:
		return g.inner(func() string {
			t := g.term(depth)
			k, v := g.fresh(), g.fresh()
			g.vars = append(g.vars, k, v)
			return fmt.Sprintf("every %s, %s in %s { %s }", k, v, t, g.body(depth-1, 1+g.below(2)))
		})
	case 10:
		t := g.term(depth)
		a, b := g.fresh(), g.fresh()
		p := g.pick(fmt.Sprintf("[%s, %s]", a, b), fmt.Sprintf(`{"a": %s, "k": %s}`, a, b), fmt.Sprintf(`[%s, {"a": %s}]`, a, b), fmt.Sprintf("[%s, [1, %s]]", a, b))
		g.vars = append(g.vars, a, b)
		return p + g.pick(" := ", " = ") + t
	case 11:
		i := g.fresh()
		e := fmt.Sprintf("some %s; %s[%s] %s %s", i, g.ref(), i, g.pick("==", "!=", ">"), g.term(depth))
		g.vars = append(g.vars, i)
		return e
	}
	if g.below(3) > 0 {
		return g.call(depth)
	}
	a, b := g.fresh(), g.fresh()
	e := fmt.Sprintf("walk(%s, [%s, %s])", g.term(depth), a, b)
	g.vars = append(g.vars, a, b)
	return e
}

func (g *maker) rule(i int) string {
	g.vars = nil
	depth := 2
	name := fmt.Sprintf("r%d", i)
	bodyOf := func() string { return g.body(depth, 1+g.below(3)) }
	var out strings.Builder
	switch g.below(7) {
	case 0, 1: // boolean or constant, several rules
		if g.below(2) == 0 {
			fmt.Fprintf(&out, "default %s := %s\n", name, g.scalar())
		}
		for range 1 + g.below(3) {
			g.vars = nil
			fmt.Fprintf(&out, "%s := %s if { %s }\n", name, g.pick("true", "true", "false", `"a"`), bodyOf())
		}
		g.rules = append(g.rules, name)
	case 2: // value with else
		b := bodyOf()
		fmt.Fprintf(&out, "%s := %s if { %s }", name, g.term(1), b)
		g.vars = nil
		if g.below(2) == 0 {
			b := bodyOf()
			fmt.Fprintf(&out, " else := %s if { %s }", g.term(1), b)
		}
		out.WriteString("\n")
		g.rules = append(g.rules, name)
	case 3: // set
		for range 1 + g.below(2) {
			g.vars = nil
			b := bodyOf()
			fmt.Fprintf(&out, "%s contains %s if { %s }\n", name, g.term(1), b)
		}
		g.rules = append(g.rules, name)
	case 4: // object
		for range 1 + g.below(2) {
			g.vars = nil
			b := bodyOf()
			fmt.Fprintf(&out, "%s[%s] := %s if { %s }\n", name, g.term(0), g.term(1), b)
		}
		g.rules = append(g.rules, name)
	default:
		g.function(&out, name, bodyOf)
	}
	return out.String()
}

func (g *maker) function(out *strings.Builder, name string, bodyOf func() string) {
	arity := 1 + g.below(2)
	for range 1 + g.below(3) {
		g.vars = nil
		args := make([]string, arity)
		for j := range args {
			v := g.fresh()
			switch g.below(5) {
			case 0:
				args[j] = g.scalar()
			case 1:
				args[j] = fmt.Sprintf("[%s, _]", v)
				g.vars = append(g.vars, v)
			default:
				args[j] = v
				g.vars = append(g.vars, v)
			}
		}
		b := bodyOf()
		fmt.Fprintf(out, "%s(%s) := %s if { %s }\n", name, strings.Join(args, ", "), g.term(1), b)
	}
	g.fns = append(g.fns, name)
	g.arity[name] = arity
}

func (g *maker) module() string {
	out := "package generated\n\n"
	for i := range 10 {
		rules, fns := g.rules, g.fns
		with := out + g.rule(i)
		if _, err := load(with); err != nil {
			g.rules, g.fns = rules, fns
			continue
		}
		out = with
	}
	return out
}

// document draws an input or a document of data.
func document(depth int) *rapid.Generator[value.Value] {
	return rapid.Custom(func(t *rapid.T) value.Value {
		top := 6
		if depth == 0 {
			top = 3
		}
		switch rapid.IntRange(0, top).Draw(t, "kind") {
		case 0:
			v, _ := value.Number(rapid.SampledFrom([]string{"0", "1", "2", "3", "1.0", "2.5", "-1", "10"}).Draw(t, "number"))
			return v
		case 1, 2:
			return value.String(rapid.SampledFrom([]string{"a", "b", "c", "1", "x y", "10.1.2.3", "", "A", "2026-03-04T10:11:12Z"}).Draw(t, "string"))
		case 3:
			return rapid.SampledFrom([]value.Value{value.Bool(true), value.Bool(false), value.Null()}).Draw(t, "word")
		case 4:
			return value.Array(rapid.SliceOfN(document(depth-1), 0, 3).Draw(t, "array")...)
		}
		var members []value.Member
		for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "l", "o", "n", "s", "t", "1"}), 0, 5).Draw(t, "keys") {
			members = append(members, value.Member{Key: k, Value: document(depth-1).Draw(t, "member")})
		}
		return value.Object(members...)
	})
}

func inputDocument(t *rapid.T) value.Value {
	var members []value.Member
	for _, k := range []string{"a", "b", "c", "l", "o", "n", "s", "t"} {
		if rapid.IntRange(0, 9).Draw(t, "present") > 0 {
			members = append(members, value.Member{Key: k, Value: document(2).Draw(t, k)})
		}
	}
	return value.Object(members...)
}

// tally counts what became of the modules that were generated.
type tally struct{ refused, unsupported, evaluated, fell, defined int }

func checkGenerated(t *rapid.T, n *tally) {
	g := &maker{t: t, arity: map[string]int{}}
	src := g.module()
	defer func() {
		if r := recover(); r != nil {
			t.Fatalf("panic %v in %s", r, src)
		}
	}()
	s, err := load(src)
	if err != nil {
		n.refused++
		return
	}
	if s.err != nil {
		n.unsupported++
		return
	}
	for range 2 {
		input := inputDocument(t)
		data := value.Object(value.Member{Key: "resources", Value: document(2).Draw(t, "resources")}, value.Member{Key: "pip", Value: inputDocument(t)})
		for _, name := range s.names {
			n.evaluated++
			if s.agree(t, name, input, data) {
				n.fell++
			}
			if v, err := s.prog.Rule(name, &Env{Now: testNow}, input, tree{data}); err == nil && v.Defined() {
				n.defined++
			}
		}
	}
}

func TestGenerated(t *testing.T) {
	var n tally
	rapid.Check(t, func(t *rapid.T) { checkGenerated(t, &n) })
	t.Logf("%+v", n)
}

func FuzzGenerated(f *testing.F) {
	var n tally
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkGenerated(t, &n) }))
}
