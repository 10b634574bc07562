package pii

// inline are the HTML elements that do not interrupt the text on a page, so that a number or an
// address may continue after their tags. Cells and paragraphs do interrupt it.
var inline = map[string]bool{
	"a": true, "b": true, "bdi": true, "bdo": true, "big": true, "br": true, "code": true, "del": true, "em": true, "font": true, "i": true, "ins": true,
	"kbd": true, "mark": true, "nobr": true, "q": true, "s": true, "samp": true, "small": true, "span": true, "strong": true, "sub": true, "sup": true,
	"tt": true, "u": true, "var": true, "wbr": true,
}

const (
	// maxTags limits the consecutive tags, and maxComment the length of a comment.
	maxTags    = 4
	maxComment = 32
	maxTagName = 6
)

// markup returns the length of the tags at i that a reader does not see, or 0. It excludes tags
// with attributes, which are searched.
func (s *scan) markup(i int) int {
	at := i
	for range maxTags {
		n := s.tag(at)
		if n == 0 {
			break
		}
		at += n
	}
	return at - i
}

func (s *scan) tag(i int) int {
	switch {
	case s.at(i) == ']':
		return s.literally(i, "]]>")
	case s.at(i) != '<':
		return 0
	case s.at(i+1) == '!':
		return max(s.literally(i, "<![CDATA["), s.comment(i))
	}
	at := i + 1
	if s.at(at) == '/' {
		at++
	}
	var name [maxTagName]byte
	n := 0
	for c := s.at(at) | 0x20; c >= 'a' && c <= 'z' && n < len(name); c = s.at(at) | 0x20 {
		name[n] = c
		n, at = n+1, at+1
	}
	if s.at(at) == ' ' {
		at++
	}
	if s.at(at) == '/' {
		at++
	}
	if s.at(at) != '>' || !inline[string(name[:n])] {
		return 0
	}
	return at + 1 - i
}

// comment returns the length of a comment at i, if it contains no digits or addresses.
func (s *scan) comment(i int) int {
	n := s.literally(i, "<!--")
	if n == 0 {
		return 0
	}
	for at := i + n; at-i < maxComment; at++ {
		switch c := s.at(at); {
		case c == 0, c == '@', isDigit(c):
			return 0
		case c == '-':
			if end := s.literally(at, "-->"); end > 0 {
				return at + end - i
			}
		}
	}
	return 0
}

// literally returns the length of a text if it is at i, or 0.
func (s *scan) literally(i int, text string) int {
	for n := range len(text) {
		if s.at(i+n) != text[n] {
			return 0
		}
	}
	return len(text)
}

// parted returns the length of a gap between groups of digits with markup before it, after it or
// both, or 0 without markup.
func (s *scan) parted(i int) int {
	before := s.markup(i)
	at := i + before
	at += s.gap(at)
	after := s.markup(at)
	if before+after == 0 {
		return 0
	}
	return at + after - i
}
