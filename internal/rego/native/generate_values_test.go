package native

import (
	"encoding/base64"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The values that modules and inputs are drawn from. Evaluators differ at the edges: the spelling
// of a number, a key that looks like another one, a text that one parser accepts and another one
// rejects.

// numbers are spellings of numbers within the range. -0.0 is not among them: OPA's objects and sets
// can hold it beside 0 and -0.
var numbers = []string{
	"0", "-0", "0.0", "0e5", "0e-400", "1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "-1", "-1.0", "2", "2.0", "3", "5", "8", "10", "1e1", "100", "2.5", "-2.5", "0.5", "0.1", "0.30000000000000004",
	"1.5e1", "15", "1e3", "1000", "4294967296", "2147483647", "-2147483648", "9007199254740993", "9007199254740992", "9007199254740992.0", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616",
	"1e18", "1e19", "1e22", "1e23", "123456789012345678901234567890", nines, "-" + nines, "1e63", "1e64", "1e300", "1.7e308", "-1e300", "1e-300", "5e-324", "1772619072000000013", "1.5", "7", "64", "63",
}

// wild are unusual spellings of numbers, and some numbers outside the range.
var wild = []string{"1e400", "-1e400", "1e-400", "1" + strings.Repeat("0", 64), nines, "+1", ".5", "5.", "007", "0x10", "1_000", "Infinity", "NaN", "1e", "--1", " 1", "1 ", "1e0", "-0", "1.0", "１"}

var nines = strings.Repeat("9", 64)

var words = []string{"a", "b", "c", "1", "1.0", "0", "x y", "", "A", "é", "ß", "a\u0000b", "😀a", "abcabc", "a.b", "a/b", "10.1.2.3", "true", "null", "[1]", "10.0.0.0/8", "2026-03-04T10:11:12Z"}

var keys = []string{"a", "b", "c", "l", "o", "n", "s", "t", "1", "0", "1.0"}

func encoded(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// texts are strings that are meaningful to built-ins, by the prefix of the built-in's name.
var texts = []struct {
	prefix string
	list   []string
}{
	{"net.", []string{"10.0.0.0/8", "10.1.0.0/25", "10.1.2.3", "10.1.2.0/30", "10.1.2.3/32", "::/0", "fe80::1", "fe80::/64", "2001:db8::/126", "::ffff:10.1.2.3", "::ffff:10.0.0.0/104", "bad", "10.1.2.3/33", "010.1.2.3", "fe80::1%eth0", "0.0.0.0/0", ""}},
	{"regex.", []string{"^a.*$", "[0-9]+", "a|b", "(a)(b)?", "(?i)A", `\bx\b`, "", "(", "a{2,3}", `\pL+`, "(?P<n>a)", "[a-z]*", "$0", "${1}x", "{a}", "abcabc", "{", "}", "x y", "a*", "[a", "b+"}},
	{"glob.", []string{"*", "a*", "*.b", "**", "{a,b}", "a?c", "[a-c]", "[!a]*", "a.*.c", "{a", `\*`, ".", ":", "a.b", "abc", ""}},
	{"time.format", []string{"RFC3339", "RFC1123Z", "2006-01-02", "Mon Jan 2", "Europe/Berlin", "UTC", "Local", "Nowhere/City", ""}},
	{"time.parse_duration", []string{"1h", "-2m30s", "1.5h", "1", "9999999h", "1ns", "", "h"}},
	{"time.", []string{"RFC3339", "2006-01-02", "2006-01-02T15:04:05Z07:00", "2026-03-04", "2026-03-04T10:11:12Z", "2026-03-04T10:11:12.5+02:00", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00Z", "2300-01-01T00:00:00Z", "1677-01-01T00:00:00Z", "Europe/Berlin", "UTC", "bad", ""}},
	{"json.", []string{`{"a": 1}`, `{"a": 1, "a": 1.0}`, "[1, 1.0, 1e0]", "1e400", "-0", "1.0", `"a"`, "{", "null", " [ ] ", "[1]x", `{"1": {"a": [1e-400]}}`, "9223372036854775808", "1" + strings.Repeat("0", 64), "/a", "a/b", "/a/0", "/a~1b", "", "/l/-"}},
	{"yaml.", []string{"a: 1", "- 1\n- 1.0", "a: [1, 2e3]", "x: &a [1]\ny: *a", "1: a", "~", "yes", "a: 0x10", "a: 1e400", "a: 2026-03-04", ": :", "\t", "a: .inf", "{a: b, a: c}", "? [1]\n: 2", "a: -0", "a: 1_000", "", "--- 1\n--- 2", "a: !!str 1", "a: 0o17", "1" + strings.Repeat("0", 64)}},
	{"base64", []string{"YQ==", "YQ", "YWI_", "YWI/", "", "!", "YQ= =", "w6k", "/w==", "_w"}},
	{"hex.", []string{"61", "6", "zz", "", "ff", "c3a9"}},
	{"urlquery.", []string{"a=1&b=2", "a=1&a=2", "%zz", "a%20b", "+", "a;b", "", "a=&=b", "%00"}},
	{"uri.", []string{"http://a.b:80/c?d=e#f", "a", "://", "mailto:x@y", "http://[::1]:8", "http://u:p@h/", "//h/p", "http://h:x/", "", "%zz", "/a b"}},
	{"units.", []string{"1", "1K", "1Ki", "10MB", "1.5G", "-1k", "1e3", "1e400", "1m", `"2Gi"`, "", "K", "1 K", "1KK", "1e1K", "0.1m", "1E", "1Ei", "0x1"}},
	{"semver.", []string{"1.0.0", "1.0", "1.0.0-a", "1.0.0-a.1", "1.0.0+b", "01.0.0", "v1.0.0", "", "99999999999999999999.0.0", "1.0.0-", "1.2.3-1"}},
	{"uuid.", []string{"00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "{6ba7b810-9dad-41d1-80b4-00c04fd430c8}", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", "bad", ""}},
	{"io.jwt.", []string{
		hs256, hs256[:len(hs256)-2], "secret", "wrong", encoded(`{"alg":"none"}`) + "." + encoded(`{"exp":1e400}`) + ".",
		encoded(`{"alg":"none"}`) + "." + encoded(`{"exp":1.0,"n":-0}`) + ".", "a.b.c", "", "..", encoded(`{"alg":"HS256"}`) + "." + encoded(`[1]`) + ".x", encoded(`{"alg":"HS256","crit":["x"]}`) + "." + encoded(`{}`) + "." + encoded("x"), "HS256",
	}},
	{"to_number", wild},
	{"sprintf", []string{"%v %v", "%d-%s", "%5d|%s", "%s", "%d", "%%", "%f", "%.2f", "%x", "%X", "%q", "%t", "%e", "%g", "%b", "%o", "%c", "%U", "%T", "%p", "%[2]v %[1]v", "%[3]d", "%*d", "%+v", "%#v", "%08.3f", "%!", "%", "%v", "%-5s|", "%5t", "% d", "%d%d"}},
	{"substring", []string{"abcabc", "é😀x", ""}},
	{"strings.", []string{"abcabc", "ab", "c", "", "é", "a", "bc"}},
	{"crypto.", []string{"a", "", "é", "0cc175b9c0f1b6a831c399e269772661"}},
}

// hs256 is a token signed with the key "secret".
const hs256 = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIiwiZXhwIjozMDAwMDAwMDAwLjUsIm4iOjEuMH0.Zde4kkmsmmzQdXOr4fhIfYW-5Bbt_4ujTN0e4QbzDjk"

// textsOf returns the texts that are meaningful to a built-in.
func textsOf(name string) []string {
	for _, t := range texts {
		if strings.HasPrefix(name, t.prefix) {
			return t.list
		}
	}
	return words
}

// document returns an input or a document of data, without sets and without keys that are not
// strings: no request can hold those.
func (g *maker) document(depth int) value.Value {
	top := 8
	if depth == 0 {
		top = 4
	}
	switch g.below(top) {
	case 0:
		text := g.pick(numbers...)
		if g.below(2) == 0 {
			text = g.pick(g.near...)
		}
		v, err := value.Number(text)
		if err != nil {
			panic(err) // a mistake in the lists
		}
		return v
	case 1, 2:
		if g.below(4) == 0 {
			return value.String(g.pick(texts[g.below(len(texts))].list...))
		}
		return value.String(g.pick(words...))
	case 3:
		return []value.Value{value.Bool(true), value.Bool(false), value.Null()}[g.below(3)]
	case 4:
		var elems []value.Value
		for range g.below(4) {
			elems = append(elems, g.document(depth-1))
		}
		return value.Array(elems...)
	case 5: // shared parts
		part := g.document(depth - 1)
		pair := value.Array(part, part)
		return []value.Value{pair, value.Array(pair, pair, pair), value.Array(pair, part)}[g.below(3)]
	}
	var members []value.Member
	for _, k := range keys {
		if g.below(4) == 0 {
			members = append(members, value.Member{Key: k, Value: g.document(depth - 1)})
		}
	}
	return value.Object(members...)
}

func (g *maker) input() value.Value {
	var members []value.Member
	for _, k := range []string{"a", "b", "c", "l", "o", "n", "s", "t"} {
		if g.below(10) > 0 {
			members = append(members, value.Member{Key: k, Value: g.document(2)})
		}
	}
	return value.Object(members...)
}
