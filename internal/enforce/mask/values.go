package mask

// separators may occur between two documents: white space, and the separator of
// application/json-seq.
const separators = " \t\r\n\x1e"

// values finds the ends of consecutive JSON values, with anything or nothing between them.
type values struct {
	looked  int // how much has been read
	depth   int // number of open arrays and objects
	scalar  bool
	quoted  bool
	escaped bool
}

// end returns the length of p up to the end of its first value, or 0 if it is incomplete. It
// continues where it stopped.
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

// next reads one byte. If a value ends, it returns how much of the byte belongs to it, and
// otherwise -1.
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
