package builtin

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// These built-ins match regular expressions. One search takes time proportional to the length of
// the text times the size of the pattern; both are known beforehand, and counted. A list of matches
// takes many searches, each of which may read to the end of the text. So we search one by
// one, and check the clock after each. OPA's implementation would also cache patterns in tables
// that all tenants share.

// Pattern is a compiled regular expression.
type Pattern struct {
	re     *regexp.Regexp
	states int
	// contextFree means that no part of the pattern looks at the text before or after a position, so that
	// a search can start anywhere.
	contextFree bool
	err         error
}

// Valid reports whether the pattern is a regular expression.
func (p *Pattern) Valid() bool { return p.err == nil }

const (
	// maxStates limits the size of a pattern, to some milliseconds of compilation.
	maxStates = 20_000
	// maxRegexWork limits text times pattern of one search, to a hundred milliseconds at worst.
	maxRegexWork = 32 << 20
	// keepPatterns limits the patterns that an evaluation caches.
	keepPatterns = 64
)

// CompilePattern compiles a pattern. big is true for a pattern that is too big to compile.
func CompilePattern(text string) (p *Pattern, big bool) {
	if len(text) > maxStates {
		return nil, true
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return &Pattern{err: err}, false
	}
	n, free := measure(parsed)
	if n > maxStates {
		return nil, true
	}
	re, err := regexp.Compile(text)
	return &Pattern{re: re, states: n + 8, contextFree: free, err: err}, false
}

// measure estimates the states of a compiled pattern, and reports whether it is free of context.
func measure(re *syntax.Regexp) (n int, free bool) {
	n, free = 1+len(re.Rune)/4, true
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary, syntax.OpEndLine:
		free = false
	}
	for _, sub := range re.Sub {
		k, f := measure(sub)
		n, free = min(n+k, 1<<40), free && f
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(1, re.Min, re.Max), 1<<40)
	}
	return n, free
}

// pattern compiles a pattern, once for each evaluation. If ok is false, OPA's implementation
// reports the error, unless the evaluation has failed.
func (m *Memory) pattern(text string) (*Pattern, bool) {
	p := m.patterns[text]
	if p == nil {
		if m.Work(64 + len(text)) {
			return nil, false
		}
		var big bool
		if p, big = CompilePattern(text); big || !m.Alloc(64*p.states) || m.Work(2*p.states) {
			m.Fail(eval.ErrLimit)
			return nil, false
		}
		if m.patterns == nil || len(m.patterns) >= keepPatterns {
			m.patterns = map[string]*Pattern{}
		}
		m.patterns[text] = p
	}
	return p, p.err == nil
}

// countSearch counts one search through a whole text; true means stop.
func (m *Memory) countSearch(p *Pattern, text string) bool {
	n := (len(text) + 1) * p.states
	if n > maxRegexWork {
		return m.Fail(eval.ErrLimit)
	}
	return m.Work(1 + n>>5)
}

// countPartialSearch counts a search that advanced by some bytes; true means stop. It is unknown how far
// the search read ahead, so it checks the clock if that may have been far.
func (m *Memory) countPartialSearch(p *Pattern, bytes, rest int) bool {
	if m.Work(1 + bytes*p.states>>5) {
		return true
	}
	return rest*p.states > 1<<16 && m.CheckLimits()
}

// regexOperands compiles the pattern of a call, and returns it with the text. If ok is false,
// either the evaluation has failed, or OPA's implementation must take the call.
func (m *Memory) regexOperands(a, b value.Value) (p *Pattern, text string, ok bool) {
	expr, ok1 := a.Str()
	text, ok2 := b.Str()
	if !ok1 || !ok2 {
		return nil, "", false
	}
	p, ok = m.pattern(expr)
	return p, text, ok
}

func regexMatch(m *Memory, a, b value.Value) (value.Value, bool) {
	p, text, ok := m.regexOperands(a, b)
	if !ok {
		return value.Value{}, m.Err != nil
	}
	return m.Search(p, text), true
}

// Search reports whether a text has a match. It is undefined if the evaluation has to stop.
func (m *Memory) Search(p *Pattern, text string) value.Value {
	if m.Err != nil || m.countSearch(p, text) {
		return value.Value{}
	}
	return value.Bool(p.re.MatchString(text))
}

func regexIsValid(m *Memory, a value.Value) (value.Value, bool) {
	text, ok := a.Str()
	if !ok {
		return value.Bool(false), true
	}
	if len(text) > maxStates || m.Work(len(text)) || !m.Alloc(64*len(text)) {
		m.Fail(eval.ErrLimit)
		return value.Value{}, true
	}
	_, err := syntax.Parse(text, syntax.Perl)
	return value.Bool(err == nil), true
}

// matches calls fn with the positions of each match, in the order of regexp.FindAll, until fn
// returns true or there have been most matches. A negative most means all.
func (m *Memory) matches(p *Pattern, text string, most int, fn func(at []int) bool) {
	if most == 0 {
		return
	}
	if (len(text)+1)*p.states > maxRegexWork {
		m.Fail(eval.ErrLimit)
		return
	}
	if !p.contextFree {
		if m.countMatches(p, text) {
			return
		}
		for i, at := range p.re.FindAllStringSubmatchIndex(text, most) {
			if m.Tick() || fn(at) || i+1 == most {
				return
			}
		}
		return
	}
	for pos, found, last := 0, 0, -1; pos <= len(text) && found != most; {
		from := pos
		at := p.re.FindStringSubmatchIndex(text[pos:])
		if at == nil {
			m.countPartialSearch(p, len(text)-pos, 0)
			return
		}
		for i := range at {
			if at[i] >= 0 {
				at[i] += pos
			}
		}
		accept := true
		if at[1] == pos { // an empty match may not directly follow another match
			accept = at[0] != last
			_, width := utf8.DecodeRuneInString(text[pos:])
			pos += max(width, 1)
		} else {
			pos = at[1]
		}
		last = at[1]
		if m.countPartialSearch(p, pos-from, len(text)-pos) {
			return
		}
		if accept {
			if found++; fn(at) {
				return
			}
		}
	}
}

// countMatches finds all matches of a pattern that is not free of context in a way that can be stopped, before
// matches lists them in a way that cannot. True means stop.
func (m *Memory) countMatches(p *Pattern, text string) (stop bool) {
	type given struct{}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(given); !ok {
				panic(r)
			}
			stop = true
		}
	}()
	if !m.Alloc(len(text)) || m.Work(len(text)*p.states>>5) {
		return true
	}
	size := eval.ValueBytes + 16*(1+p.re.NumSubexp())
	p.re.ReplaceAllStringFunc(text, func(string) string {
		if !m.Alloc(size) || m.countPartialSearch(p, 8, len(text)) {
			panic(given{})
		}
		return ""
	})
	return false
}

func regexFind(m *Memory, a, b, n value.Value) (value.Value, bool) {
	return m.regexList(a, b, n, func(text string, at []int) value.Value { return value.String(text[at[0]:at[1]]) })
}

func regexFindGroups(m *Memory, a, b, n value.Value) (value.Value, bool) {
	return m.regexList(a, b, n, func(text string, at []int) value.Value {
		if !m.Alloc(eval.ValueBytes * len(at) / 2) {
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

func (m *Memory) regexList(a, b, n value.Value, element func(text string, at []int) value.Value) (value.Value, bool) {
	most, isInt := n.Integer()
	p, text, ok := m.regexOperands(a, b)
	if !ok || !isInt {
		return value.Value{}, m.Err != nil
	}
	base := len(m.stack)
	m.matches(p, text, int(max(most, -1)), func(at []int) bool { return m.Push(element(text, at)) })
	return m.CheckSize(value.Array(m.Pop(base)...)), true
}

func regexSplit(m *Memory, a, b value.Value) (value.Value, bool) {
	p, text, ok := m.regexOperands(a, b)
	if !ok {
		return value.Value{}, m.Err != nil
	}
	base := len(m.stack)
	if p.re.String() != "" && text == "" {
		return value.Array(value.String("")), true
	}
	beg, end := 0, 0
	m.matches(p, text, -1, func(at []int) bool {
		end = at[0]
		if at[1] != 0 && m.Push(value.String(text[beg:end])) {
			return true
		}
		beg = at[1]
		return false
	})
	if end != len(text) {
		m.Push(value.String(text[beg:]))
	}
	return m.CheckSize(value.Array(m.Pop(base)...)), true
}

func regexReplace(m *Memory, a, b, to value.Value) (value.Value, bool) {
	with, ok := to.Str()
	p, text, valid := m.regexOperands(b, a)
	if !ok || !valid {
		return value.Value{}, m.Err != nil
	}
	var out []byte
	end := 0
	m.matches(p, text, -1, func(at []int) bool {
		grown := len(out)
		out = append(out, text[end:at[0]]...)
		// The template expands to at most the whole match for each reference.
		if !m.Alloc(len(with) + strings.Count(with, "$")*(at[1]-at[0])) {
			return true
		}
		out = p.re.ExpandString(out, with, text, at)
		end = at[1]
		return m.Work((len(out)-grown)>>4) || len(out) > MaxOperands && m.Fail(eval.ErrLimit)
	})
	if m.Err != nil || !m.Alloc(len(text)) {
		return value.Value{}, true
	}
	return m.CheckSize(value.String(string(append(out, text[end:]...)))), true
}

// templateMatch implements regex.template_match: a template with regular expressions between
// delimiters.
func templateMatch(m *Memory, a []value.Value) (value.Value, bool) {
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
	if !ok || m.Work(len(s[0])) {
		return value.Value{}, m.Err != nil
	}
	p, ok := m.pattern(full)
	if !ok {
		return value.Value{}, m.Err != nil
	}
	return m.Search(p, s[1]), true
}

// templatePattern returns the regular expression of a template. ok is false if the delimiters or a
// pattern between them are invalid.
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
