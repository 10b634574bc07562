package pii

import "bytes"

// maxLocal is the longest part before the @ (RFC 5321 section 4.5.3.1.1).
const maxLocal = 64

// isLocal reports whether c stands in the part before the @. RFC 5322 allows
// more, which nobody uses and which would take up what stands before.
func isLocal(c byte) bool {
	return isAlnum(c) || c == '.' || c == '+' || c == '-' || c == '%' || c == '\''
}

// email is the end of an e-mail address at i.
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
		case !isLocal(c):
			return 0
		}
	}
	return 0
}

// atAhead reports whether an @ is near enough to i, or may still come: most
// words of a text need no closer look.
func (s *scan) atAhead(i int) bool {
	if s.nextAt < i {
		s.nextAt = len(s.t)
		rest := s.t[i:]
		if at := bytes.IndexByte(rest, '@'); at >= 0 {
			s.nextAt, rest = i+at, rest[:at]
		}
		if at := bytes.Index(rest, []byte("%40")); at >= 0 {
			s.nextAt = i + at
		}
	}
	return s.nextAt-i <= maxLocal && (s.nextAt < len(s.t) || !s.final)
}

// domain is the end of a domain at i that ends in a top-level one.
func (s *scan) domain(i int) int {
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
		if last != at || s.at(at) != '.' || at-i > 255 {
			break
		}
		at++
	}
	return end
}
