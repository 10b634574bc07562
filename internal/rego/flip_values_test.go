package rego_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
)

// plain is the value of a literal.
func plain(t *ast.Term) (any, bool) {
	if !ast.IsConstant(t.Value) {
		return nil, false
	}
	v, err := ast.JSON(t.Value)
	if err != nil {
		return nil, false
	}
	return number(v), true
}

// number makes all numbers float64.
func number(v any) any {
	switch v := v.(type) {
	case interface{ Float64() (float64, error) }:
		n, _ := v.Float64()
		return n
	case int64:
		return float64(v)
	case int:
		return float64(v)
	case []any:
		for i := range v {
			v[i] = number(v[i])
		}
	}
	return v
}

// known is the value of an operand: a literal, what is at its spot, or what the
// explanation says it was.
func (f *flipper) known(c reason.Condition, t *ast.Term) (any, bool) {
	if v, ok := plain(t); ok {
		return v, true
	}
	if s := f.spot(c, t); s != nil {
		v, ok := f.get(s)
		return number(deepCopy(v)), ok
	}
	name := t.String()
	for _, b := range c.Values {
		if (b.Path == name || b.Variable == name || strings.HasSuffix(name, "."+b.Path)) && b.Value.Defined() {
			return number(b.Value.Any()), true
		}
	}
	return nil, false
}

// assign gives an operand a value: a reference at its spot, and through the
// functions that have a plain way back.
func (f *flipper) assign(c reason.Condition, t *ast.Term, v any) bool {
	if s := f.spot(c, t); s != nil {
		return f.set(s, v)
	}
	call, ok := t.Value.(ast.Call)
	if !ok || len(call) < 2 {
		return false
	}
	switch op := call[0].String(); op {
	case "lower", "upper", "trim_space":
		return f.assign(c, call[1], v)
	case "to_number":
		return f.assign(c, call[1], fmt.Sprint(v))
	case "count":
		n, ok := v.(float64)
		if !ok || n < 0 || n > 1000 {
			return false
		}
		list := []any{}
		for i := range int(n) {
			list = append(list, fmt.Sprintf("flipped-%d", i))
		}
		return f.assign(c, call[1], list)
	case "object.get":
		key, isText := plain(call[2])
		if s := f.spot(c, call[1]); s != nil && isText {
			switch k := key.(type) {
			case string:
				return f.set(append(slices.Clone(s), k), v)
			case []any:
				for _, p := range k {
					s = append(slices.Clone(s), fmt.Sprint(p))
				}
				return f.set(s, v)
			}
		}
	case "plus", "minus":
		n, ok1 := v.(float64)
		by, ok2 := f.known(c, call[2])
		d, ok3 := by.(float64)
		if ok1 && ok2 && ok3 {
			if op == "plus" {
				return f.assign(c, call[1], n-d)
			}
			return f.assign(c, call[1], n+d)
		}
	}
	return false
}

// move makes `a op b` hold by changing a.
func (f *flipper) move(c reason.Condition, op string, a, b *ast.Term) bool {
	other, ok := f.known(c, b)
	if !ok {
		if op != "equal" && op != "eq" {
			return false
		}
		// Neither side is there: make both the same.
		return f.assign(c, a, "flipped") && f.assign(c, b, "flipped")
	}
	switch op {
	case "equal", "eq":
		return f.assign(c, a, other)
	case "neq":
		return f.assign(c, a, different(other))
	}
	switch n := other.(type) {
	case float64:
		by := map[string]float64{"lt": -1, "lte": 0, "gt": 1, "gte": 0}[op]
		return f.assign(c, a, n+by)
	case string:
		if op == "gt" || op == "gte" {
			return f.assign(c, a, n+"z")
		}
		return f.assign(c, a, "")
	}
	return false
}

func different(v any) any {
	switch v := v.(type) {
	case string:
		return v + "-flipped"
	case float64:
		return v + 1
	case bool:
		return !v
	}
	return "flipped"
}

// member makes x a member of a collection, or not.
func (f *flipper) member(c reason.Condition, x, coll *ast.Term, want bool) bool {
	list, ok := f.known(c, coll)
	elem, elemOK := f.known(c, x)
	at := f.spot(c, coll)
	if want {
		if at != nil && elemOK { // add
			have, _ := list.([]any)
			return f.set(at, append(slices.Clone(have), elem))
		}
		if members := elements(list); ok && len(members) > 0 {
			return f.assign(c, x, members[0])
		}
		return false
	}
	if f.spot(c, x) != nil {
		if ok {
			for i := range 100 {
				v := different(elem)
				if i > 0 {
					v = fmt.Sprint("flipped-", strconv.Itoa(i))
				}
				if !slices.ContainsFunc(elements(list), func(e any) bool { return reflect.DeepEqual(e, v) }) {
					return f.assign(c, x, v)
				}
			}
		}
		return f.assign(c, x, gone)
	}
	if at != nil {
		have, _ := list.([]any)
		return f.set(at, slices.DeleteFunc(slices.Clone(have), func(e any) bool { return reflect.DeepEqual(e, elem) }))
	}
	return false
}

func elements(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		var keys []string
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var out []any
		for _, k := range keys {
			out = append(out, v[k])
		}
		return out
	}
	return nil
}
