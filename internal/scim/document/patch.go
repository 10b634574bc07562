package document

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// maxOperations is how many operations a PATCH may have.
const maxOperations = 1000

// The operations of a PATCH.
const (
	opAdd     = "add"
	opReplace = "replace"
	opRemove  = "remove"
)

// change is one operation of a PATCH.
type change struct {
	op, path string
	value    any
}

func badSyntax(format string, args ...any) error {
	return fault.Newf(fault.BadRequest, "invalid_syntax", format, args...)
}

func noTarget(format string, args ...any) error {
	return fault.Newf(fault.BadRequest, "no_target", format, args...)
}

// member returns a member by its name, ignoring case as SCIM does; nil: there is none.
func member(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	for n, v := range m {
		if strings.EqualFold(n, name) {
			return v
		}
	}
	return nil
}

// changesOf parses the body of a PATCH.
func changesOf(body map[string]any) ([]change, error) {
	list, ok := member(body, "Operations").([]any)
	if !ok || len(list) == 0 {
		return nil, badSyntax("the body needs a list of Operations")
	}
	if len(list) > maxOperations {
		return nil, badSyntax("the body may have at most %d operations", maxOperations)
	}
	out := make([]change, len(list))
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, badSyntax("operation %d must be an object", i)
		}
		op, _ := member(m, "op").(string)
		at := member(m, "path")
		text, isText := at.(string)
		if at != nil && !isText {
			return nil, badSyntax("the path of operation %d must be text", i)
		}
		c := change{op: strings.ToLower(op), path: strings.TrimSpace(text), value: member(m, "value")}
		if c.op != opAdd && c.op != opReplace && c.op != opRemove {
			return nil, badSyntax("operation %d must be add, replace or remove", i)
		}
		out[i] = c
	}
	return out, nil
}

// Patch returns a document after all operations of a PATCH (RFC 7644 section 3.5.2). It does not
// change doc. Faults: invalid_syntax, invalid_path, invalid_value, no_target, mutability.
func Patch(k *Kind, doc, body map[string]any) (map[string]any, error) {
	list, err := changesOf(body)
	if err != nil {
		return nil, err
	}
	out := Clone(doc)
	for _, c := range list {
		if c.path == "" {
			err = withoutPath(k, out, c)
		} else {
			err = withPath(k, out, c)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withoutPath applies an operation whose value names the attributes. It skips unknown and read-only
// attributes, because clients send whole resources in this way.
func withoutPath(k *Kind, doc map[string]any, c change) error {
	parts, ok := c.value.(map[string]any)
	if c.op == opRemove || !ok {
		return noTarget("an operation without a path must add or replace, and its value must be an object")
	}
	for name, v := range parts {
		p, err := parsePath(k, name)
		if err != nil || p.attribute != nil && p.leafMutability() == readOnly {
			continue
		}
		if err := p.apply(k, doc, change{op: c.op, value: v}); err != nil {
			return err
		}
	}
	return nil
}

// withPath applies an operation with a path.
func withPath(k *Kind, doc map[string]any, c change) error {
	p, err := parsePath(k, c.path)
	if err != nil {
		return err
	}
	if p.attribute != nil && p.leafMutability() == readOnly {
		return fault.Newf(fault.BadRequest, "mutability", "%s cannot be changed", p.attribute.Name)
	}
	return p.apply(k, doc, c)
}

func (p path) leafMutability() string {
	if p.sub != nil && p.sub.Mutability == readOnly {
		return readOnly
	}
	return p.attribute.Mutability
}

// apply applies an operation at the path. To add or replace with null is to remove.
func (p path) apply(k *Kind, doc map[string]any, c change) error {
	if c.op != opRemove && c.value == nil {
		c.op = opRemove
	}
	if p.whole != "" {
		return p.applyExtension(k, doc, c)
	}
	into := p.container(doc)
	if into == nil {
		into = map[string]any{}
		doc[p.extension] = into
	}
	var err error
	switch {
	case p.attribute.MultiValued:
		err = p.applyList(into, c)
	case p.sub != nil:
		err = p.applySub(into, c)
	default:
		err = p.applySingle(into, c)
	}
	if p.extension != "" && len(into) == 0 {
		delete(doc, p.extension)
	}
	return err
}

// applyExtension applies an operation to a whole extension.
func (p path) applyExtension(k *Kind, doc map[string]any, c change) error {
	if c.op == opRemove {
		delete(doc, p.whole)
		return nil
	}
	part, err := normalObject(k.extension(p.whole).Attributes, c.value, p.whole)
	if err != nil {
		return err
	}
	before, _ := doc[p.whole].(map[string]any)
	if before == nil || c.op == opReplace {
		before = map[string]any{}
	}
	maps.Copy(before, part)
	if doc[p.whole] = before; len(before) == 0 {
		delete(doc, p.whole)
	}
	return nil
}

// applySingle sets or removes an attribute with one value. Parts of a complex value that are not
// sent stay.
func (p path) applySingle(into map[string]any, c change) error {
	name := p.attribute.Name
	if c.op == opRemove {
		delete(into, name)
		return nil
	}
	v, err := single(p.attribute, c.value)
	if err != nil {
		return err
	}
	before, nested := into[name].(map[string]any)
	parts, isObject := v.(map[string]any)
	switch {
	case v == nil && p.attribute.Type == typeComplex: // no known part was sent
	case v == nil:
		delete(into, name)
	case nested && isObject:
		maps.Copy(before, parts)
	default:
		into[name] = v
	}
	return nil
}

// applySub sets or removes a part of a complex attribute.
func (p path) applySub(into map[string]any, c change) error {
	m, _ := into[p.attribute.Name].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	if err := p.setPart(m, c); err != nil {
		return err
	}
	if into[p.attribute.Name] = m; len(m) == 0 {
		delete(into, p.attribute.Name)
	}
	return nil
}

// setPart sets or removes a sub-attribute of an object.
func (p path) setPart(m map[string]any, c change) error {
	if c.op == opRemove {
		delete(m, p.sub.Name)
		return nil
	}
	v, err := single(p.sub, c.value)
	if err != nil {
		return err
	}
	if m[p.sub.Name] = v; v == nil {
		delete(m, p.sub.Name)
	}
	return nil
}

// applyList changes a multi-valued attribute, or those of its elements that the path selects.
func (p path) applyList(into map[string]any, c change) error {
	name := p.attribute.Name
	list := listOf(into[name])
	var err error
	switch {
	case p.filter == nil && p.sub == nil:
		list, err = p.applyAll(list, c)
	case c.op == opRemove:
		list = p.removeSelected(list)
	default:
		list, err = p.setSelected(list, c)
	}
	if err != nil {
		return err
	}
	if most := listBound(p.attribute); len(list) > most {
		return badValue("%s may have at most %d values", name, most)
	}
	if into[name] = list; len(list) == 0 {
		delete(into, name)
	}
	return nil
}

// applyAll adds the sent values to a list, replaces the list with them, or removes them from it. A
// remove without values removes all.
func (p path) applyAll(list []any, c change) ([]any, error) {
	if c.op == opRemove && c.value == nil {
		return nil, nil
	}
	v, err := normal(p.attribute, c.value)
	if err != nil {
		return nil, err
	}
	sent := listOf(v)
	switch c.op {
	case opReplace:
		return sent, nil
	case opRemove: // Entra ID names the members to remove as the value
		gone := map[string]bool{}
		for _, v := range sent {
			gone[p.key(v)] = true
		}
		return slices.DeleteFunc(list, func(v any) bool { return gone[p.key(v)] }), nil
	}
	at := map[string]int{}
	for i, v := range list {
		at[p.key(v)] = i
	}
	latest := -1
	for _, v := range sent {
		i, known := at[p.key(v)]
		if known {
			list[i] = v
		} else {
			i = len(list)
			at[p.key(v)], list = i, append(list, v)
		}
		if m, ok := v.(map[string]any); ok && m["primary"] == true {
			latest = i
		}
	}
	onePrimary(list, latest)
	return list, nil
}

// key returns the identity of an element of a list: its value and type. Two elements with the same
// key are the same.
func (p path) key(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	value, _ := m["value"].(string)
	if p.attribute.Name == "members" {
		return value
	}
	kind, _ := m["type"].(string)
	if value == "" { // an address
		return fmt.Sprint(m)
	}
	return foldFor(p.attribute, value) + "\x00" + foldFor(p.attribute, kind)
}

func (p path) selects(v any) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	return m, ok && (p.filter == nil || p.filter.Match(m))
}

// removeSelected removes the selected elements, or a part of each.
func (p path) removeSelected(list []any) []any {
	return slices.DeleteFunc(list, func(v any) bool {
		m, selected := p.selects(v)
		if selected && p.sub != nil {
			delete(m, p.sub.Name)
			return len(m) == 0
		}
		return selected
	})
}

// setSelected changes the selected elements. If there is none, it adds the element that the filter
// describes: clients add the first address of a type in this way.
func (p path) setSelected(list []any, c change) ([]any, error) {
	latest, found := -1, false
	for i, v := range list {
		m, selected := p.selects(v)
		if !selected {
			continue
		}
		found = true
		if err := p.setElement(m, c); err != nil {
			return nil, err
		}
		if m["primary"] == true && (p.sub == nil || p.sub.Name == "primary") {
			latest = i
		}
	}
	if !found {
		m := map[string]any{}
		if p.filter != nil && !p.filter.describe(m) {
			return nil, noTarget("no value of %s matches the path", p.attribute.Name)
		}
		if err := p.setElement(m, c); err != nil {
			return nil, err
		}
		list, latest = append(list, m), len(list)
	}
	onePrimary(list, latest)
	return list, nil
}

// setElement changes one element of a list, or a part of it.
func (p path) setElement(m map[string]any, c change) error {
	if p.sub != nil {
		return p.setPart(m, c)
	}
	v, err := single(p.attribute, c.value)
	if err != nil {
		return err
	}
	parts, _ := v.(map[string]any)
	maps.Copy(m, parts)
	return nil
}

// describe fills an element with the values that a filter requires. It reports false if the filter
// is anything but equalities joined by and.
func (f *Filter) describe(m map[string]any) bool {
	switch {
	case f.op == opAnd:
		return f.left.describe(m) && f.right.describe(m)
	case f.op == opEqual && f.value != nil && f.ref.leaf().Mutability != readOnly:
		m[f.ref.attribute.Name] = f.raw
		return true
	}
	return false
}
