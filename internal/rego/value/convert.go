package value

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// FromAny converts a Go value: what encoding/json decodes to (numbers as float64 or json.Number),
// scalars, maps and slices of them, and Values. It converts anything else through encoding/json.
func FromAny(x any) (Value, error) {
	switch x := x.(type) {
	case nil:
		return Null(), nil
	case Value:
		return x, nil
	case bool:
		return Bool(x), nil
	case string:
		return String(x), nil
	case json.Number:
		return Number(string(x))
	case float64:
		return fromFloat(x)
	case int:
		return Int(int64(x)), nil
	case int64:
		return Int(x), nil
	case int32:
		return Int(int64(x)), nil
	case uint64:
		if x > math.MaxInt64 {
			return Number(strconv.FormatUint(x, 10))
		}
		return Int(int64(x)), nil
	case []any:
		return fromSlice(x)
	case []string:
		return fromSlice(x)
	case []Value:
		return Array(slices.Clone(x)...), nil
	case map[string]any:
		return fromMap(x)
	case map[string]string:
		return fromMap(x)
	case map[string]Value:
		return fromMap(x)
	}
	data, err := json.Marshal(x)
	if err != nil {
		return Value{}, fmt.Errorf("value of %T: %w", x, err)
	}
	return Decode(data, Limits{})
}

func fromFloat(f float64) (Value, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return Value{}, errNumber
	}
	return Float(f), nil
}

func fromSlice[T any](xs []T) (Value, error) {
	out := make([]Value, len(xs))
	for i, x := range xs {
		v, err := FromAny(x)
		if err != nil {
			return Value{}, err
		}
		out[i] = v
	}
	return Array(out...), nil
}

func fromMap[T any](m map[string]T) (Value, error) {
	o := room(len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, err := FromAny(m[k])
		if err != nil {
			return Value{}, err
		}
		if v.Defined() {
			o.mem = append(o.mem, Pair{String(k), v})
		}
	}
	return objectOf(o), nil
}

// Any returns v in the types of encoding/json: nil, bool, json.Number, string, []any and
// map[string]any. Sets become sorted slices, undefined becomes nil.
func (v Value) Any() any {
	switch v.k {
	case BoolKind:
		return v.n != 0
	case NumberKind:
		return json.Number(v.NumberText())
	case StringKind:
		return v.str()
	case ArrayKind, SetKind:
		out := make([]any, 0, v.Len())
		for _, e := range v.elems() {
			out = append(out, e.Any())
		}
		return out
	case ObjectKind:
		out := make(map[string]any, v.Len())
		for _, m := range v.obj().mem {
			k, ok := m.K.Str()
			if !ok {
				k = string(m.K.AppendJSON(nil))
			}
			out[k] = m.V.Any()
		}
		return out
	}
	return nil
}

// AST converts v to a value of OPA; nil if v is undefined.
func (v Value) AST() ast.Value {
	switch v.k {
	case NullKind:
		return ast.NullValue
	case BoolKind:
		return ast.Boolean(v.n != 0)
	case NumberKind:
		return ast.Number(v.NumberText())
	case StringKind:
		return ast.String(v.str())
	case ArrayKind:
		return ast.NewArray(v.terms()...)
	case SetKind:
		return ast.NewSet(v.terms()...)
	case ObjectKind:
		mem := v.obj().mem
		kv := make([][2]*ast.Term, len(mem))
		for i := range mem {
			kv[i] = [2]*ast.Term{mem[i].K.Term(), mem[i].V.Term()}
		}
		return ast.NewObject(kv...)
	}
	return nil
}

// Term converts v to a term of OPA; nil if v is undefined.
func (v Value) Term() *ast.Term {
	switch {
	case v.k == UndefinedKind:
		return nil
	case v.k == BoolKind:
		return ast.InternedTerm(v.n != 0)
	case v.IsInt():
		return ast.InternedTerm(v.n)
	}
	return ast.NewTerm(v.AST())
}

func (v Value) terms() []*ast.Term {
	e := v.elems()
	out := make([]*ast.Term, len(e))
	for i := range e {
		out[i] = e[i].Term()
	}
	return out
}

// FromAST converts a ground value of OPA. It fails for a variable, a reference or a comprehension.
// nil becomes undefined.
func FromAST(x ast.Value) (Value, error) {
	switch x := x.(type) {
	case nil:
		return Value{}, nil
	case ast.Null:
		return Null(), nil
	case ast.Boolean:
		return Bool(bool(x)), nil
	case ast.Number:
		return Number(string(x))
	case ast.String:
		return String(string(x)), nil
	case *ast.Array:
		out := make([]Value, 0, x.Len())
		err := x.Iter(func(t *ast.Term) error { return appendTerm(&out, t) })
		return arrayOf(out), err
	case ast.Set:
		out := make([]Value, 0, x.Len())
		err := x.Iter(func(t *ast.Term) error { return appendTerm(&out, t) })
		return SetOf(out), err
	case ast.Object:
		mem := make([]Pair, 0, x.Len())
		err := x.Iter(func(k, v *ast.Term) error {
			kv, err := FromAST(k.Value)
			if err != nil {
				return err
			}
			vv, err := FromAST(v.Value)
			mem = append(mem, Pair{kv, vv})
			return err
		})
		return objectOf(&object{mem: mem}), err
	}
	return Value{}, fmt.Errorf("%s is not a value", ast.ValueName(x))
}

func appendTerm(out *[]Value, t *ast.Term) error {
	v, err := FromAST(t.Value)
	*out = append(*out, v)
	return err
}
