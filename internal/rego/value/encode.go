package value

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// MarshalJSON implements json.Marshaler with AppendJSON.
func (v Value) MarshalJSON() ([]byte, error) { return v.AppendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler with Decode and its default limits.
func (v *Value) UnmarshalJSON(data []byte) (err error) {
	*v, err = Decode(data, Limits{})
	return err
}

// AppendJSON appends v as JSON. Members keep their order, sets become sorted arrays, keys that are
// not strings become their JSON text, and undefined becomes null.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.k {
	case BoolKind:
		return strconv.AppendBool(dst, v.n != 0)
	case NumberKind:
		return v.appendNumber(dst)
	case StringKind:
		return AppendString(dst, v.str())
	case ArrayKind, SetKind:
		dst = append(dst, '[')
		for i, e := range v.elems() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.AppendJSON(dst)
		}
		return append(dst, ']')
	case ObjectKind:
		dst = append(dst, '{')
		for i := range v.obj().mem {
			m := &v.obj().mem[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			if m.K.k == StringKind {
				dst = AppendString(dst, m.K.str())
			} else {
				dst = AppendString(dst, string(m.K.AppendJSON(nil)))
			}
			dst = m.V.AppendJSON(append(dst, ':'))
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

func (v Value) appendNumber(dst []byte) []byte {
	if v.p == nil {
		return strconv.AppendInt(dst, int64(v.n), 10)
	}
	return append(dst, (*number)(v.p).text...)
}

const hexDigits = "0123456789abcdef"

// verbatim are the ASCII bytes that need no escape in a JSON string.
var verbatim = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if verbatim[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// AppendKey appends v in a canonical form. Forms are equal if and only if the values are equal in
// Rego (1 == 1.0, members in any order). They have types and lengths in front, so that a sequence of
// forms is unambiguous. Rego can distinguish some equal values, so a cache of answers needs
// AppendExact.
func (v Value) AppendKey(dst []byte) []byte {
	switch v.k {
	case NullKind:
		return append(dst, 'n')
	case BoolKind:
		if v.n != 0 {
			return append(dst, 't')
		}
		return append(dst, 'f')
	case NumberKind:
		return v.appendNumberKey(dst)
	case StringKind:
		dst = binary.AppendUvarint(append(dst, 's'), uint64(v.n))
		return append(dst, v.str()...)
	case ArrayKind, SetKind:
		tag := byte('a')
		if v.k == SetKind {
			tag = 'e'
		}
		e := v.elems()
		dst = binary.AppendUvarint(append(dst, tag), uint64(len(e)))
		for i := range e {
			dst = e[i].AppendKey(dst)
		}
		return dst
	case ObjectKind:
		n := v.Len()
		dst = binary.AppendUvarint(append(dst, 'o'), uint64(n))
		for i := range n {
			m := v.Pair(i)
			dst = m.V.AppendKey(m.K.AppendKey(dst))
		}
		return dst
	}
	return append(dst, 'u')
}

// AppendExact appends v in a form that is different for any two values that Rego can distinguish. It
// is like AppendKey, but numbers keep their spelling (1, 1.0 and 1e0 differ, as in sprintf and
// json.marshal), and members keep their order.
func (v Value) AppendExact(dst []byte) []byte {
	switch v.k {
	case NumberKind:
		if v.p == nil {
			return binary.BigEndian.AppendUint64(append(dst, 'i'), uint64(v.n))
		}
		text := (*number)(v.p).text
		dst = binary.AppendUvarint(append(dst, 'd'), uint64(len(text)))
		return append(dst, text...)
	case ArrayKind, SetKind:
		tag := byte('a')
		if v.k == SetKind {
			tag = 'e'
		}
		e := v.elems()
		dst = binary.AppendUvarint(append(dst, tag), uint64(len(e)))
		for i := range e {
			dst = e[i].AppendExact(dst)
		}
		return dst
	case ObjectKind:
		mem := v.obj().mem
		dst = binary.AppendUvarint(append(dst, 'o'), uint64(len(mem)))
		for i := range mem {
			dst = mem[i].V.AppendExact(mem[i].K.AppendExact(dst))
		}
		return dst
	}
	return v.AppendKey(dst)
}

// Identical reports whether Rego cannot distinguish a from b (see AppendExact).
func Identical(a, b Value) bool {
	return Same(a, b) || bytes.Equal(a.AppendExact(nil), b.AppendExact(nil))
}

func (v Value) appendNumberKey(dst []byte) []byte {
	if i, ok := v.Int64(); ok {
		return binary.BigEndian.AppendUint64(append(dst, 'i'), uint64(i))
	}
	dst = append(dst, 'd')
	at := len(dst)
	dst = parseDecimal((*number)(v.p).text).append(append(dst, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
