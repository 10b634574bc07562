package source

import (
	"errors"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The bounds of a path.
const (
	maxPath  = 500
	maxSteps = 32
)

// path is a JSONPath (RFC 9535) of a subset: the root $, members as .name, ['name'] and ["name"],
// elements as [0], and all children as .* and [*]. It has no filters, slices or descendants, so
// that evaluating a path costs at most one walk through the document.
type path struct {
	steps []step
	// many is true if the path may lead to more than one value.
	many bool
}

// step leads from a value to its children.
type step struct {
	name  string
	index int
	kind  stepKind
}

type stepKind uint8

const (
	member stepKind = iota
	element
	children
)

// parsePath parses a path. A text that does not start with $ is the name of one member.
func parsePath(text string) (path, error) {
	if len(text) > maxPath {
		return path{}, errors.New("must not be longer than " + strconv.Itoa(maxPath) + " bytes")
	}
	rest, rooted := strings.CutPrefix(text, "$")
	if !rooted {
		if text == "" {
			return path{}, errors.New("must be a JSONPath such as $.items[*], or the name of a member")
		}
		return path{steps: []step{{name: text}}}, nil
	}
	var p path
	for rest != "" {
		s, after, err := parseStep(rest)
		if err != nil {
			return path{}, err
		}
		if len(p.steps) == maxSteps {
			return path{}, errors.New("must not have more than " + strconv.Itoa(maxSteps) + " steps")
		}
		p.steps, p.many, rest = append(p.steps, s), p.many || s.kind == children, after
	}
	return p, nil
}

// parseStep parses the first step of text, and returns the rest.
func parseStep(text string) (s step, rest string, err error) {
	at := func() error {
		return errors.New("unsupported JSONPath at " + strconv.Quote(text) + ": use .name, ['name'], [0], [*] or .*")
	}
	switch {
	case strings.HasPrefix(text, ".*"):
		return step{kind: children}, text[2:], nil
	case strings.HasPrefix(text, "[*]"):
		return step{kind: children}, text[3:], nil
	case text[0] == '.':
		n := 1
		for n < len(text) && plainName(text[n]) {
			n++
		}
		if n == 1 {
			return s, "", at()
		}
		return step{name: text[1:n]}, text[n:], nil
	case strings.HasPrefix(text, "['"), strings.HasPrefix(text, `["`):
		name, rest, ok := strings.Cut(text[2:], text[1:2]+"]")
		if !ok || name == "" || strings.ContainsAny(name, `\`+text[1:2]) {
			return s, "", at()
		}
		return step{name: name}, rest, nil
	case text[0] == '[':
		digits, rest, ok := strings.Cut(text[1:], "]")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n < 0 || strconv.Itoa(n) != digits {
			return s, "", at()
		}
		return step{kind: element, index: n}, rest, nil
	}
	return s, "", at()
}

// plainName reports whether a byte may be part of a name after a dot.
func plainName(c byte) bool {
	return c == '_' || c == '-' || c >= 0x80 || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// all returns the values that the path leads to, in the order of the document. The members of an
// object are sorted by name.
func (p path) all(v value.Value) []value.Value {
	at := []value.Value{v}
	for _, s := range p.steps {
		var next []value.Value
		for _, v := range at {
			next = s.from(v, next)
		}
		at = next
	}
	return at
}

// one returns the value that the path leads to, or undefined if there is none. If the path may
// lead to many, one returns the array of all.
func (p path) one(v value.Value) value.Value {
	found := p.all(v)
	switch {
	case p.many:
		return value.Array(found...)
	case len(found) == 0:
		return value.Value{}
	}
	return found[0]
}

// from appends the children of v that the step leads to.
func (s step) from(v value.Value, to []value.Value) []value.Value {
	switch kind := v.Kind(); {
	case s.kind == member && kind == value.ObjectKind:
		if m := v.Get(s.name); m.Defined() {
			to = append(to, m)
		}
	case s.kind == element && kind == value.ArrayKind && s.index < v.Len():
		to = append(to, v.Index(s.index))
	case s.kind == children && kind == value.ArrayKind:
		to = append(to, v.Elems()...)
	case s.kind == children && kind == value.ObjectKind:
		v.Each(func(_ string, m value.Value) bool {
			to = append(to, m)
			return true
		})
	}
	return to
}
