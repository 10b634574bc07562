package lang

import (
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// call records what a call of an operator or function shows about its operands.
func (f *finder) call(t []*ast.Term) {
	if len(t) == 0 {
		return
	}
	name, args := BuiltinName(t[0]), t[1:]
	switch name {
	case "eq", "equal", "neq", "assign", "lt", "lte", "gt", "gte":
		if len(args) == 2 {
			f.compare(name, args[0], args[1])
			f.compare(name, args[1], args[0])
		}
		return
	case "internal.member_2", "internal.member_3":
		f.members(t)
		return
	case "object.get":
		f.objectGet(t)
		return
	}
	if b := ast.BuiltinMap[name]; b != nil && b.Decl != nil {
		for i, a := range args {
			if want := b.Decl.FuncArgs().Arg(i); want != nil {
				if p := f.path(a); p != nil {
					f.countType(p, typeName(want), weightOf(want))
				}
			}
		}
		return
	}
	f.recordArguments(name, args)
}

// compare records what a comparison with b shows about a.
func (f *finder) compare(op string, a, b *ast.Term) {
	if op == "assign" || op == "eq" {
		if v, ok := a.Value.(ast.Var); ok {
			if ref, ok := b.Value.(ast.Ref); ok && !b.Equal(ast.InputRootDocument) {
				if full := f.resolve(ref); full != nil && !isRoot(a) {
					f.locals[v] = full
					return
				}
			}
		}
	}
	p := f.path(a)
	if p == nil {
		return
	}
	if lit, ok := constantOf(b); ok {
		f.countType(p, jsonType(lit), literal)
		f.suggest(p, lit)
		return
	}
	if op == "lt" || op == "lte" || op == "gt" || op == "gte" {
		f.countType(p, "number", hint)
	}
	f.countResultType(p, b)
}

// countResultType counts the type of a path that is compared with the result of a built-in, such
// as lower(x).
func (f *finder) countResultType(p []string, b *ast.Term) {
	c, ok := b.Value.(ast.Call)
	if !ok {
		return
	}
	if bi := ast.BuiltinMap[BuiltinName(c[0])]; bi != nil && bi.Decl != nil && bi.Decl.Result() != nil {
		f.countType(p, typeName(bi.Decl.Result()), weightOf(bi.Decl.Result()))
	}
}

// members records what `x in xs` and `some k, x in xs` show about their operands.
func (f *finder) members(c []*ast.Term) {
	args := c[1:]
	if len(args) < 2 || len(args) > 3 {
		return
	}
	elem, coll := args[len(args)-2], args[len(args)-1]
	if p := f.path(coll); p != nil {
		f.countType(p, "array", literal)
		if lit, ok := constantOf(elem); ok {
			f.suggest(p, lit)
		}
		f.element(elem, coll)
		return
	}
	if p := f.path(elem); p != nil {
		if lit, ok := constantOf(coll); ok {
			each(lit, func(v value.Value) {
				f.countType(p, jsonType(v), literal)
				f.suggest(p, v)
			})
			return
		}
	}
	f.element(elem, coll)
}

// element records that a variable stands for the elements of a collection of input.
func (f *finder) element(elem, coll *ast.Term) {
	v, ok := elem.Value.(ast.Var)
	if !ok {
		return
	}
	ref, ok := coll.Value.(ast.Ref)
	if !ok {
		if cv, isVar := coll.Value.(ast.Var); isVar {
			ref = ast.Ref{ast.NewTerm(cv)}
		}
	}
	if full := f.resolve(ref); full != nil && v != "input" {
		f.locals[v] = append(full, ast.VarTerm("$element"))
	}
}

// objectGet returns the path that a call such as object.get(input.user, "role", "none") reads,
// and records its default value. It returns nil for any other call.
func (f *finder) objectGet(c []*ast.Term) []string {
	if len(c) != 4 || BuiltinName(c[0]) != "object.get" {
		return nil
	}
	from := f.path(c[1])
	if from == nil && !c[1].Equal(ast.InputRootDocument) {
		return nil
	}
	path := append([]string{}, from...)
	switch k := c[2].Value.(type) {
	case ast.String:
		path = append(path, string(k))
	case *ast.Array:
		for i := range k.Len() {
			s, ok := k.Elem(i).Value.(ast.String)
			if !ok {
				return nil
			}
			path = append(path, string(s))
		}
	default:
		return nil
	}
	x := f.record(path, c[1].Location)
	if x == nil {
		return nil
	}
	if lit, ok := constantOf(c[3]); ok {
		x.votes[jsonType(lit)] += literal
		x.fallback = lit
	}
	return path
}

// recordArguments records the references that a function of the module is called with.
func (f *finder) recordArguments(name string, args []*ast.Term) {
	if len(name) == 0 || len(args) == 0 || f.params[name] != nil && len(f.params[name]) != len(args) {
		return
	}
	refs := f.params[name]
	if refs == nil {
		refs = make([]ast.Ref, len(args))
		f.params[name] = refs
	}
	for i, a := range args {
		if refs[i] != nil {
			continue
		}
		switch v := a.Value.(type) {
		case ast.Ref:
			refs[i] = f.resolve(v)
		case ast.Var:
			refs[i] = f.resolve(ast.Ref{a})
		}
	}
}

// constantOf returns the value of a term, if the term is a constant.
func constantOf(t *ast.Term) (value.Value, bool) {
	if !ast.IsConstant(t.Value) {
		return value.Value{}, false
	}
	v, err := value.FromAST(t.Value)
	return v, err == nil && v.Defined()
}

func each(v value.Value, fn func(value.Value)) {
	for _, e := range v.Elems() {
		fn(e)
	}
	if v.Kind() == value.ObjectKind {
		for _, p := range v.Pairs() {
			fn(p.V)
		}
	}
}

// jsonType returns the Attribute.Type of a value.
func jsonType(v value.Value) string {
	switch v.Kind() {
	case value.BoolKind:
		return "boolean"
	case value.NumberKind:
		return "number"
	case value.ArrayKind, value.SetKind:
		return "array"
	case value.ObjectKind:
		return "object"
	}
	return "string"
}

// typeName returns the Attribute.Type for a type in a built-in's signature.
func typeName(t types.Type) string {
	switch t := t.(type) {
	case types.Number:
		return "number"
	case types.Boolean:
		return "boolean"
	case *types.Array, *types.Set:
		return "array"
	case *types.Object:
		return "object"
	case types.Any:
		for _, of := range t { // count accepts strings too, but controls hardly use that
			if n := typeName(of); n == "array" || n == "number" {
				return n
			}
		}
	case *types.NamedType:
		return typeName(t.Type)
	}
	return "string"
}

// weightOf returns how much a type in a signature counts: nothing if it is any type.
func weightOf(t types.Type) int {
	switch t := t.(type) {
	case types.Any:
		if len(t) == 0 {
			return 0
		}
		return hint
	case *types.NamedType:
		return weightOf(t.Type)
	}
	return signature
}
