package rest

import (
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// tuneHuma sets what huma keeps in package variables. They are the same for
// every Router, so setting them once is enough.
var tuneHuma = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
	huma.NewErrorWithContext = func(ctx huma.Context, status int, _ string, errs ...error) huma.StatusError {
		x, ok := ctx.Context().Value(exchangeKey{}).(*exchange)
		if !ok {
			return &answer{fault: AsFault(fmt.Errorf("huma: status %d without an exchange", status)), status: http.StatusInternalServerError}
		}
		return x.answer(fromHuma(status, errs))
	}
})

// fromHuma makes a fault of what huma found, which is little: schemas have been
// checked before. Values are left out, and so are the decoder's words.
func fromHuma(status int, errs []error) error {
	if status >= http.StatusInternalServerError {
		return AsFault(fmt.Errorf("huma: %v", errs))
	}
	var ds []fault.Detail
	for _, err := range errs {
		switch e := err.(type) { //nolint:errorlint // huma hands over each error as it was made
		case *fault.Error:
			if len(e.Details) == 0 {
				return e
			}
			ds = append(ds, e.Details...)
		case huma.ErrorDetailer:
			d := e.ErrorDetail()
			where, isBody := strings.CutPrefix(d.Location, "body")
			switch {
			case isBody && where == "" && d.Value != nil:
				ds = append(ds, fault.Detail{Message: "a value does not have the form that is expected of it"})
			case isBody:
				where = strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(where)
				ds = append(ds, fault.Detail{Pointer: where, Message: d.Message})
			default:
				ds = append(ds, fault.Detail{Pointer: d.Location, Message: d.Message})
			}
		default:
			ds = append(ds, fault.Detail{Message: "a value does not have the form that is expected of it"})
		}
	}
	return invalid(ds)
}

// schemaName names the schema of a type by the names of its package and its own.
// The package is left out where the type's name begins with it, and where the
// package is the kit's or the API's own. A package within another counts as that one:
// parting a package renames no schema.
func (d Document) schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	pkg := path.Base(t.PkgPath())
	if _, inner, ok := strings.Cut(t.PkgPath(), "/internal/"); ok {
		pkg, _, _ = strings.Cut(inner, "/")
	}
	if t.Name() == "" || t.PkgPath() == "" || pkg == "rest" || Under(t.PkgPath(), d.OwnTypes) {
		return camel(name)
	}
	title := upper(pkg)
	if strings.HasPrefix(name, title) {
		return name
	}
	return title + name
}

// camel joins words split by dashes, as operation ids are.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "-") {
		b.WriteString(upper(word))
	}
	return b.String()
}

func upper(s string) string {
	first, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[n:]
}
