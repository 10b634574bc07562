// Package bind moves data between HTTP and the structs of typed operations. It fills the input from
// path, query and header parameters and a checked JSON value, and reads header fields, status and
// body from the output. Fields are found once, when an operation is registered; a struct that
// cannot be bound panics there.
package bind

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Input fills the input of an operation.
type Input struct {
	params []param
	body   []int // index of the field Body; nil: there is none
	set    setter
}

// param is a field that a parameter goes to.
type param struct {
	index    []int
	in, name string
	absent   string // the value if the request has none
	explode  bool
	parse    func(dst reflect.Value, text string) error
}

// InputOf finds the fields of an input, which is a struct.
func InputOf(t reflect.Type) *Input {
	in := &Input{}
	for _, f := range fieldsOf(t, nil) {
		if f.Name == "Body" && len(f.Index) == 1 {
			in.body, in.set = f.Index, new(setters).of(f.Type)
			continue
		}
		for _, where := range []string{"path", "query", "header"} {
			name, options, _ := strings.Cut(f.Tag.Get(where), ",")
			if name == "" || f.Anonymous {
				continue
			}
			if where == "header" {
				name = http.CanonicalHeaderKey(name)
			}
			in.params = append(in.params, param{
				index: f.Index, in: where, name: name, absent: f.Tag.Get("default"),
				explode: strings.Contains(options, "explode"), parse: parserOf(f.Type),
			})
		}
	}
	return in
}

// Params sets the parameters of in, a struct of the Input's type. query is the parsed
// query of the request.
func (i *Input) Params(in reflect.Value, req *http.Request, query url.Values) error {
	for n := range i.params {
		p := &i.params[n]
		var text string
		switch p.in {
		case "path":
			text = req.PathValue(p.name)
		case "query":
			text = query.Get(p.name)
			if p.explode {
				text = strings.Join(query[p.name], ",")
			}
		default:
			text = req.Header.Get(p.name)
		}
		if text = cmp.Or(text, p.absent); text == "" {
			continue
		}
		if err := p.parse(in.FieldByIndex(p.index), text); err != nil {
			return fmt.Errorf("%s.%s: %w", p.in, p.name, err)
		}
	}
	return nil
}

// Body sets the body of in from a value. It does nothing if v is undefined. The error is a
// *WrongError.
func (i *Input) Body(in reflect.Value, v value.Value) error {
	if i.body == nil || !v.Defined() {
		return nil
	}
	if err := i.set(in.FieldByIndex(i.body), v); err != nil {
		return err
	}
	return nil
}

// fieldsOf lists the fields of a struct and of the structs embedded in it, each with its index from
// t. Unlike reflect.VisibleFields, it includes fields that an outer field of the same Go name
// hides, because tags name the fields here.
func fieldsOf(t reflect.Type, above []int) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		f.Index = append(slices.Clone(above), i)
		out = append(out, f)
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			out = append(out, fieldsOf(f.Type, f.Index)...)
		}
	}
	return out
}

var timeType = reflect.TypeFor[time.Time]()

// parserOf finds how to read a parameter's text.
func parserOf(t reflect.Type) func(reflect.Value, string) error {
	switch t.Kind() {
	case reflect.String:
		return func(dst reflect.Value, text string) error { dst.SetString(text); return nil }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(dst reflect.Value, text string) error {
			n, err := strconv.ParseInt(text, 10, t.Bits())
			dst.SetInt(n)
			return err
		}
	case reflect.Float64:
		return func(dst reflect.Value, text string) error {
			f, err := strconv.ParseFloat(text, 64)
			dst.SetFloat(f)
			return err
		}
	case reflect.Bool:
		return func(dst reflect.Value, text string) error {
			b, err := strconv.ParseBool(text)
			dst.SetBool(b)
			return err
		}
	case reflect.Slice:
		return listParser(t)
	case reflect.Struct:
		if t == timeType {
			return func(dst reflect.Value, text string) error {
				at, err := time.Parse(time.RFC3339Nano, text)
				dst.Set(reflect.ValueOf(at))
				return err
			}
		}
	}
	panic(fmt.Sprintf("bind: a parameter cannot be a %s", t))
}

// listParser reads values with commas between them.
func listParser(t reflect.Type) func(reflect.Value, string) error {
	parse := parserOf(t.Elem())
	return func(dst reflect.Value, text string) error {
		texts := strings.Split(text, ",")
		out := reflect.MakeSlice(t, len(texts), len(texts))
		for i, one := range texts {
			if err := parse(out.Index(i), one); err != nil {
				return err
			}
		}
		dst.Set(out)
		return nil
	}
}

// Output reads the output of an operation.
type Output struct {
	headers      []header
	status, body []int // indexes of the fields; nil: there is none
}

type header struct {
	index []int
	name  string
}

// OutputOf finds the fields of an output, which is a struct. Header fields are texts.
func OutputOf(t reflect.Type) *Output {
	out := &Output{}
	for _, f := range fieldsOf(t, nil) {
		name := f.Tag.Get("header")
		switch {
		case len(f.Index) == 1 && f.Name == "Body":
			out.body = f.Index
		case len(f.Index) == 1 && f.Name == "Status":
			out.status = f.Index
		case name != "" && !f.Anonymous:
			if f.Type.Kind() != reflect.String {
				panic(fmt.Sprintf("bind: %s.%s: a header is a text", t, f.Name))
			}
			out.headers = append(out.headers, header{f.Index, http.CanonicalHeaderKey(name)})
		}
	}
	return out
}

// Headers sets the header fields of out that are not empty.
func (o *Output) Headers(out reflect.Value, h http.Header) {
	for _, f := range o.headers {
		if text := out.FieldByIndex(f.index).String(); text != "" {
			h[f.name] = []string{text}
		}
	}
}

// Status returns the status of out, or otherwise if it has none.
func (o *Output) Status(out reflect.Value, otherwise int) int {
	if o.status == nil {
		return otherwise
	}
	return int(out.FieldByIndex(o.status).Int())
}

// Body returns the body of out; ok is false if it has none.
func (o *Output) Body(out reflect.Value) (body reflect.Value, ok bool) {
	if o.body == nil {
		return reflect.Value{}, false
	}
	return out.FieldByIndex(o.body), true
}
