package value

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits limit the documents that Decode accepts. A limit of zero means the default.
type Limits struct {
	// Depth limits the nesting of arrays and objects. The default is 64.
	Depth int
	// Bytes limits the length of the document. The default is no limit.
	Bytes int
	// Values limits the number of values and members in all, and thereby memory. The default is
	// 200,000.
	Values int
}

const (
	defaultDepth  = 64
	defaultValues = MostValues
)

// MostValues is the default of Limits.Values.
const MostValues = 200_000

// Parts returns an upper bound on the number of values and members of a JSON document, without
// decoding it. It counts the characters that can separate values, also within strings. It returns
// at most MostValues, because Decode refuses more.
func Parts(doc []byte) int {
	n := bytes.Count(doc, comma) + bytes.Count(doc, bracket) + bytes.Count(doc, brace)
	return min(n, MostValues)
}

// PartBytes is the maximum number of bytes of a decoded value or member, including its key and its
// garbage, but not its text.
const PartBytes = 64

// Weight returns an upper bound on the bytes that a JSON document takes if each of its parts takes
// this many. For a document from Decode that is PartBytes.
func Weight(doc []byte, part int) int { return len(doc) + part*Parts(doc) }

var comma, bracket, brace = []byte{','}, []byte{'['}, []byte{'{'}

// SyntaxError says why a document was refused. Offset counts bytes from 0.
type SyntaxError struct {
	Offset  int
	Message string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Message, e.Offset)
}

// Decode reads one JSON document (RFC 8259) strictly. It fails with a *SyntaxError for members that
// occur twice or differ only in case, integers outside int64, other numbers outside the range of an
// IEEE double, invalid UTF-8, lone surrogates and bytes after the document. The result does not
// alias data.
func Decode(data []byte, lim Limits) (Value, error) {
	if lim.Depth == 0 {
		lim.Depth = defaultDepth
	}
	if lim.Values == 0 {
		lim.Values = defaultValues
	}
	if lim.Bytes > 0 && len(data) > lim.Bytes {
		return Value{}, &SyntaxError{lim.Bytes, "the document is too long"}
	}
	d := decoders.Get().(*decoder)
	d.s, d.i, d.depth, d.room = string(data), 0, lim.Depth, lim.Values
	v, err := d.document()
	d.release()
	return v, err
}

// decoders holds idle decoders for all callers. They have only scratch space.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// decoder reads s. It collects elements and members on scratch stacks, and copies them to slices of
// exact size that are cut from a few larger ones.
type decoder struct {
	s     string
	i     int
	depth int
	room  int

	vals  []Value
	pairs []Pair
	folds []uint32

	valRoom  []Value
	pairRoom []Pair
	objRoom  []object
}

const keepScratch = 1024

func (d *decoder) release() {
	if cap(d.vals) > keepScratch || cap(d.pairs) > keepScratch {
		return // do not keep the large scratch space of a big document
	}
	clear(d.vals) // not empty only after an error
	clear(d.pairs)
	d.vals, d.pairs, d.folds = d.vals[:0], d.pairs[:0], d.folds[:0]
	d.s, d.valRoom, d.pairRoom, d.objRoom = "", nil, nil, nil
	decoders.Put(d)
}

func (d *decoder) fail(at int, message string) error { return &SyntaxError{at, message} }

func (d *decoder) document() (Value, error) {
	if !utf8.ValidString(d.s) {
		at := 0
		for at < len(d.s) {
			r, n := utf8.DecodeRuneInString(d.s[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return Value{}, d.fail(at, "invalid UTF-8")
	}
	v, err := d.value()
	if err != nil {
		return Value{}, err
	}
	if d.space(); d.i < len(d.s) {
		return Value{}, d.fail(d.i, "bytes after the document")
	}
	return v, nil
}

func (d *decoder) space() {
	for d.i < len(d.s) {
		if c := d.s[d.i]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return
		}
		d.i++
	}
}

func (d *decoder) value() (Value, error) {
	d.space()
	if d.i >= len(d.s) {
		return Value{}, d.fail(d.i, "unexpected end of the document")
	}
	if d.room--; d.room < 0 {
		return Value{}, d.fail(d.i, "too many values")
	}
	switch c := d.s[d.i]; c {
	case '"':
		d.i++
		s, err := d.str()
		return String(s), err
	case '{':
		return d.object()
	case '[':
		return d.array()
	case 't':
		return d.word("true", Bool(true))
	case 'f':
		return d.word("false", Bool(false))
	case 'n':
		return d.word("null", Null())
	default:
		if c == '-' || c-'0' <= 9 {
			return d.number()
		}
	}
	return Value{}, d.fail(d.i, "unexpected character")
}

func (d *decoder) word(w string, v Value) (Value, error) {
	if !strings.HasPrefix(d.s[d.i:], w) {
		return Value{}, d.fail(d.i, "unexpected character")
	}
	d.i += len(w)
	return v, nil
}

func (d *decoder) number() (Value, error) {
	from := d.i
	i := d.i
	if d.s[i] == '-' {
		i++
	}
	start, n := i, 0
	for i < len(d.s) && d.s[i]-'0' <= 9 {
		n = n*10 + int(d.s[i]-'0')
		i++
	}
	plain := i == len(d.s) || (d.s[i] != '.' && d.s[i]|0x20 != 'e')
	if digits := i - start; plain && digits > 0 && digits <= 18 && (d.s[start] != '0' || digits == 1 && start == from) {
		d.i = i
		if start != from {
			n = -n
		}
		return Int(int64(n)), nil
	}
	for i < len(d.s) && (d.s[i]-'0' <= 9 || d.s[i] == '.' || d.s[i] == '+' || d.s[i] == '-' || d.s[i]|0x20 == 'e') {
		i++
	}
	text := d.s[from:i]
	integer, ok := numberShape(text)
	if !ok {
		return Value{}, d.fail(from, "malformed number")
	}
	d.i = i
	if integer && text != "-0" {
		x, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Value{}, d.fail(from, "integer outside of 64 bits")
		}
		return Int(x), nil
	}
	f, ok := inRange(text, integer)
	if !ok {
		return Value{}, d.fail(from, "number outside of a double")
	}
	return boxed(text, f), nil
}

func (d *decoder) array() (Value, error) {
	if d.depth--; d.depth < 0 {
		return Value{}, d.fail(d.i, "nested too deeply")
	}
	d.i++
	base := len(d.vals)
	if d.space(); d.i < len(d.s) && d.s[d.i] == ']' {
		d.i++
		d.depth++
		return arrayOf(nil), nil
	}
	for {
		v, err := d.value()
		if err != nil {
			return Value{}, err
		}
		d.vals = append(d.vals, v)
		d.space()
		if d.i >= len(d.s) {
			return Value{}, d.fail(d.i, "unexpected end of the document")
		}
		c := d.s[d.i]
		if c == ']' {
			break
		}
		if c != ',' {
			return Value{}, d.fail(d.i, "expected , or ]")
		}
		d.i++
	}
	d.i++
	d.depth++
	n := len(d.vals) - base
	if n > len(d.valRoom) {
		d.valRoom = make([]Value, max(n, 8))
	}
	out := d.valRoom[:n:n]
	d.valRoom = d.valRoom[n:]
	copy(out, d.vals[base:])
	clear(d.vals[base:])
	d.vals = d.vals[:base]
	return arrayOf(out), nil
}

func (d *decoder) object() (Value, error) {
	if d.depth--; d.depth < 0 {
		return Value{}, d.fail(d.i, "nested too deeply")
	}
	d.i++
	base := len(d.pairs)
	if d.space(); d.i < len(d.s) && d.s[d.i] == '}' {
		d.i++
		d.depth++
		return objectOf(d.newObject(nil)), nil
	}
	for {
		if err := d.member(base); err != nil {
			return Value{}, err
		}
		d.space()
		if d.i >= len(d.s) {
			return Value{}, d.fail(d.i, "unexpected end of the document")
		}
		c := d.s[d.i]
		if c == '}' {
			break
		}
		if c != ',' {
			return Value{}, d.fail(d.i, "expected , or }")
		}
		d.i++
	}
	d.i++
	d.depth++
	mem := d.pairs[base:]
	if len(mem) > pairwise && hasDuplicates(mem) {
		return Value{}, d.fail(d.i-1, "members that are equal or differ only in case")
	}
	n := len(mem)
	if n > len(d.pairRoom) {
		// The rest of the text limits the number of members that follow. A small document gets
		// its members in one piece.
		d.pairRoom = make([]Pair, max(n, min(32, n+d.ahead(":"))))
	}
	out := d.pairRoom[:n:n]
	d.pairRoom = d.pairRoom[n:]
	copy(out, mem)
	clear(mem)
	d.pairs, d.folds = d.pairs[:base], d.folds[:base]
	return objectOf(d.newObject(out)), nil
}

// ahead counts the occurrences of mark in the next part of the text. It does not read to the end,
// because it would read a long text again for each of many small objects.
func (d *decoder) ahead(mark string) int {
	return strings.Count(d.s[d.i:min(len(d.s), d.i+1024)], mark)
}

func (d *decoder) newObject(mem []Pair) *object {
	if len(d.objRoom) == 0 {
		d.objRoom = make([]object, 1+min(7, d.ahead("{")))
	}
	o := &d.objRoom[0]
	d.objRoom = d.objRoom[1:]
	o.mem = mem
	return o
}

// pairwise is the number of members up to which duplicates are found by comparing each with each, by
// a hash that ignores case.
const pairwise = 24

func (d *decoder) member(base int) error {
	d.space()
	at := d.i
	if at >= len(d.s) || d.s[at] != '"' {
		return d.fail(at, "expected a member name")
	}
	d.i++
	key, err := d.str()
	if err != nil {
		return err
	}
	if d.space(); d.i >= len(d.s) || d.s[d.i] != ':' {
		return d.fail(d.i, "expected :")
	}
	d.i++
	fold := foldHash(key)
	if len(d.pairs)-base <= pairwise {
		for i, f := range d.folds[base:] {
			if f == fold && strings.EqualFold(d.pairs[base+i].K.str(), key) {
				return d.fail(at, "members that are equal or differ only in case")
			}
		}
	}
	// Reserve the place before the value is read: nested objects push above it.
	slot := len(d.pairs)
	d.pairs = append(d.pairs, Pair{K: String(key)})
	d.folds = append(d.folds, fold)
	v, err := d.value()
	if err != nil {
		return err
	}
	d.pairs[slot].V = v
	return nil
}

// foldHash returns a hash that is equal for strings that differ only in case.
func foldHash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf {
			return foldHashSlow(s)
		}
		h = (h ^ uint32(c|0x20)) * 16777619
	}
	return h
}

func foldHashSlow(s string) uint32 {
	h := uint32(2166136261)
	for _, r := range s {
		c := foldRune(r)
		if c < utf8.RuneSelf {
			c |= 0x20
		}
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

// foldRune returns the least rune that differs from r only in case.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// hasDuplicates reports whether the keys of two members are equal apart from case.
func hasDuplicates(mem []Pair) bool {
	seen := make(map[string]struct{}, len(mem))
	for i := range mem {
		k := mem[i].K.str()
		if !foldedAlready(k) {
			k = strings.Map(foldRune, k)
		}
		if seen[k] = struct{}{}; len(seen) <= i {
			return true
		}
	}
	return false
}

// foldedAlready reports whether s is ASCII without letters that folding changes.
func foldedAlready(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c-'a' < 26 {
			return false
		}
	}
	return true
}

// str reads the rest of a string after its opening quote. A string without escapes aliases the copy
// of the document.
func (d *decoder) str() (string, error) {
	s, from := d.s, d.i
	for i := from; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			d.i = i + 1
			return s[from:i], nil
		case c == '\\':
			return d.escaped(from, i)
		case c < 0x20:
			return "", d.fail(i, "control character in a string")
		}
	}
	return "", d.fail(len(s), "unexpected end of the document")
}

func (d *decoder) escaped(from, i int) (string, error) {
	s := d.s
	out := append(make([]byte, 0, i-from+32), s[from:i]...)
	for i < len(s) {
		c := s[i]
		switch {
		case c == '"':
			d.i = i + 1
			return string(out), nil
		case c < 0x20:
			return "", d.fail(i, "control character in a string")
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		if i+1 >= len(s) {
			break
		}
		if s[i+1] == 'u' {
			r, n := unescapeRune(s[i:])
			if n == 0 {
				return "", d.fail(i, "bad \\u escape")
			}
			out = utf8.AppendRune(out, r)
			i += n
			continue
		}
		at := strings.IndexByte(`"\/bfnrt`, s[i+1])
		if at < 0 {
			return "", d.fail(i, "bad escape")
		}
		out = append(out, "\"\\/\b\f\n\r\t"[at])
		i += 2
	}
	return "", d.fail(len(s), "unexpected end of the document")
}

// unescapeRune reads \uXXXX, or two of them for a surrogate pair; n is 0 if that fails.
func unescapeRune(s string) (r rune, n int) {
	r = hex4(s)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r2 := hex4(s[6:]); r2 >= 0 {
		if r = utf16.DecodeRune(r, r2); r != unicode.ReplacementChar {
			return r, 12
		}
	}
	return 0, 0
}

func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	x, err := strconv.ParseUint(s[2:6], 16, 16)
	if err != nil {
		return -1
	}
	return rune(x)
}
