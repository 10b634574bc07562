package target

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// maxPathBytes and maxSegments limit a path.
const (
	maxPathBytes = 8 << 10
	maxSegments  = 256
)

// Why a path is refused.
var (
	errPathSlash    = errors.New("the path must begin with a slash")
	errPathLong     = errors.New("the path is too long")
	errPathEncoding = errors.New("the path has an invalid percent-encoding")
	errPathEncoded  = errors.New("the path has an encoded slash, backslash or NUL")
	errPathChar     = errors.New("the path has a backslash, control character, query or fragment")
	errPathUTF8     = errors.New("the path is not valid UTF-8")
	errPathDots     = errors.New("the path has a dot segment with parameters")
)

// NormalisePath returns the canonical form of a URL path. It begins with a slash, and has no empty
// segments, no dot segments and no slash at its end. Escapes of letters, digits and `-._~` are
// decoded, which does not change the meaning (RFC 3986 section 6.2.2). All other escapes stay, in
// upper case, and characters that RFC 3986 does not allow in a segment are escaped. It fails for a
// path that servers can read in different ways: one with an encoded slash or backslash, a
// backslash, control characters, a dot segment with parameters (`..;x`), invalid UTF-8, an invalid
// escape, `?` or `#`. It also fails for a path that is too long or does not begin with a slash. A
// canonical path is returned as it is, without allocating.
func NormalisePath(raw string) (string, error) {
	if isCanonical(raw) {
		return raw, nil
	}
	segs, err := splitPath(raw)
	if err != nil {
		return "", err
	}
	if len(segs) == 0 {
		return "/", nil
	}
	return "/" + strings.Join(segs, "/"), nil
}

// segmentChar reports whether a byte needs no escape in a segment (pchar of RFC 3986, section 3.3).
func segmentChar(c byte) bool {
	return Unreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}

var segmentChars = func() (t [256]bool) {
	for c := range 256 {
		t[c] = segmentChar(byte(c))
	}
	return t
}()

// isCanonical is the fast path of NormalisePath. It reports whether a path has no escapes and
// nothing to change. It may return false for a canonical path.
func isCanonical(p string) bool {
	if p == "/" {
		return true
	}
	if len(p) < 2 || p[0] != '/' || len(p) > maxPathBytes {
		return false
	}
	start, slashes := 1, 1
	for i := 1; i < len(p); i++ {
		c := p[i]
		if c == '/' {
			if i == start || slashes == maxSegments {
				return false
			}
			start, slashes = i+1, slashes+1
			continue
		}
		// A segment that begins with a dot takes the slow path.
		if !segmentChars[c] || c == '.' && i == start {
			return false
		}
	}
	return start < len(p)
}

// splitPath returns the segments of a path in their canonical form, with dot segments resolved.
func splitPath(raw string) ([]string, error) {
	if raw == "" || raw[0] != '/' {
		return nil, errPathSlash
	}
	if len(raw) > maxPathBytes {
		return nil, errPathLong
	}
	canon, err := escapePath(raw)
	if err != nil {
		return nil, err
	}
	segs := make([]string, 0, 8)
	for s := range strings.SplitSeq(canon, "/") {
		switch {
		case s == "" || s == ".":
		case s == "..":
			segs = segs[:max(len(segs)-1, 0)]
		case strings.HasPrefix(s, ".;"), strings.HasPrefix(s, "..;"), strings.HasPrefix(s, ".%3B"), strings.HasPrefix(s, "..%3B"):
			return nil, errPathDots
		default:
			segs = append(segs, s)
		}
	}
	if len(segs) > maxSegments {
		return nil, errPathLong
	}
	return segs, nil
}

// escapePath writes each byte of a path in its canonical form, and refuses bytes that can be read
// in more than one way.
func escapePath(raw string) (string, error) {
	const hex = "0123456789ABCDEF"
	out, plain := make([]byte, 0, len(raw)+8), make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		encoded := c == '%'
		if encoded {
			if i+2 >= len(raw) {
				return "", errPathEncoding
			}
			hi, lo := unhex(raw[i+1]), unhex(raw[i+2])
			if hi < 0 || lo < 0 {
				return "", errPathEncoding
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		switch {
		case encoded && (c == '/' || c == '\\' || c == 0):
			return "", errPathEncoded
		case c < 0x20 || c == 0x7f || c == '\\', !encoded && (c == '?' || c == '#'):
			return "", errPathChar
		}
		plain = append(plain, c)
		if Unreserved(c) || !encoded && (c == '/' || segmentChars[c]) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	// A decoder that came before may have replaced invalid bytes by U+FFFD.
	if !utf8.Valid(plain) || strings.ContainsRune(string(plain), utf8.RuneError) {
		return "", errPathUTF8
	}
	return string(out), nil
}

// Unreserved reports whether a byte means the same with and without an escape (RFC 3986, section
// 2.3).
func Unreserved(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
