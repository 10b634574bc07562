package rego_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
)

// A world is what a control decides on, as plain values that can be changed.
type world struct{ input, data map[string]any }

func (w world) copy() world {
	return world{deepCopy(w.input).(map[string]any), deepCopy(w.data).(map[string]any)}
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = deepCopy(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = deepCopy(x)
		}
		return out
	}
	return v
}

// spot is a place in a world: input.user.roles[0].
type spot []string

// parseSpot reads a path as an explanation writes it; nil for one that is not
// below input or data.
func parseSpot(path string) spot {
	ref, err := ast.ParseRef(path)
	if err != nil || len(ref) < 2 {
		return nil
	}
	head := string(ref[0].Value.(ast.Var))
	if head != "input" && head != "data" {
		return nil
	}
	if len(ref) > 1 && ref[1].Equal(ast.StringTerm("lib")) {
		return nil // a library's rule is no data
	}
	out := spot{head}
	for _, p := range ref[1:] {
		switch v := p.Value.(type) {
		case ast.String:
			out = append(out, string(v))
		case ast.Number:
			out = append(out, string(v))
		default:
			return nil
		}
	}
	return out
}

func (w world) get(s spot) (any, bool) {
	var at any = w.input
	if s[0] == "data" {
		at = w.data
	}
	for _, p := range s[1:] {
		switch v := at.(type) {
		case map[string]any:
			x, ok := v[p]
			if !ok {
				return nil, false
			}
			at = x
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// set puts a value at a spot and makes what is missing on the way; gone takes
// it away. It reports whether that was possible.
func (w world) set(s spot, v any) bool {
	root := w.input
	if s[0] == "data" {
		root = w.data
	}
	made, ok := put(root, s[1:], v)
	if !ok {
		return false
	}
	clear(root)
	maps.Copy(root, made.(map[string]any))
	return true
}

type goneType struct{}

var gone = goneType{}

func put(at any, path []string, v any) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	switch c := at.(type) {
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i > len(c) {
			return nil, false
		}
		out := slices.Clone(c)
		if i == len(c) {
			out = append(out, nil)
		}
		if len(path) == 1 && v == any(gone) {
			return slices.Delete(out, i, i+1), true
		}
		x, ok := put(out[i], path[1:], v)
		out[i] = x
		return out, ok
	case map[string]any:
		out := map[string]any{}
		maps.Copy(out, c)
		if len(path) == 1 && v == any(gone) {
			delete(out, path[0])
			return out, true
		}
		x, ok := put(out[path[0]], path[1:], v)
		out[path[0]] = x
		return out, ok
	default:
		if v == any(gone) {
			return at, true
		}
		if path[0] == "0" {
			x, ok := put(nil, path[1:], v)
			return []any{x}, ok
		}
		x, ok := put(nil, path[1:], v)
		return map[string]any{path[0]: x}, ok
	}
}

// flipper turns conditions around, by their text alone and the paths that the
// explanation gives.
type flipper struct {
	world
	names map[string]spot // variables of the rule at hand: where they come from
}

// newFlipper learns from a list of conditions where variables come from.
func newFlipper(w world, lists ...[]reason.Condition) *flipper {
	f := &flipper{world: w.copy(), names: map[string]spot{}}
	for _, list := range lists {
		for _, c := range list {
			f.learn(c)
		}
	}
	return f
}

func (f *flipper) learn(c reason.Condition) {
	for _, x := range c.Because {
		f.learn(x)
	}
	for _, b := range c.Values {
		if s := parseSpot(b.Path); s != nil && b.Variable != "" {
			f.names[c.Rule+"."+b.Variable] = s
		}
	}
	e := parseCondition(c.Source)
	if e == nil {
		return
	}
	bind := func(v *ast.Term, from *ast.Term, element bool) {
		name, ok := v.Value.(ast.Var)
		if !ok || f.names[c.Rule+"."+string(name)] != nil {
			return
		}
		if s := f.spot(c, from); s != nil {
			if element && (len(c.Values) == 0 || !below(c, s)) {
				s = append(slices.Clone(s), "0")
			} else if element {
				for _, b := range c.Values {
					if at := parseSpot(b.Path); len(at) == len(s)+1 && slices.Equal(at[:len(s)], s) {
						s = at
						break
					}
				}
			}
			f.names[c.Rule+"."+string(name)] = s
		}
	}
	switch t := e.Terms.(type) {
	case *ast.SomeDecl:
		if call, ok := t.Symbols[0].Value.(ast.Call); ok {
			bind(call[len(call)-2], call[len(call)-1], true)
		}
	case []*ast.Term:
		if op := t[0].String(); (op == "assign" || op == "eq") && len(t) == 3 {
			bind(t[1], t[2], false)
		}
	}
}

func below(c reason.Condition, s spot) bool {
	for _, b := range c.Values {
		if at := parseSpot(b.Path); len(at) == len(s)+1 && slices.Equal(at[:len(s)], s) {
			return true
		}
	}
	return false
}

func parseCondition(text string) *ast.Expr {
	body, err := ast.ParseBodyWithOpts(text, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil || len(body) != 1 {
		return nil
	}
	return body[0]
}

// spot is where an operand's value comes from: by its own text, by a variable's
// name, or by the path that the explanation gives and that ends alike.
func (f *flipper) spot(c reason.Condition, t *ast.Term) spot {
	var ref ast.Ref
	switch v := t.Value.(type) {
	case ast.Ref:
		ref = v
	case ast.Var:
		ref = ast.Ref{t}
	default:
		return nil
	}
	var tail []string
	plain := true
	for _, p := range ref[1:] {
		switch v := p.Value.(type) {
		case ast.String:
			tail = append(tail, string(v))
		case ast.Number:
			tail = append(tail, string(v))
		default:
			plain = false
		}
	}
	head, _ := ref[0].Value.(ast.Var)
	if plain && (head == "input" || head == "data" && len(tail) > 1 && (tail[0] == "resources" || tail[0] == "pip")) {
		return append(spot{string(head)}, tail...)
	}
	if s := f.names[c.Rule+"."+string(head)]; s != nil && plain {
		return append(slices.Clone(s), tail...)
	}
	// The explanation resolved it: the value whose path ends alike.
	for _, b := range c.Values {
		s := parseSpot(b.Path)
		if s != nil && ends(s, ref) {
			return s
		}
	}
	return nil
}

// ends reports whether a spot ends as a reference does: constants alike, a
// variable is anything.
func ends(s spot, ref ast.Ref) bool {
	n := len(ref) - 1
	if n == 0 || len(s) < n+1 {
		return false
	}
	for i, p := range ref[1:] {
		at := s[len(s)-n+i]
		switch v := p.Value.(type) {
		case ast.String:
			if string(v) != at {
				return false
			}
		case ast.Number:
			if string(v) != at {
				return false
			}
		}
	}
	return true
}

// flip makes a condition hold, or not. False: there is no mechanical way. One
// that asks other rules is turned by turning what it came from.
func (f *flipper) flip(c reason.Condition, want bool) bool {
	if len(c.Because) > 0 {
		for _, x := range c.Because {
			if !f.flip(x, !x.Holds) {
				return false
			}
		}
		return true
	}
	if head, ref, ok := strings.Cut(c.Source, " := "); ok && head == c.Rule { // the head of a rule
		t, err := ast.ParseTerm(ref)
		if err != nil {
			return false
		}
		if s := f.spot(c, t); s != nil && want {
			if v, ok := f.get(s); ok && v != any(false) {
				return true // it gives something already
			}
		}
		return f.flipTerm(c, t, want)
	}
	e := parseCondition(c.Source)
	if e == nil {
		return false
	}
	if e.Negated {
		want = !want
		cpy := *e
		cpy.Negated = false
		e = &cpy
	}
	switch t := e.Terms.(type) {
	case *ast.Term:
		return f.flipTerm(c, t, want)
	case *ast.Every:
		s := f.spot(c, t.Domain)
		if s == nil {
			return false
		}
		if want {
			return f.set(s, []any{})
		}
		return f.set(s, gone)
	case *ast.SomeDecl:
		call, ok := t.Symbols[0].Value.(ast.Call)
		if !ok {
			return want // `some x` says nothing
		}
		s := f.spot(c, call[len(call)-1])
		if s == nil {
			return false
		}
		if !want {
			return f.set(s, []any{})
		}
		if have, ok := f.get(s); ok && have != nil {
			if list, ok := have.([]any); ok && len(list) > 0 {
				return true
			}
		}
		return f.set(s, []any{"flipped"})
	case []*ast.Term:
		return f.flipCall(c, t, want)
	}
	return false
}

func (f *flipper) flipTerm(c reason.Condition, t *ast.Term, want bool) bool {
	if call, ok := t.Value.(ast.Call); ok {
		return f.flipCall(c, call, want)
	}
	s := f.spot(c, t)
	if s == nil {
		return false
	}
	if want {
		return f.set(s, true)
	}
	return f.set(s, gone)
}

var mirrored = map[string]string{"lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte", "equal": "equal", "eq": "eq", "neq": "neq"}

var opposite = map[string]string{"lt": "gte", "lte": "gt", "gt": "lte", "gte": "lt", "equal": "neq", "eq": "neq", "neq": "equal"}

func (f *flipper) flipCall(c reason.Condition, t []*ast.Term, want bool) bool {
	op, args := t[0].String(), t[1:]
	switch op {
	case "assign":
		s := f.spot(c, args[1])
		if s == nil {
			return false
		}
		if want {
			if _, ok := f.get(s); ok {
				return true
			}
			return f.set(s, "flipped")
		}
		return f.set(s, gone)
	case "equal", "eq", "neq", "lt", "lte", "gt", "gte":
		if !want {
			op = opposite[op]
		}
		if f.move(c, op, args[0], args[1]) {
			return true
		}
		return f.move(c, mirrored[op], args[1], args[0])
	case "internal.member_2":
		return f.member(c, args[0], args[1], want)
	}
	return f.flipBuiltin(c, op, args, want)
}

// flipBuiltin turns a call of a built-in around that tests.
func (f *flipper) flipBuiltin(c reason.Condition, op string, args []*ast.Term, want bool) bool {
	if !want { // without its operand a built-in holds nothing
		for _, a := range args {
			if s := f.spot(c, a); s != nil {
				return f.set(s, gone)
			}
			if call, ok := a.Value.(ast.Call); ok {
				for _, x := range call[1:] {
					if s := f.spot(c, x); s != nil {
						return f.set(s, gone)
					}
				}
			}
		}
		return false
	}
	if len(args) != 2 {
		return f.typed(c, op, args)
	}
	lit, ok := f.known(c, args[1])
	text, isText := lit.(string)
	switch op {
	case "startswith", "endswith", "contains":
		if ok && isText {
			return f.assign(c, args[0], text)
		}
	case "net.cidr_contains":
		if cidr, ok := f.known(c, args[0]); ok {
			if p, err := netip.ParsePrefix(fmt.Sprint(cidr)); err == nil {
				return f.assign(c, args[1], p.Addr().String())
			}
		}
	}
	return false
}

func (f *flipper) typed(c reason.Condition, op string, args []*ast.Term) bool {
	sample := map[string]any{"is_string": "flipped", "is_number": 1.0, "is_boolean": true, "is_array": []any{}, "is_object": map[string]any{}, "is_null": nil}
	v, ok := sample[op]
	return ok && len(args) == 1 && f.assign(c, args[0], v)
}
