package document

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Bounds on filters and paths.
const (
	// MaxFilter is the largest size of a filter or path in bytes.
	MaxFilter = 4096
	maxNested = 16
	maxTerms  = 64
)

// The operators of filters. In a node with opHas, left is the filter in brackets on the elements
// of a multi-valued attribute, and right, if set, is a comparison with a part of the element.
const (
	opAnd     = "and"
	opOr      = "or"
	opNot     = "not"
	opHas     = "[]"
	opPresent = "pr"
	opEqual   = "eq"
	opDiffers = "ne"
	opHolds   = "co"
	opBegins  = "sw"
	opEnds    = "ew"
	opOver    = "gt"
	opUnder   = "lt"
	opAtLeast = "ge"
	opAtMost  = "le"
)

// ref names a value: an attribute of a document or of an element, and perhaps a sub-attribute of
// it.
type ref struct {
	extension string
	attribute *Attribute
	sub       *Attribute
}

// leaf returns the attribute whose values are compared. For a complex attribute it is the
// sub-attribute value, if there is one.
func (r ref) leaf() *Attribute {
	if r.sub != nil {
		return r.sub
	}
	if r.attribute.Type == typeComplex {
		if v := r.attribute.sub("value"); v != nil {
			return v
		}
	}
	return r.attribute
}

// Filter is a parsed filter (RFC 7644 section 3.4.2.2).
type Filter struct {
	op          string
	left, right *Filter
	ref         ref
	value       any // string, bool, time.Time or nil; strings are folded
	raw         any // the value as the client wrote it
}

// path is a parsed path of a PATCH (RFC 7644 section 3.5.2).
type path struct {
	ref
	filter *Filter
	// whole is the URI of an extension if the path names all of it, or else empty.
	whole string
}

func badFilter(format string, args ...any) error {
	return fault.Newf(fault.BadRequest, "invalid_filter", format, args...)
}

func badPath(format string, args ...any) error {
	return fault.Newf(fault.BadRequest, "invalid_path", format, args...)
}

// parser parses a filter from left to right, without backtracking.
type parser struct {
	kind   *Kind
	inside *Attribute // the attribute whose brackets are being parsed; nil: none
	text   string
	at     int
	depth  int
	terms  int
}

// ParseFilter parses a filter on resources of a kind. Its faults are invalid_filter.
func ParseFilter(k *Kind, text string) (*Filter, error) {
	if len(text) > MaxFilter {
		return nil, badFilter("the filter may have at most %d bytes", MaxFilter)
	}
	p := &parser{kind: k, text: text}
	f, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, badFilter("the filter has unexpected text at byte %d", p.at)
	}
	return f, nil
}

func (p *parser) space() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

// take skips spaces, consumes the next character if it is c, and reports whether it was.
func (p *parser) take(c byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// word returns the next word in lower case and consumes it, if it is one of those wanted, ignoring
// case. Otherwise it returns an empty text and consumes nothing but spaces.
func (p *parser) word(wanted ...string) string {
	p.space()
	end := p.at
	for end < len(p.text) && isNameByte(p.text[end]) {
		end++
	}
	if w := strings.ToLower(p.text[p.at:end]); slices.Contains(wanted, w) {
		p.at = end
		return w
	}
	return ""
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '$' || c == '.' || c == ':'
}

func (p *parser) or() (*Filter, error) {
	return p.chain(opOr, func() (*Filter, error) { return p.chain(opAnd, p.term) })
}

// chain parses parts that an operator joins.
func (p *parser) chain(op string, part func() (*Filter, error)) (*Filter, error) {
	left, err := part()
	for err == nil && p.word(op) != "" {
		var right *Filter
		if right, err = part(); err == nil {
			left = &Filter{op: op, left: left, right: right}
		}
	}
	return left, err
}

func (p *parser) term() (*Filter, error) {
	if p.terms++; p.terms > maxTerms {
		return nil, badFilter("the filter may have at most %d terms", maxTerms)
	}
	negated := p.word(opNot) != ""
	if p.take('(') {
		if p.depth++; p.depth > maxNested {
			return nil, badFilter("the filter may nest at most %d deep", maxNested)
		}
		f, err := p.or()
		if err != nil {
			return nil, err
		}
		p.depth--
		if !p.take(')') {
			return nil, badFilter("the filter lacks a closing parenthesis at byte %d", p.at)
		}
		if negated {
			f = &Filter{op: opNot, left: f}
		}
		return f, nil
	}
	if negated {
		return nil, badFilter("not needs a filter in parentheses at byte %d", p.at)
	}
	return p.expression()
}

// expression parses a comparison, or a filter on the elements of an attribute.
func (p *parser) expression() (*Filter, error) {
	r, err := p.attribute()
	if err != nil {
		return nil, err
	}
	if p.at < len(p.text) && p.text[p.at] == '[' {
		return p.elements(r)
	}
	return p.comparison(r)
}

// name reads the name of an attribute.
func (p *parser) name() string {
	p.space()
	start := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	return p.text[start:p.at]
}

// attribute parses the path of an attribute.
func (p *parser) attribute() (ref, error) {
	at, name := p.at, p.name()
	if name == "" {
		return ref{}, badFilter("an attribute is missing at byte %d", at)
	}
	r, ok := p.resolve(name)
	if !ok {
		return ref{}, badFilter("there is no attribute %q", clip(name))
	}
	return r, nil
}

// resolve finds an attribute by its path.
func (p *parser) resolve(name string) (ref, bool) {
	if p.inside != nil {
		a := p.inside.sub(name)
		return ref{attribute: a}, a != nil
	}
	return p.kind.resolve(name)
}

func (k *Kind) resolve(name string) (ref, bool) {
	uri := ""
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		uri, name = name[:i], name[i+1:]
	}
	name, sub, dotted := strings.Cut(name, ".")
	var r ref
	if r.extension, r.attribute = k.find(uri, name); r.attribute == nil {
		return r, false
	}
	if dotted {
		r.sub = r.attribute.sub(sub)
	}
	return r, !dotted || r.sub != nil
}

// elements parses the filter in the brackets of a multi-valued attribute, and the comparison with
// a part of the selected elements, if one follows.
func (p *parser) elements(r ref) (*Filter, error) {
	f, err := p.brackets(r)
	if err != nil {
		return nil, err
	}
	out := &Filter{op: opHas, ref: r, left: f}
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		name := p.name()
		sub := r.attribute.sub(name)
		if sub == nil {
			return nil, badFilter("there is no attribute %q", clip(name))
		}
		out.right, err = p.comparison(ref{attribute: sub})
	}
	return out, err
}

// brackets parses a filter in brackets.
func (p *parser) brackets(r ref) (*Filter, error) {
	if p.inside != nil || r.sub != nil || !r.attribute.MultiValued || len(r.attribute.SubAttributes) == 0 {
		return nil, badFilter("%s cannot have a filter in brackets", r.attribute.Name)
	}
	p.at++
	p.inside = r.attribute
	f, err := p.or()
	p.inside = nil
	if err == nil && !p.take(']') {
		err = badFilter("the filter lacks a closing bracket at byte %d", p.at)
	}
	return f, err
}

// comparison parses an operator and its value.
func (p *parser) comparison(r ref) (*Filter, error) {
	op := p.word(opPresent, opEqual, opDiffers, opHolds, opBegins, opEnds, opOver, opUnder, opAtLeast, opAtMost)
	f := &Filter{op: op, ref: r}
	if op == "" {
		return nil, badFilter("an operator is missing at byte %d: eq, ne, co, sw, ew, pr, gt, ge, lt or le", p.at)
	}
	if op == opPresent {
		return f, nil
	}
	v, err := p.literal()
	if err != nil {
		return nil, err
	}
	f.raw = v
	f.value, err = operand(r.leaf(), op, v)
	return f, err
}

// literal parses a JSON text, number, boolean or null.
func (p *parser) literal() (any, error) {
	p.space()
	start := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		for p.at++; p.at < len(p.text) && p.text[p.at] != '"'; p.at++ {
			if p.text[p.at] == '\\' {
				p.at++
			}
		}
		p.at = min(p.at+1, len(p.text))
	} else {
		for p.at < len(p.text) && !strings.ContainsRune(" ()[]", rune(p.text[p.at])) {
			p.at++
		}
	}
	word := p.text[start:p.at]
	if strings.EqualFold(word, "true") || strings.EqualFold(word, "false") {
		word = strings.ToLower(word)
	}
	var v any
	if err := json.Unmarshal([]byte(word), &v); err != nil {
		return nil, badFilter("a value is missing at byte %d: text in double quotes, true, false or null", start)
	}
	return v, nil
}

// operand converts a value to the form in which the attribute's values are compared with it.
func operand(a *Attribute, op string, v any) (any, error) {
	if v == nil {
		if op != opEqual && op != opDiffers {
			return nil, badFilter("null can only be compared with eq and ne")
		}
		return nil, nil
	}
	unfit := func() (any, error) {
		return nil, badFilter("%s cannot be compared with such a value by %s", a.Name, op)
	}
	switch a.Type {
	case typeComplex:
		return unfit()
	case typeBoolean:
		b, ok := boolean(v)
		if !ok || op != opEqual && op != opDiffers {
			return unfit()
		}
		return b, nil
	case typeTime:
		s, _ := v.(string)
		t, err := time.Parse(time.RFC3339, s)
		if err != nil || op == opHolds || op == opBegins || op == opEnds {
			return unfit()
		}
		return t, nil
	}
	s, ok := v.(string)
	if !ok {
		return unfit()
	}
	return foldFor(a, s), nil
}

// boolean converts a value to a boolean. Some clients send booleans as text.
func boolean(v any) (b, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case string:
		return strings.EqualFold(v, "true"), strings.EqualFold(v, "true") || strings.EqualFold(v, "false")
	}
	return false, false
}

// parsePath parses the path of a PATCH. Its faults are invalid_path.
func parsePath(k *Kind, text string) (path, error) {
	if len(text) > MaxFilter {
		return path{}, badPath("a path may have at most %d bytes", MaxFilter)
	}
	if e := k.extension(text); e != nil {
		return path{whole: e.ID}, nil
	}
	p := &parser{kind: k, text: text}
	name := p.name()
	r, ok := k.resolve(name)
	if !ok {
		return path{}, badPath("there is no attribute %q", clip(name))
	}
	out := path{ref: r}
	if p.at < len(text) && text[p.at] == '[' {
		var err error
		if out.filter, err = p.brackets(r); err != nil {
			return path{}, badPath("%s", fault.Message(err))
		}
		if p.at < len(text) && text[p.at] == '.' {
			p.at++
			name := p.name()
			if out.sub = r.attribute.sub(name); out.sub == nil {
				return path{}, badPath("there is no attribute %q", clip(name))
			}
		}
	}
	if p.at < len(text) {
		return path{}, badPath("the path has unexpected text at byte %d", p.at)
	}
	return out, nil
}

// clip shortens a text that the client sent, so that an answer can repeat it.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
