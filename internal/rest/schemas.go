package rest

import (
	"cmp"
	"path"
	"reflect"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// tuneHuma sets package variables of huma. They are the same for every Router, so they are set
// once.
var tuneHuma = sync.OnceFunc(func() {
	huma.DefaultArrayNullable = false
})

// schemaName names the schema of a type by the names of its package and its own. It omits the
// package if the type's name begins with it, or if the package belongs to the kit or the API. A
// package inside another counts as that one, so that splitting a package renames no schema.
func (d Document) schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	pkg := path.Base(t.PkgPath())
	if _, inner, ok := strings.Cut(t.PkgPath(), "/internal/"); ok {
		pkg, _, _ = strings.Cut(inner, "/")
	}
	if t.Name() == "" || t.PkgPath() == "" || pkg == "rest" || IsBelow(t.PkgPath(), d.OwnTypes) {
		return camel(name)
	}
	title := cmp.Or(d.Prefixes[t.PkgPath()], upper(pkg))
	if strings.HasPrefix(name, title) {
		return name
	}
	return title + name
}

// camel joins words separated by dashes, such as operation ids.
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
