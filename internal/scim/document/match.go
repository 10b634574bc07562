package document

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// foldFor returns a text in the form in which values of an attribute are compared: folded, unless
// the attribute is case-exact.
func foldFor(a *Attribute, s string) string {
	if a.CaseExact {
		return s
	}
	return norm.NFKC.String(cases.Fold().String(norm.NFKC.String(s)))
}

// Match reports whether a document matches the filter.
func (f *Filter) Match(doc map[string]any) bool {
	switch f.op {
	case opAnd:
		return f.left.Match(doc) && f.right.Match(doc)
	case opOr:
		return f.left.Match(doc) || f.right.Match(doc)
	case opNot:
		return !f.left.Match(doc)
	case opHas:
		return slices.ContainsFunc(elementsOf(f.ref.container(doc)[f.ref.attribute.Name]), f.selects)
	}
	return f.compare(f.ref.values(doc))
}

// selects reports whether an element matches the filter in brackets, and the comparison after it.
func (f *Filter) selects(element map[string]any) bool {
	return f.left.Match(element) && (f.right == nil || f.right.Match(element))
}

// container returns the object that has the attribute: the document, or an extension in it; nil:
// the document does not have the extension.
func (r ref) container(doc map[string]any) map[string]any {
	if r.extension == "" {
		return doc
	}
	m, _ := doc[r.extension].(map[string]any)
	return m
}

// values returns all values of the reference in a document.
func (r ref) values(doc map[string]any) []any {
	list := listOf(r.container(doc)[r.attribute.Name])
	leaf := r.leaf()
	if leaf == r.attribute {
		return list
	}
	var out []any
	for _, element := range list {
		if m, ok := element.(map[string]any); ok {
			if v, ok := m[leaf.Name]; ok {
				out = append(out, v)
			}
		}
	}
	return out
}

func listOf(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	}
	return []any{v}
}

// elementsOf returns the elements of a multi-valued attribute that are objects.
func elementsOf(v any) []map[string]any {
	var out []map[string]any
	for _, element := range listOf(v) {
		if m, ok := element.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (f *Filter) compare(found []any) bool {
	switch {
	case f.op == opPresent:
		return slices.ContainsFunc(found, present)
	case f.value == nil: // eq null, ne null
		return slices.ContainsFunc(found, present) == (f.op == opDiffers)
	case f.op == opDiffers:
		return !slices.ContainsFunc(found, func(v any) bool { return f.holds(opEqual, v) })
	}
	return slices.ContainsFunc(found, func(v any) bool { return f.holds(f.op, v) })
}

func present(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// holds reports whether one value satisfies a comparison with the filter's value.
func (f *Filter) holds(op string, v any) bool {
	switch want := f.value.(type) {
	case bool:
		return v == want
	case time.Time:
		s, _ := v.(string)
		t, err := time.Parse(time.RFC3339, s)
		return err == nil && ordered(op, t.Compare(want))
	case string:
		s, ok := v.(string)
		if !ok {
			return false
		}
		s = foldFor(f.ref.leaf(), s)
		switch op {
		case opHolds:
			return strings.Contains(s, want)
		case opBegins:
			return strings.HasPrefix(s, want)
		case opEnds:
			return strings.HasSuffix(s, want)
		}
		return ordered(op, strings.Compare(s, want))
	}
	return false
}

func ordered(op string, sign int) bool {
	switch op {
	case opEqual:
		return sign == 0
	case opOver:
		return sign > 0
	case opAtLeast:
		return sign >= 0
	case opUnder:
		return sign < 0
	case opAtMost:
		return sign <= 0
	}
	return false
}

// Equals returns the text that an attribute, such as userName or emails.value, has in every document
// that matches the filter; false: the filter does not require one. Callers use it to narrow a search
// before they apply the filter.
func (f *Filter) Equals(attribute string) (string, bool) {
	switch f.op {
	case opAnd:
		if s, ok := f.left.Equals(attribute); ok {
			return s, true
		}
		return f.right.Equals(attribute)
	case opHas:
		for _, inner := range []*Filter{f.left, f.right} {
			if inner == nil {
				continue
			}
			if name, ok := strings.CutPrefix(attribute, f.ref.attribute.Name+"."); ok {
				if s, ok := inner.Equals(name); ok {
					return s, true
				}
			}
		}
	case opEqual:
		name := f.ref.attribute.Name
		if leaf := f.ref.leaf(); leaf != f.ref.attribute {
			name += "." + leaf.Name
		}
		s, ok := f.value.(string)
		return s, ok && f.ref.extension == "" && name == attribute
	}
	return "", false
}

// Uses reports whether the filter refers to an attribute of the core schema. A nil filter does not.
func (f *Filter) Uses(attribute string) bool {
	if f == nil {
		return false
	}
	return f.ref.attribute != nil && f.ref.extension == "" && f.ref.attribute.Name == attribute || f.left.Uses(attribute) || f.right.Uses(attribute)
}
