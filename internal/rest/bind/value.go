package bind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// A WrongError means that a value does not have the form of its Go type.
type WrongError struct {
	// Path are the members and indexes that lead to the value.
	Path []string
	// Cause is the error of the type's own decoder; nil: there was none.
	Cause error
}

// Error implements error.
func (e *WrongError) Error() string {
	return fmt.Sprintf("wrong value at %q: %v", e.Path, e.Cause)
}

// Unwrap returns the cause.
func (e *WrongError) Unwrap() error { return e.Cause }

func wrong(err error) *WrongError { return &WrongError{Cause: err} }

// below adds a step to the path of an error.
func (e *WrongError) below(step string) *WrongError {
	e.Path = append([]string{step}, e.Path...)
	return e
}

// setter sets a Go value from a JSON value.
type setter func(dst reflect.Value, v value.Value) *WrongError

// setters caches the setters of types: reflect.Type → setter.
type setters struct{ known sync.Map }

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// of returns the setter of a type. It panics on a type that no JSON value fits, which is an error
// in the program.
func (s *setters) of(t reflect.Type) setter {
	if known, ok := s.known.Load(t); ok {
		set, _ := known.(setter)
		return set
	}
	var own setter
	var late setter = func(dst reflect.Value, v value.Value) *WrongError { return own(dst, v) }
	s.known.Store(t, late) // a recursive type finds this entry, which is complete when it is called
	own = s.make(t)
	s.known.Store(t, own)
	return own
}

func (s *setters) make(t reflect.Type) setter {
	if reflect.PointerTo(t).Implements(unmarshaler) {
		return setOwn
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.pointer(t)
	case reflect.Struct:
		return s.object(t)
	case reflect.Slice:
		return s.list(t)
	case reflect.Map:
		return s.members(t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return setAny
		}
	case reflect.String:
		return scalar(func(dst reflect.Value, v value.Value) bool {
			text, ok := v.Str()
			dst.SetString(strings.Clone(text)) // v may share the bytes of the request
			return ok
		})
	case reflect.Bool:
		return scalar(func(dst reflect.Value, v value.Value) bool {
			b, ok := v.Bool()
			dst.SetBool(b)
			return ok
		})
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return scalar(func(dst reflect.Value, v value.Value) bool {
			n, ok := v.Int64()
			if ok = ok && !dst.OverflowInt(n); ok {
				dst.SetInt(n)
			}
			return ok
		})
	case reflect.Float32, reflect.Float64:
		return scalar(func(dst reflect.Value, v value.Value) bool {
			f, ok := v.Float64()
			dst.SetFloat(f)
			return ok
		})
	}
	panic(fmt.Sprintf("bind: no JSON value fits a %s", t))
}

// scalar does not change the value for null, like encoding/json.
func scalar(set func(reflect.Value, value.Value) bool) setter {
	return func(dst reflect.Value, v value.Value) *WrongError {
		if v.IsNull() || set(dst, v) {
			return nil
		}
		return wrong(nil)
	}
}

// setOwn calls the type's own decoder.
func setOwn(dst reflect.Value, v value.Value) *WrongError {
	own, _ := reflect.TypeAssert[json.Unmarshaler](dst.Addr())
	if err := own.UnmarshalJSON(v.AppendJSON(nil)); err != nil {
		return wrong(err)
	}
	return nil
}

func setAny(dst reflect.Value, v value.Value) *WrongError {
	if found := plain(v); found != nil {
		dst.Set(reflect.ValueOf(found))
	} else {
		dst.SetZero()
	}
	return nil
}

// plain returns v as encoding/json decodes it into an empty interface.
func plain(v value.Value) any {
	switch v.Kind() {
	case value.ObjectKind:
		out := make(map[string]any, v.Len())
		v.Each(func(name string, member value.Value) bool {
			out[strings.Clone(name)] = plain(member)
			return true
		})
		return out
	case value.ArrayKind:
		out := make([]any, 0, v.Len())
		for _, item := range v.Elems() {
			out = append(out, plain(item))
		}
		return out
	case value.StringKind:
		text, _ := v.Str()
		return strings.Clone(text)
	case value.NumberKind:
		f, _ := v.Float64()
		return f
	case value.BoolKind:
		b, _ := v.Bool()
		return b
	default:
		return nil
	}
}

func (s *setters) pointer(t reflect.Type) setter {
	set := s.of(t.Elem())
	return func(dst reflect.Value, v value.Value) *WrongError {
		if v.IsNull() {
			dst.SetZero()
			return nil
		}
		if dst.IsNil() {
			dst.Set(reflect.New(t.Elem()))
		}
		return set(dst.Elem(), v)
	}
}

func (s *setters) list(t reflect.Type) setter {
	if t.Elem().Kind() == reflect.Uint8 {
		panic(fmt.Sprintf("bind: a %s needs a decoder of its own", t))
	}
	set := s.of(t.Elem())
	return func(dst reflect.Value, v value.Value) *WrongError {
		if v.IsNull() {
			dst.SetZero()
			return nil
		}
		if v.Kind() != value.ArrayKind {
			return wrong(nil)
		}
		items := v.Elems()
		out := reflect.MakeSlice(t, len(items), len(items))
		for i, item := range items {
			if err := set(out.Index(i), item); err != nil {
				return err.below(strconv.Itoa(i))
			}
		}
		dst.Set(out)
		return nil
	}
}

func (s *setters) members(t reflect.Type) setter {
	if t.Key().Kind() != reflect.String {
		panic(fmt.Sprintf("bind: the keys of a %s are no texts", t))
	}
	set := s.of(t.Elem())
	return func(dst reflect.Value, v value.Value) *WrongError {
		if v.IsNull() {
			dst.SetZero()
			return nil
		}
		if v.Kind() != value.ObjectKind {
			return wrong(nil)
		}
		out := reflect.MakeMapWithSize(t, v.Len())
		var failed *WrongError
		v.Each(func(name string, member value.Value) bool {
			item := reflect.New(t.Elem()).Elem()
			if failed = set(item, member); failed != nil {
				failed = failed.below(name)
				return false
			}
			out.SetMapIndex(reflect.ValueOf(strings.Clone(name)).Convert(t.Key()), item)
			return true
		})
		dst.Set(out)
		return failed
	}
}

// object sets the fields of a struct by the names of their json tags. Fields of embedded structs
// count as its own. It skips members without a field.
func (s *setters) object(t reflect.Type) setter {
	type member struct {
		index []int
		set   setter
	}
	fields := map[string]member{}
	for _, f := range fieldsOf(t, nil) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer {
			panic(fmt.Sprintf("bind: %s.%s: an embedded pointer is not supported", t, f.Name))
		}
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if strings.Contains(options, "string") {
			panic(fmt.Sprintf("bind: %s.%s: the option string is not supported", t, f.Name))
		}
		name = cmp.Or(name, f.Name)
		if known, ok := fields[name]; ok && len(known.index) <= len(f.Index) {
			continue // an outer field hides those of embedded structs
		}
		fields[name] = member{f.Index, s.of(f.Type)}
	}
	return func(dst reflect.Value, v value.Value) *WrongError {
		if v.IsNull() {
			return nil
		}
		if v.Kind() != value.ObjectKind {
			return wrong(nil)
		}
		var failed *WrongError
		v.Each(func(name string, m value.Value) bool {
			if f, ok := fields[name]; ok {
				if failed = f.set(dst.FieldByIndex(f.index), m); failed != nil {
					failed = failed.below(name)
				}
			}
			return failed == nil
		})
		return failed
	}
}
