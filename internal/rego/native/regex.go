package native

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The built-ins on regular expressions. One search takes time in the length of
// the text times the size of the pattern, which is known beforehand and counted.
// A list of matches is many searches, each of which may read to the end of the
// text: they are made one by one, and the clock is looked at after each.
// OPA's own would also keep patterns in tables that all tenants share.

// pattern is a compiled regular expression.
type pattern struct {
	re     *regexp.Regexp
	states int
	// bare: no part of it looks at what stands before or behind a place, so that
	// a search can begin anywhere.
	bare bool
	err  error
}

const (
	// maxStates bounds the size of a pattern: some milliseconds to compile.
	maxStates = 20_000
	// maxRegexWork bounds text times pattern of one search: a hundred
	// milliseconds at the worst.
	maxRegexWork = 32 << 20
	// keepPatterns is how many patterns an evaluation remembers.
	keepPatterns = 64
)

// compilePattern compiles a pattern that is not too big; big tells that it is.
func compilePattern(text string) (p *pattern, big bool) {
	if len(text) > maxStates {
		return nil, true
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return &pattern{err: err}, false
	}
	n, bare := measure(parsed)
	if n > maxStates {
		return nil, true
	}
	re, err := regexp.Compile(text)
	return &pattern{re: re, states: n + 8, bare: bare, err: err}, false
}

// measure is about how many states a pattern compiles to, and whether it is bare.
func measure(re *syntax.Regexp) (n int, bare bool) {
	n, bare = 1+len(re.Rune)/4, true
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary, syntax.OpEndLine:
		bare = false
	}
	for _, sub := range re.Sub {
		k, b := measure(sub)
		n, bare = min(n+k, 1<<40), bare && b
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(1, re.Min, re.Max), 1<<40)
	}
	return n, bare
}

// pattern compiles a pattern once an evaluation. ok is false where that failed:
// the error is OPA's to tell, unless the evaluation is at its end.
func (m *machine) pattern(text string) (*pattern, bool) {
	p := m.patterns[text]
	if p == nil {
		if m.work(64 + len(text)) {
			return nil, false
		}
		var big bool
		if p, big = compilePattern(text); big || !m.alloc(64*p.states) || m.work(2*p.states) {
			m.fail(ErrLimit)
			return nil, false
		}
		if m.patterns == nil || len(m.patterns) >= keepPatterns {
			m.patterns = map[string]*pattern{}
		}
		m.patterns[text] = p
	}
	return p, p.err == nil
}

// searching counts one search through a whole text; true means stop.
func (m *machine) searching(p *pattern, text string) bool {
	n := (len(text) + 1) * p.states
	if n > maxRegexWork {
		return m.fail(ErrLimit)
	}
	return m.work(1 + n>>5)
}

// searchedOn counts a search that got on by some bytes. How far it read ahead is
// not known, so the time is looked at where that may have been far.
func (m *machine) searchedOn(p *pattern, bytes, rest int) bool {
	if m.work(1 + bytes*p.states>>5) {
		return true
	}
	return rest*p.states > 1<<16 && m.checkLimits()
}

// regexOperands compiles the pattern for a text. done tells that there is no
// more to do: undefined stands where the evaluation is at its end, and OPA's
// implementation has the word where it is not.
func (m *machine) regexOperands(a, b value.Value) (p *pattern, text string, ok bool) {
	expr, ok1 := a.Str()
	text, ok2 := b.Str()
	if !ok1 || !ok2 {
		return nil, "", false
	}
	p, ok = m.pattern(expr)
	return p, text, ok
}

func regexMatch(m *machine, a, b value.Value) (value.Value, bool) {
	p, text, ok := m.regexOperands(a, b)
	if !ok {
		return value.Value{}, m.err != nil
	}
	if m.searching(p, text) {
		return value.Value{}, true
	}
	return value.Bool(p.re.MatchString(text)), true
}

func regexIsValid(m *machine, a value.Value) (value.Value, bool) {
	text, ok := a.Str()
	if !ok {
		return value.Bool(false), true
	}
	if len(text) > maxStates || m.work(len(text)) || !m.alloc(64*len(text)) {
		m.fail(ErrLimit)
		return value.Value{}, true
	}
	_, err := syntax.Parse(text, syntax.Perl)
	return value.Bool(err == nil), true
}

// matches calls fn with the places of each match, as regexp.FindAll finds them,
// until it answers true.
func (m *machine) matches(p *pattern, text string, most int, fn func(at []int) bool) {
	if most == 0 {
		return
	}
	if (len(text)+1)*p.states > maxRegexWork {
		m.fail(ErrLimit)
		return
	}
	if !p.bare {
		if m.rehearse(p, text) {
			return
		}
		for i, at := range p.re.FindAllStringSubmatchIndex(text, most) {
			if m.tick() || fn(at) || i+1 == most {
				return
			}
		}
		return
	}
	for pos, found, last := 0, 0, -1; pos <= len(text) && found != most; {
		from := pos
		at := p.re.FindStringSubmatchIndex(text[pos:])
		if at == nil {
			m.searchedOn(p, len(text)-pos, 0)
			return
		}
		for i := range at {
			if at[i] >= 0 {
				at[i] += pos
			}
		}
		accept := true
		if at[1] == pos { // an empty match, which may not follow another one at once
			accept = at[0] != last
			_, width := utf8.DecodeRuneInString(text[pos:])
			pos += max(width, 1)
		} else {
			pos = at[1]
		}
		last = at[1]
		if m.searchedOn(p, pos-from, len(text)-pos) {
			return
		}
		if accept {
			if found++; fn(at) {
				return
			}
		}
	}
}

// rehearse finds all matches of a pattern that looks behind, in a way that can be
// stopped, before they are listed in one that cannot; true means stop.
func (m *machine) rehearse(p *pattern, text string) (stop bool) {
	type given struct{}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(given); !ok {
				panic(r)
			}
			stop = true
		}
	}()
	if !m.alloc(len(text)) || m.work(len(text)*p.states>>5) {
		return true
	}
	size := valueBytes + 16*(1+p.re.NumSubexp())
	p.re.ReplaceAllStringFunc(text, func(string) string {
		if !m.alloc(size) || m.searchedOn(p, 8, len(text)) {
			panic(given{})
		}
		return ""
	})
	return false
}

func regexFind(m *machine, a, b, n value.Value) (value.Value, bool) {
	return m.regexList(a, b, n, func(text string, at []int) value.Value { return value.String(text[at[0]:at[1]]) })
}

func regexFindGroups(m *machine, a, b, n value.Value) (value.Value, bool) {
	return m.regexList(a, b, n, func(text string, at []int) value.Value {
		if !m.alloc(valueBytes * len(at) / 2) {
			return value.Value{}
		}
		out := make([]value.Value, len(at)/2)
		for i := range out {
			out[i] = value.String("")
			if at[2*i] >= 0 {
				out[i] = value.String(text[at[2*i]:at[2*i+1]])
			}
		}
		return value.Array(out...)
	})
}

func (m *machine) regexList(a, b, n value.Value, element func(text string, at []int) value.Value) (value.Value, bool) {
	most, isInt := n.Integer()
	p, text, ok := m.regexOperands(a, b)
	if !ok || !isInt {
		return value.Value{}, m.err != nil
	}
	base := len(m.stack)
	m.matches(p, text, int(max(most, -1)), func(at []int) bool { return m.push(element(text, at)) })
	return m.made(value.Array(m.pop(base)...)), true
}

func regexSplit(m *machine, a, b value.Value) (value.Value, bool) {
	p, text, ok := m.regexOperands(a, b)
	if !ok {
		return value.Value{}, m.err != nil
	}
	base := len(m.stack)
	if p.re.String() != "" && text == "" {
		return value.Array(value.String("")), true
	}
	beg, end := 0, 0
	m.matches(p, text, -1, func(at []int) bool {
		end = at[0]
		if at[1] != 0 && m.push(value.String(text[beg:end])) {
			return true
		}
		beg = at[1]
		return false
	})
	if end != len(text) {
		m.push(value.String(text[beg:]))
	}
	return m.made(value.Array(m.pop(base)...)), true
}

func regexReplace(m *machine, a, b, to value.Value) (value.Value, bool) {
	with, ok := to.Str()
	p, text, valid := m.regexOperands(b, a)
	if !ok || !valid {
		return value.Value{}, m.err != nil
	}
	var out []byte
	end := 0
	m.matches(p, text, -1, func(at []int) bool {
		grown := len(out)
		out = append(out, text[end:at[0]]...)
		// What the template can make of this match is at most each reference at
		// its longest.
		if !m.alloc(len(with) + strings.Count(with, "$")*(at[1]-at[0])) {
			return true
		}
		out = p.re.ExpandString(out, with, text, at)
		end = at[1]
		return m.work((len(out)-grown)>>4) || len(out) > maxBridged && m.fail(ErrLimit)
	})
	if m.err != nil || !m.alloc(len(text)) {
		return value.Value{}, true
	}
	return m.made(value.String(string(append(out, text[end:]...)))), true
}

// templateMatch is regex.template_match: patterns between delimiters in a text.
func templateMatch(m *machine, a []value.Value) (value.Value, bool) {
	var s [4]string
	for i := range s {
		text, ok := a[i].Str()
		if !ok {
			return value.Value{}, false
		}
		s[i] = text
	}
	if len(s[2]) != 1 || len(s[3]) != 1 || len(s[0]) > maxStates {
		return value.Value{}, false
	}
	full, ok := templatePattern(s[0], s[2][0], s[3][0])
	if !ok || m.work(len(s[0])) {
		return value.Value{}, m.err != nil
	}
	p, ok := m.pattern(full)
	if !ok {
		return value.Value{}, m.err != nil
	}
	if m.searching(p, s[1]) {
		return value.Value{}, true
	}
	return value.Bool(p.re.MatchString(s[1])), true
}

// templatePattern is the regular expression that a template stands for; ok is
// false where the delimiters or a pattern between them are wrong.
func templatePattern(tpl string, open, end byte) (string, bool) {
	var out strings.Builder
	out.WriteByte('^')
	level, start, from := 0, 0, 0
	for i := range len(tpl) {
		switch tpl[i] {
		case open:
			if level++; level == 1 {
				start = i
			}
		case end:
			if level--; level < 0 {
				return "", false
			}
			if level == 0 {
				part := tpl[start+1 : i]
				if _, err := syntax.Parse(part, syntax.Perl); err != nil {
					return "", false
				}
				fmt.Fprintf(&out, "%s(%s)", regexp.QuoteMeta(tpl[from:start]), part)
				from = i + 1
			}
		}
	}
	out.WriteString(regexp.QuoteMeta(tpl[from:]))
	out.WriteByte('$')
	return out.String(), level == 0
}
