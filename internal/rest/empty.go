package rest

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// filler replaces the nil lists and maps of an answer with empty ones, so that no list
// is ever null. It inspects each type once and skips types that hold neither.
type filler struct{ plans sync.Map } // reflect.Type → fill

// fill fixes one addressable value.
type fill func(v reflect.Value)

var marshaler = reflect.TypeFor[json.Marshaler]()

// fix fixes the body of an answer.
func (f *filler) fix(body reflect.Value) {
	if fix := f.plan(body.Type(), false); fix != nil {
		fix(body)
	}
}

// plan finds what to do for a type, nil for nothing. omit says that the member is
// left out when it is empty, so that it may stay nil.
func (f *filler) plan(t reflect.Type, omit bool) fill {
	type key struct {
		t    reflect.Type
		omit bool
	}
	if known, ok := f.plans.Load(key{t, omit}); ok {
		fix, _ := known.(fill)
		return fix
	}
	// A recursive type finds this entry, which is complete when it is called.
	var own fill
	var late fill = func(v reflect.Value) {
		if own != nil {
			own(v)
		}
	}
	f.plans.Store(key{t, omit}, late)
	own = f.make(t, omit)
	f.plans.Store(key{t, omit}, own)
	return own
}

func (f *filler) make(t reflect.Type, omit bool) fill {
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		if inner := f.plan(t.Elem(), false); inner != nil {
			return func(v reflect.Value) {
				if !v.IsNil() {
					inner(v.Elem())
				}
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil
		}
		inner := f.plan(t.Elem(), false)
		return func(v reflect.Value) {
			if v.IsNil() {
				if !omit {
					v.Set(reflect.MakeSlice(t, 0, 0))
				}
				return
			}
			if inner != nil {
				for i := range v.Len() {
					inner(v.Index(i))
				}
			}
		}
	case reflect.Map:
		if omit {
			return nil
		}
		return func(v reflect.Value) {
			if v.IsNil() {
				v.Set(reflect.MakeMap(t))
			}
		}
	case reflect.Struct:
		return f.makeStruct(t)
	}
	return nil
}

func (f *filler) makeStruct(t reflect.Type) fill {
	type step struct {
		field int
		fix   fill
	}
	var steps []step
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag.Get("json")
		if !field.IsExported() || tag == "-" {
			continue
		}
		if fix := f.plan(field.Type, strings.Contains(tag, ",omit")); fix != nil {
			steps = append(steps, step{i, fix})
		}
	}
	if steps == nil {
		return nil
	}
	return func(v reflect.Value) {
		for _, s := range steps {
			s.fix(v.Field(s.field))
		}
	}
}
