package native

import (
	"errors"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ordered reports whether topdown gets native's result once both search in the same order. It is
// called only if one of them found an error or another value, and is true only if the module has a
// place where the order can make that difference.
func (s *subject) ordered(t reporter, name string, input, data, got value.Value, gotErr *eval.Error) bool {
	t.Helper()
	mods, changed := map[string]*ast.Module{}, false
	for path, mod := range s.mods {
		mods[path] = mod.Copy()
		chained, plugged := inTurn(mods[path]), plug(mods[path])
		changed = changed || chained || plugged
	}
	fixed := s
	if changed {
		c := ast.NewCompiler().WithSkipStages(ast.StageBuildComprehensionIndices)
		if c.Compile(mods); c.Failed() {
			t.Errorf("the module does not compile once its order is fixed: %v", c.Errors)
			return false
		}
		fixed = &subject{}
		*fixed = *s
		fixed.compiler, fixed.mods = c, mods
		if want, _, err := fixed.topdown(name, input, data, false); ends(want, err, got, gotErr) {
			return true
		}
	}
	return fixed.clauses(name, input, data, got, gotErr) || fixed.keyed(name, input, data, got, gotErr)
}

// keyed reports whether topdown gets native's result once it knows the keys of each object literal
// with computed keys. OPA looks into such a literal member by member, and so may find two members
// for one key.
func (s *subject) keyed(name string, input, data, got value.Value, gotErr *eval.Error) bool {
	mods, changed := map[string]*ast.Module{}, false
	for path, mod := range s.mods {
		mods[path] = mod.Copy()
		changed = plugKeys(mods[path]) || changed
	}
	c := ast.NewCompiler().WithSkipStages(ast.StageBuildComprehensionIndices)
	if c.Compile(mods); !changed || c.Failed() { // compilation fails if such an object is a pattern
		return false
	}
	fixed := *s
	fixed.compiler = c
	want, _, err := fixed.topdown(name, input, data, false)
	return ends(want, err, got, gotErr)
}

// plugKeys wraps object literals that have several keys, one of them computed, in a built-in that
// returns them unchanged.
func plugKeys(mod *ast.Module) (changed bool) {
	var within func(t *ast.Term) bool
	within = func(t *ast.Term) bool {
		x, ok := t.Value.(ast.Object)
		if !ok || x.Len() < 2 || ast.IsConstant(x) {
			return false
		}
		computed := false
		x.Foreach(func(k, v *ast.Term) {
			computed = computed || !ast.IsConstant(k.Value)
			ast.WalkTerms(k, within)
			ast.WalkTerms(v, within)
		})
		if computed {
			t.Value, changed = hidden(ast.NewTerm(x)).Value, true
		}
		return true
	}
	ast.WalkTerms(mod, within)
	return changed
}

// hidden wraps t in a built-in that returns it unchanged.
func hidden(t *ast.Term) *ast.Term {
	call := ast.CallTerm(ast.NewTerm(ast.MustParseRef("object.get")), ast.ObjectTerm(), ast.IntNumberTerm(0), t)
	return call.SetLocation(t.Location)
}

// ends reports whether topdown got native's value, or native's kind of error.
func ends(want value.Value, wantErr error, got value.Value, gotErr *eval.Error) bool {
	if gotErr == nil {
		return wantErr == nil && canon(got) == canon(want)
	}
	te, ok := errors.AsType[*topdown.Error](wantErr)
	return ok && te.Code == gotErr.Code
}

// inTurn joins the rules that have one name and one constant value into one chain of else, so that
// topdown tries them in source order.
func inTurn(mod *ast.Module) (changed bool) {
	several := map[string]bool{} // names with several values, or a computed one
	last := map[string]*ast.Rule{}
	for _, r := range mod.Rules {
		if r.Default {
			continue
		}
		name := r.Head.Ref().String()
		several[name] = several[name] || len(r.Head.Args) > 0 || r.Head.RuleKind() == ast.MultiValue || len(r.Head.Ref()) > 1
		for x := r; x != nil; x = x.Else {
			v := x.Head.Value
			several[name] = several[name] || !ast.IsConstant(v.Value) || last[name] != nil && !last[name].Head.Value.Equal(v)
			last[name] = x
		}
	}
	clear(last)
	kept := mod.Rules[:0]
	for _, r := range mod.Rules {
		name := r.Head.Ref().String()
		if r.Default || several[name] {
			kept = append(kept, r)
			continue
		}
		if last[name] == nil {
			kept = append(kept, r)
		} else {
			last[name].Else, changed = r, true
		}
		for last[name] = r; last[name].Else != nil; {
			last[name] = last[name].Else
		}
	}
	mod.Rules = kept
	return changed
}

// plug wraps the collections that every and some iterate over in a built-in that returns them
// unchanged, if they are set or object literals with computed members or keys. So topdown knows all
// members, and iterates in the order of their values.
func plug(mod *ast.Module) (changed bool) {
	unsorted := false
	ast.WalkTerms(mod, func(t *ast.Term) bool {
		switch v := t.Value.(type) {
		case ast.Set:
			unsorted = unsorted || v.Len() > 1 && !ast.IsConstant(v)
		case ast.Object:
			keys := 0
			v.Foreach(func(k, _ *ast.Term) {
				if !ast.IsConstant(k.Value) {
					keys = v.Len()
				}
			})
			unsorted = unsorted || keys > 1
		}
		return unsorted
	})
	if !unsorted {
		return false
	}
	hide := func(t *ast.Term) *ast.Term {
		changed = true
		return hidden(t)
	}
	ast.WalkExprs(mod, func(e *ast.Expr) bool {
		switch x := e.Terms.(type) {
		case *ast.Every:
			x.Domain = hide(x.Domain)
		case *ast.SomeDecl:
			if call, ok := x.Symbols[0].Value.(ast.Call); ok {
				call[len(call)-1] = hide(call[len(call)-1])
			}
		}
		return false
	})
	return changed
}

// clauses reports whether the module has a function with several clauses of one constant value,
// which native tries in source order, and whether topdown gets native's value if errors of
// built-ins are undefined.
func (s *subject) clauses(name string, input, data, got value.Value, gotErr *eval.Error) bool {
	several := false
	for _, g := range s.prog.groups {
		several = several || g.kind == Function && g.sameValue && len(g.rules) > 1
	}
	if !several || !s.strict || gotErr != nil {
		return false
	}
	loose := *s
	loose.strict = false
	want, _, err := loose.topdown(name, input, data, false)
	return ends(want, err, got, nil)
}

// TestOrdered limits what the oracle accepts to the places where order can make the difference.
// Anywhere else, a wrong answer of native is an error.
func TestOrdered(t *testing.T) {
	input := value.Object(
		value.Member{Key: "a", Value: value.String("zz")}, value.Member{Key: "b", Value: value.String("1")},
		value.Member{Key: "c", Value: value.String("!")}, value.Member{Key: "list", Value: value.Array(value.String("1"), value.String("zz"))},
	)
	failing := &eval.Error{Code: topdown.BuiltinErr}
	boolean := value.Bool(true)
	for _, c := range []struct {
		source string
		got    value.Value
		err    *eval.Error
		want   bool
	}{
		{"r if every x in {input.a, `1`} { to_number(x) > 3 }", value.Value{}, nil, true},
		{"r if every x in {input.a, `1`} { to_number(x) > 3 }", boolean, nil, false},
		{"r if every x in {input.b, `0x`} { to_number(x) > 3 }", value.Value{}, failing, true},
		{"r if every x in {input.b, `0x`} { to_number(x) > 3 }", value.Value{}, &eval.Error{Code: topdown.ConflictErr}, false},
		{"r if { s := {input.a, `1`}; every x in s { to_number(x) > 3 } }", value.Value{}, nil, true},
		{"r if every x, _ in {input.a: 1, `1`: 2} { to_number(x) > 3 }", value.Value{}, nil, true},
		{"r if every x in [1] { every y in {input.a, `1`} { to_number(y) > x + 2 } }", value.Value{}, nil, true},
		{"r if every x in input.list { to_number(x) > 0 }", value.Value{}, nil, false}, // an array has one order
		{"r if every x in [input.a, `1`] { to_number(x) > 3 }", value.Value{}, nil, false},
		{"r if every x in {`1`, `zz`} { to_number(x) > 0 }", value.Value{}, nil, false},  // a set literal too
		{"r if to_number(input.a) == 1\n\nr if input.b", boolean, nil, false},            // the first one fails in both orders
		{"r := x if { o := {`zz`: 1, input.a: 2}; x := o.zz }", value.Int(2), nil, true}, // OPA looks into literals, member by member
		{"r := x if { o := {`zz`: 1, input.a: 2}; x := o.zz }", value.Int(3), nil, false},
		{"r := x if { o := {`zz`: 1, `y`: 2}; x := o.zz }", value.Int(2), nil, false},
		{"r := [k | {1: 1, object.get({}, 0, 1.0): 2}[k]]", value.Array(value.Int(1)), nil, true},
	} {
		s, err := load("package m\n\n" + c.source + "\n")
		if err != nil || s.err != nil {
			t.Fatalf("%s: %v, %v", c.source, err, s.err)
		}
		s.strict = true
		if got := s.ordered(t, "r", input, value.Object(), c.got, c.err); got != c.want {
			t.Errorf("%s: native's %s, %v is allowed: %v", c.source, canon(c.got), c.err, got)
		}
	}
	for source, want := range map[string]string{
		"r if every x in {input.a, input.b} { to_number(x) > 3 }":          "undefined", // where OPA reaches zz first
		"r if every x in {input.b, input.c} { to_number(x) > 3 }":          "error",     // where OPA reaches 1 first
		"r if every x, _ in {input.a: 1, input.b: 2} { to_number(x) > 3 }": "undefined",
	} {
		s, err := load("package m\n\n" + source + "\n")
		if err != nil || s.err != nil {
			t.Fatalf("%s: %v, %v", source, err, s.err)
		}
		s.strict = true
		got, err := s.agree(t, "r", input, value.Object())
		if text := canon(got); err == nil && text != want || err != nil && want != "error" {
			t.Errorf("%s: %s, %v, want %s", source, text, err, want)
		}
		if _, _, topErr := s.topdown("r", input, value.Object(), false); (topErr == nil) != (err != nil) {
			t.Errorf("%s: OPA no longer has another order: %v", source, topErr)
		}
	}
}
