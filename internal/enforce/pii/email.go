package pii

import "bytes"

// maxLocal is the longest part before the @ (RFC 5321 section 4.5.3.1.1).
const maxLocal = 64

// isLocal reports whether c may be in the part before the @. RFC 5322 allows more characters, which
// nobody uses and which would include preceding text.
func isLocal(c byte) bool {
	return isAlnum(c) || c == '.' || c == '+' || c == '-' || c == '%' || c == '\''
}

// email returns the end of an e-mail address at i.
func (s *scan) email(i int) int {
	if s.alnumBefore(i) || !s.atAhead(i) {
		return 0
	}
	for at := i; at-i <= maxLocal; at++ {
		switch c := s.at(at); {
		case c == '@':
			return s.domain(at + 1)
		case c == '%' && s.at(at+1) == '4' && s.at(at+2) == '0': // in a URL
			return s.domain(at + 3)
		case c == '<' && s.at(at+s.markup(at)) == '@':
			return s.domain(at + s.markup(at) + 1)
		case !isLocal(c):
			if s.before(at) == '.' { // no address has a dot there
				return 0
			}
			if n := s.spelled(at, "at"); n > 0 {
				return s.domain(at + n)
			}
			return 0
		}
	}
	return 0
}

// spelled returns the length of a sign of an address that is written as a word in brackets, with or
// without spaces around it: bea (at) example [dot] com.
func (s *scan) spelled(i int, word string) int {
	at := i
	if s.at(at) == ' ' {
		at++
	}
	end := byte(0)
	switch s.at(at) {
	case '(':
		end = ')'
	case '[':
		end = ']'
	default:
		return 0
	}
	for _, c := range []byte(word) {
		if at++; s.at(at)|0x20 != c {
			return 0
		}
	}
	if at++; s.at(at) != end {
		return 0
	}
	if at++; s.at(at) == ' ' {
		at++
	}
	return at - i
}

// atAhead reports whether there is an @ near i, or may still be. Most words need no closer look.
func (s *scan) atAhead(i int) bool {
	if s.nextAt < i {
		s.nextAt = len(s.t)
		rest := s.t[i:]
		if at := bytes.IndexByte(rest, '@'); at >= 0 {
			s.nextAt, rest = i+at, rest[:at]
		}
		if at := bytes.Index(rest, []byte("%40")); at >= 0 {
			s.nextAt, rest = i+at, rest[:at]
		}
		for from := 0; from < len(rest); from++ {
			at := bytes.IndexByte(rest[from:], '(')
			if bracket := bytes.IndexByte(rest[from:], '['); bracket >= 0 && (at < 0 || bracket < at) {
				at = bracket
			}
			if at < 0 {
				break
			}
			from += at
			if from+4 > len(rest) || rest[from+1]|0x20 == 'a' && rest[from+2]|0x20 == 't' {
				s.nextAt = i + from
				break
			}
		}
	}
	return s.nextAt-i <= maxLocal && (s.nextAt < len(s.t) || !s.final)
}

// domain returns the end of a domain with a known top-level domain, at i or on the next line.
func (s *scan) domain(i int) int {
	i += s.lineEnd(i)
	i += s.markup(i)
	if s.at(i) == '[' {
		return s.literal(i)
	}
	end := 0
	for labels, at := 1, i; ; labels++ {
		from := at
		for c := s.at(at); (isAlnum(c) || c == '-') && at-i <= 255; c = s.at(at) {
			at++
		}
		if at == from {
			break
		}
		last := at
		for s.t[last-1] == '-' {
			if last--; last == from {
				return end
			}
		}
		if labels > 1 && last-from >= 2 && class[s.t[from]] == letter {
			end = last
		}
		dot := 0
		if m := s.markup(at); s.at(at+m) == '.' {
			dot = m + 1
			dot += s.markup(at + dot)
		} else if last == at {
			dot = s.spelled(at, "dot")
		}
		if last != at || dot == 0 || at-i > 255 {
			break
		}
		at += dot
	}
	return end
}

// literal returns the end of an address literal: [192.0.2.1], [IPv6:2001:db8::1].
func (s *scan) literal(i int) int {
	at := i + 1
	for c := s.at(at); (isAlnum(c) || c == '.' || c == ':') && at-i < 64; c = s.at(at) {
		at++
	}
	if at-i < 4 || s.at(at) != ']' {
		return 0
	}
	return at + 1
}
