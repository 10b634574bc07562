package native

import (
	gobinary "encoding/binary"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maker writes random modules that parse and mostly compile. Rules that OPA's compiler rejects are
// skipped.
type maker struct {
	below draws
	near  []string // spellings of equal or adjacent numbers
	vars  []string // variables that are bound here
	rules []string // references to finished rules
	fns   []string // names of finished functions
	arity map[string]int
	all   []string // names of all rules and functions, for with
	focus []*ast.Builtin
	n     int
}

func newMaker(below draws) *maker {
	return &maker{below: below, near: families[below(len(families))], arity: map[string]int{"hide": 1}, fns: []string{"hide"}}
}

func (g *maker) pick(from ...string) string { return from[g.below(len(from))] }

func (g *maker) fresh() string {
	g.n++
	return fmt.Sprintf("v%d", g.n)
}

func (g *maker) scalar() string {
	switch g.below(6) {
	case 0:
		return g.pick(numbers...)
	case 1, 2:
		return g.pick(g.near...)
	}
	return g.pick("0", "1", "2", "3", "1.0", "1e0", "2.5", "-1", "-0", `"a"`, `"b"`, `"1"`, `"0"`, `"x y"`, `""`, "true", "false", "null")
}

func (g *maker) key() string { return g.pick("a", "b", "c", "l", "o", "n", "s", "t") }

// index returns a constant in brackets. Keys that look alike are different keys.
func (g *maker) index() string {
	return g.pick(g.scalar(), g.scalar(), "0", "1", "1.0", "1e0", `"1"`, `"0"`, "[1]", "{1}", "[1.0]", "-0")
}

// ref returns a reference with bound variables only, or with a wildcard.
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
			base += "[" + g.index() + "]"
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
		top = 18
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
		return g.pick(`{"a", "b", 1}`, `["a", 1, 2.5]`, `{"a": 1, "b": [1, 2]}`, "[]", "{}", "set()", `{1, 2, 3}`, `["x y", "a"]`,
			`{1: "n", "1": "s", [1]: "a"}`, `{1.0: "n", 0: "z"}`, `{1, "1", [1], 1.5}`, `["0", "1", 0, 1]`, `{{1}, {1.0, 2}, {"a": 1}}`)
	case 5:
		return "[" + g.term(depth-1) + ", " + g.term(depth-1) + "]"
	case 6:
		return `{"a": ` + g.term(depth-1) + `, "k": ` + g.term(depth-1) + "}"
	case 7:
		return "{" + g.term(depth-1) + ", " + g.term(depth-1) + "}"
	case 8, 9:
		return g.comprehension(depth - 1)
	case 10:
		return fmt.Sprintf("(%s %s %s)", g.untyped(g.term(depth-1)), g.pick("+", "-", "*", "/", "%", "|", "&", "==", "<", "in"), g.untyped(g.term(depth-1)))
	case 11, 12:
		return g.call(depth - 1)
	case 14, 15, 16, 17:
		return g.aimed(depth - 1)
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

// inner runs f, and forgets the variables that f bound.
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
	if len(g.vars) > had { // a declared variable must be used
		out = append(out, "["+strings.Join(g.vars[had:], ", ")+"] != 0")
	}
	return strings.Join(out, "; ")
}

// expr returns an expression. Some have another input, other data or other functions.
func (g *maker) expr(depth int) string {
	if g.below(10) > 0 {
		return g.plain(depth)
	}
	had := len(g.vars)
	var e string
	for range 3 {
		g.vars = g.vars[:had:had]
		if e = g.plain(depth); !strings.HasPrefix(e, "some") && !strings.HasPrefix(e, "every") {
			break
		}
	}
	own := g.vars[had:]
	g.vars = g.vars[:had:had] // variables of the expression are not bound yet in its with
	for range 1 + g.below(2) {
		e += " with " + g.replacement()
	}
	g.vars = append(g.vars, own...)
	return e
}

// replacement returns the text after with.
func (g *maker) replacement() string {
	value := func() string { return g.term(1) }
	switch g.below(8) {
	case 0:
		return "input as " + value()
	case 1, 2:
		return "input." + g.key() + g.pick("", "."+g.key()) + " as " + value()
	case 3:
		return g.pick("data.pip", "data.resources", "data.pip."+g.key(), "data.pip."+g.key()+"."+g.key()) + " as " + value()
	case 4, 5:
		if len(g.all) > 0 {
			return "data.generated." + g.pick(g.all...) + " as " + value()
		}
	case 6:
		if len(g.fns) > 1 {
			return g.pick(g.fns...) + " as " + g.pick(g.fns...)
		}
	}
	return g.pick("count", "lower", "to_number", "is_string") + " as " + g.pick(value(), "upper", "is_null", "hide", "1", `"x"`)
}

func (g *maker) plain(depth int) string {
	switch g.below(13) {
	case 0, 1:
		return fmt.Sprintf("%s %s %s", g.untyped(g.term(depth)), g.pick("==", "!=", "<", "<=", ">", ">=", "="), g.untyped(g.term(depth)))
	case 2:
		return g.ref()
	case 3, 4:
		t := g.term(depth)
		v := g.fresh()
		g.vars = append(g.vars, v)
		return v + " := " + t
	case 5:
		t := g.untyped(g.term(depth))
		v := g.fresh()
		g.vars = append(g.vars, v)
		return "some " + v + " in " + t
	case 6:
		t := g.untyped(g.term(depth))
		k, v := g.fresh(), g.fresh()
		g.vars = append(g.vars, k, v)
		return fmt.Sprintf("some %s, %s in %s", k, v, t)
	case 7:
		return g.term(depth) + " in " + g.untyped(g.term(depth))
	case 8:
		return g.inner(func() string { return "not " + g.one(g.untyped(g.term(depth))) + g.pick("", " == "+g.scalar()) })
	case 9:
		return g.inner(func() string {
			t := g.untyped(g.term(depth))
			k, v := g.fresh(), g.fresh()
			g.vars = append(g.vars, k, v)
			body := g.pick(v+g.pick(" != ", " >= ", " < ")+g.scalar(), "is_string("+v+")", "not "+v+" == "+g.scalar(), g.body(depth-1, 1+g.below(2)))
			return fmt.Sprintf("every %s, %s in %s { %s; [%s, %s] != 0 }", k, v, t, body, k, v)
		})
	case 10:
		t := g.term(depth)
		a, b := g.fresh(), g.fresh()
		p := g.pick(fmt.Sprintf("[%s, %s] :", a, b), fmt.Sprintf(`{"a": %s, "k": %s} :`, a, b), fmt.Sprintf(`[%s, {"a": %s}] `, a, b), fmt.Sprintf("[%s, [1, %s]] ", a, b))
		g.vars = append(g.vars, a, b)
		return p + "= " + g.hidden(t)
	case 11:
		i := g.fresh()
		e := fmt.Sprintf("some %s; %s[%s] %s %s", i, g.ref(), i, g.pick("==", "!=", ">"), g.untyped(g.term(depth)))
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

// rule returns all rules of a name, one on each line.
func (g *maker) rule(i int) string {
	g.vars = nil
	depth := 2
	name := fmt.Sprintf("r%d", i)
	bodyOf := func() string {
		if g.below(6) == 0 {
			return "true"
		}
		return g.body(depth, 1+g.below(3))
	}
	ruleOf := func(out *strings.Builder, head func() string) {
		g.vars = nil
		b := bodyOf()
		fmt.Fprintf(out, "%s if { %s }\n", head(), b)
	}
	defer func() { g.all = append(g.all, name) }()
	var out strings.Builder
	switch g.below(12) {
	case 0, 1: // boolean or constant, several rules
		if g.below(2) == 0 {
			fmt.Fprintf(&out, "default %s := %s\n", name, g.scalar())
		}
		for range 1 + g.below(3) {
			ruleOf(&out, func() string { return name + " := " + g.pick("true", "true", "false", `"a"`, "1") })
		}
	case 2: // value with else
		b := bodyOf()
		fmt.Fprintf(&out, "%s := %s if { %s }", name, g.pick(g.answer(), g.scalar(), "false"), b)
		for range g.below(3) {
			g.vars = nil
			b := bodyOf()
			fmt.Fprintf(&out, " else := %s if { %s }", g.answer(), b)
		}
		out.WriteString("\n")
	case 3: // set
		for range 1 + g.below(2) {
			ruleOf(&out, func() string { return name + " contains " + g.answer() })
		}
	case 4: // object
		for range 1 + g.below(2) {
			ruleOf(&out, func() string { return name + "[" + g.one(g.term(0)) + "] := " + g.answer() })
		}
	case 5: // variables within the name
		for range 1 + g.below(2) {
			ruleOf(&out, func() string {
				return g.pick(name+"[%].a := %", name+"[%][%] := %", name+"[%].b contains %", name+".a[%] := %", name+".a.b := %", name+".c contains %")
			})
		}
		return g.filled(out.String(), name)
	case 6:
		fmt.Fprintf(&out, "%s := %s\n", name, g.aimed(1))
	case 7, 8: // calls
		fmt.Fprintf(&out, "%s := %s\n", name, g.pick("%", "%", "[%, %]", "[x | x := %]", "count([1 | not %])", "{%: 1}"))
		text := out.String()
		for strings.Contains(text, "%") {
			text = strings.Replace(text, "%", strings.ReplaceAll(g.call(2), "%", "\x00"), 1)
		}
		return strings.ReplaceAll(text, "\x00", "%") + g.refer(name)
	case 9: // shared parts
		part := g.term(1)
		fmt.Fprintf(&out, "%s := [x, x, [x, x]] if { x := %s }\n", name, part)
	default:
		g.function(&out, name, bodyOf)
		return out.String() + g.called(name)
	}
	return out.String() + g.refer(name)
}

// refer adds a finished rule to those that others may refer to, mostly through a rule of unknown
// type, so that OPA's compiler does not reject references into it.
func (g *maker) refer(name string) string {
	if g.below(4) == 0 {
		g.rules = append(g.rules, name)
		return ""
	}
	g.rules = append(g.rules, "u"+name)
	return "u" + name + " := " + g.hidden(name) + "\n"
}

// answer returns the value in the head of a rule.
func (g *maker) answer() string { return g.one(g.term(1)) }

// one replaces the wildcards of a text: a head may not have any.
func (g *maker) one(text string) string { return strings.ReplaceAll(text, "[_]", "[0]") }

// filled replaces the percent signs of heads with terms.
func (g *maker) filled(text, name string) string {
	g.rules = append(g.rules, name)
	var out strings.Builder
	for line := range strings.Lines(text) {
		head, rest, _ := strings.Cut(line, " if ")
		for strings.Contains(head, "%") {
			head = strings.Replace(head, "%", g.pick(`"a"`, "1", "1.0", "input.a", "input.s", `"b"`, "v", "input.l[_]"), 1)
		}
		if strings.Contains(head, "v") {
			rest = strings.Replace(rest, "{ ", "{ some v in input."+g.key()+"; ", 1)
		}
		out.WriteString(head + " if " + rest)
	}
	return out.String()
}

func (g *maker) function(out *strings.Builder, name string, bodyOf func() string) {
	arity := 1 + g.below(2)
	if g.below(4) == 0 {
		fmt.Fprintf(out, "default %s(%s) := %s\n", name, strings.Repeat("_, ", arity-1)+"_", g.scalar())
	}
	for range 1 + g.below(3) {
		g.vars = nil
		args := make([]string, arity)
		for j := range args {
			v := g.fresh()
			switch g.below(6) {
			case 0:
				args[j] = g.scalar()
			case 1:
				args[j] = fmt.Sprintf("[%s, _]", v)
				g.vars = append(g.vars, v)
			case 2:
				args[j] = fmt.Sprintf(`{"a": %s}`, v)
				g.vars = append(g.vars, v)
			default:
				args[j] = v
				g.vars = append(g.vars, v)
			}
		}
		given := slices.Clone(g.vars)
		b := bodyOf()
		fmt.Fprintf(out, "%s(%s) := %s if { %s }", name, strings.Join(args, ", "), g.answer(), b)
		if g.below(3) == 0 {
			g.vars = given
			fmt.Fprintf(out, " else := %s", g.answer())
		}
		out.WriteString("\n")
	}
	g.fns = append(g.fns, name)
	g.arity[name] = arity
}

// called returns a rule that calls a function several times, so that some results are remembered.
func (g *maker) called(name string) string {
	term := func() string { return g.hidden(g.pick(g.pick(g.near...), g.pick(spelled...), "input."+g.key())) }
	a, b, c := term(), term(), term()
	args := "p[0], p[1]"
	if g.arity[name] == 1 {
		args = "p[0]"
	}
	return fmt.Sprintf("c%s := [x | some p in [[%s, %s], [%s, %s], [%s, %s], [%s, %s]]; x := %s(%s)]\n", name, a, b, a, c, b, a, a, b, name, args)
}

// tally counts the outcomes of generated modules.
type tally struct{ modules, left, evaluated, limited, failed, defined int }

// question is what a test evaluates of a generated module.
type question struct {
	input, data value.Value
	name        string
}

func checkGenerated(t reporter, below draws, n *tally) {
	g := newMaker(below)
	if g.below(2) == 0 { // a module with few built-ins
		for range 1 + g.below(4) {
			g.focus = append(g.focus, offered()[g.below(len(offered()))])
		}
	}
	units, s, left := g.module()
	n.left += left
	if s == nil {
		return
	}
	n.modules++
	s.strict = g.below(2) == 0
	for range 2 {
		q := question{input: g.input(), data: value.Object(value.Member{Key: "resources", Value: g.document(2)}, value.Member{Key: "pip", Value: g.input()})}
		for _, q.name = range s.names {
			n.evaluated++
			found := &findings{}
			switch v, err := s.agree(found, q.name, q.input, q.data); {
			case errors.Is(err, eval.ErrLimit):
				n.limited++
			case err != nil:
				n.failed++
			case v.Defined():
				n.defined++
			}
			if len(*found) > 0 {
				t.Errorf("%s", smallest(units, s.strict, q, *found))
				return
			}
		}
	}
}

// findings are the differences found by one comparison.
type findings []string

func (f *findings) Helper() {}

// Errorf implements reporter.
func (f *findings) Errorf(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// smallest removes whole rules that a difference does not need.
func smallest(units []string, strict bool, q question, found findings) string {
	for i := range slices.Backward(units) {
		fewer := slices.Delete(slices.Clone(units), i, i+1)
		src, _ := joined(fewer)
		s, err := load(src)
		if err != nil || s.err != nil || !slices.Contains(s.names, q.name) {
			continue
		}
		s.strict = strict
		var still findings
		if _, _ = s.agree(&still, q.name, q.input, q.data); len(still) > 0 {
			units, found = fewer, still
		}
	}
	return strings.Join(found, "\n")
}

// sameDraws makes a test draw the same values in each run, unless flags say otherwise, so that a
// failure is due to the change under test.
func sameDraws(t *testing.T) {
	t.Helper()
	for name, own := range map[string]string{"rapid.seed": "1", "rapid.shrinktime": "1ns", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			errtest.Must(t, flag.Set(name, own))
		}
	}
}

// TestGenerated compares the evaluator with OPA on generated programs and inputs: the same hundred
// in each run. -rapid.checks=n generates more, -rapid.seed=n others. FuzzGenerated looks for new
// ones.
func TestGenerated(t *testing.T) {
	fulltest.Only(t)
	sameDraws(t)
	var n tally
	rapid.Check(t, func(t *rapid.T) {
		checkGenerated(t, drawsOf(gobinary.BigEndian.AppendUint64(nil, rapid.Uint64().Draw(t, "seed"))), &n)
	})
	t.Logf("%+v", n)
	if n.left*3 > n.modules*8 {
		t.Errorf("more than a third of the rules were refused: the generator wastes them")
	}
}

func FuzzGenerated(f *testing.F) {
	for i := range uint64(16) {
		f.Add(gobinary.BigEndian.AppendUint64(nil, i))
	}
	var n tally
	f.Fuzz(func(t *testing.T, data []byte) { checkGenerated(t, drawsOf(data), &n) })
}
