package mask

// separators may stand between two documents: white space, and the separator of
// application/json-seq.
const separators = " \t\r\n\x1e"

// values finds where the values of JSON end that follow one another, with anything or
// nothing between them.
type values struct {
	looked  int // how much was looked at
	depth   int // of arrays and objects
	scalar  bool
	quoted  bool
	escaped bool
}

// end is how long p is up to the end of its first value; 0: it has no end yet. It goes
// on where it stopped.
func (v *values) end(p []byte) int {
	for ; v.looked < len(p); v.looked++ {
		if n := v.next(p[v.looked]); n >= 0 {
			n += v.looked
			*v = values{}
			return n
		}
	}
	return 0
}

// next takes one byte: -1, or, where a value ends, how much of the byte belongs to it.
func (v *values) next(c byte) int {
	switch {
	case v.escaped:
		v.escaped = false
	case v.quoted:
		v.escaped = c == '\\'
		v.quoted = c != '"'
		return v.closed(!v.quoted)
	case v.scalar && (isSeparator(c) || c == '"' || c == '{' || c == '['):
		return 0
	case c == '"':
		v.quoted = true
	case c == '{', c == '[':
		v.depth++
	case c == '}', c == ']':
		v.depth--
		return v.closed(true)
	case v.depth == 0 && !isSeparator(c):
		v.scalar = true
	}
	return -1
}

func (v *values) closed(ended bool) int {
	if ended && v.depth <= 0 {
		return 1
	}
	return -1
}

func isSeparator(c byte) bool {
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\x1e'
}
