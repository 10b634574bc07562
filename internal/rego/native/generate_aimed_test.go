package native

import (
	gobinary "encoding/binary"
	"math/big"
	"math/rand/v2"
	"strings"
)

// draws returns a number from 0 to n-1.
type draws func(n int) int

// drawsOf draws from bytes, and never fails. The first eight bytes seed a random generator, and
// each further byte replaces one of its draws. So any bytes make a program, and changing one byte
// changes one choice.
func drawsOf(data []byte) draws {
	var seed [8]byte
	data = data[copy(seed[:], data):]
	chance := rand.New(rand.NewPCG(gobinary.BigEndian.Uint64(seed[:]), 1)) //nolint:gosec // draws must be reproducible
	return func(n int) int {
		drawn := chance.IntN(n)
		if len(data) == 0 {
			return drawn
		}
		b := int(data[0])
		data = data[1:]
		if b == 0 { // leave the draw as it is, so that a fuzzer can reach a later one
			return drawn
		}
		return (b - 1) % n
	}
}

// families are spellings of numbers that are equal or adjacent, near the limits of float64, int64
// and the number of digits. -0.0 is in none; see numbers.
var families = func() [][]string {
	list := [][]string{{
		"0", "-0", "0.0", "0e5", "0e-1", "1", "1.0", "1e0", "10e-1", "0.1e1", "1.00", "1E+0", "-1", "-1.0", "-1e0", "1.5", "15e-1", "2", "2.0", "20e-1",
		"1e-300", "0.1", "1e-1", "0.10000000000000001", "100e-3",
	}}
	one := big.NewInt(1)
	for _, base := range []*big.Int{
		new(big.Int).Lsh(one, 53), new(big.Int).Lsh(one, 63), new(big.Int).Lsh(one, 64), new(big.Int).Exp(big.NewInt(10), big.NewInt(63), nil),
		new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(64), nil), big.NewInt(2)), big.NewInt(1e18), big.NewInt(100),
	} {
		var near, below []string
		for _, by := range []int64{-2, -1, 0, 1, 2} {
			n := new(big.Int).Add(base, big.NewInt(by)).String()
			if len(n) > 64 {
				continue
			}
			for _, text := range []string{n, n, n + ".0", n + "e0", n[:1] + "." + n[1:] + "e" + big.NewInt(int64(len(n)-1)).String(), n + "0e-1", n[:len(n)-1] + "." + n[len(n)-1:] + "E+1"} {
				near, below = append(near, text), append(below, "-"+text)
			}
		}
		list = append(list, near, below, list[0]) // a third are the first number
	}
	return list
}()

// spelled are keys that are equal texts, or look alike, in different spellings.
var spelled = []string{
	`"a"`, `"\u0061"`, "`a`", `"1"`, `"\u0031"`, `"1.0"`, `"1e0"`, `"-0"`, `"0"`, `""`, `"\u0000"`, `"é"`, `"\u00e9"`, `"e\u0301"`, `"😀"`, `"\ud83d\ude00"`, `"\""`, "`\"`", `"\\"`, "`\\`", `"a\u0000"`,
	"1", "1.0", "1e0", "0", "-0", "true", "null", "[1]", "[1.0]", "{1}", "{1.0}", `{"a": 1}`, `{"\u0061": 1.0}`,
}

// aims are terms for which evaluators differ if one of them confuses two numbers or keys, or
// distinguishes equal ones. %n is a number of the family, %k a key (%N and %K hide them from OPA's
// compiler), %t a term, %r a reference, %i a name in input and %f a function. %F, %G (with two
// parameters) and %P (a name in input) are the same wherever they occur.
var aims = []string{
	"{%n: 1}[%n]", "{%n: 1, %k: 2}[%k]", `object.get({%n: "x"}, %n, "none")`, `object.get({%k: "x"}, %k, "none")`, "[%n == %n, %n < %n, %n <= %n, %n != %n]", "[x | some x in {%n, %n, %n}]",
	"%n in {%n, 7}", "%n in [%n, %n]", "count({%n, %n, %k, %k})", "{k: 1 | some k in [%n, %n, %k]}", "{k: v | some v, k in [%n, %n]}", "object.union({%n: 1}, {%n: 2})", "object.union_n([{%k: 1}, {%k: 2}, {%n: 3}])",
	"{%n, %n} | {%n}", "{%n, 5} & {%n, %n}", "{%n, %n} - {%n}", "[%n, %n] == [%n, %n]", "{%n: {%n: 1}} == {%n: {%n: 1}}", "{{%n}: 1}[{%n}]", "{[%n]: 1}[[%n]]", "sort([%n, %n, %n])", "max([%n, %n]) == min({%n, %n})",
	`sprintf("%v %d %s", [{%n: %n}, %n, %n])`, "object.remove({%n: 1, %k: 2}, [%n, %k])", "object.filter({%n: 1, %k: 2}, {%n, %k})", "object.keys({%n: 1, %n: 1})", "json.marshal({%k: %n, %n: %k})",
	"%n - %n", "%n + %n", "%n * %n", "%n % %n", "%n / %n", "[abs(%n), round(%n), ceil(%n), floor(%n)]", "bits.and(%n, %n)", "sum([%n, %n])", "product({%n, %n})", "format_int(%n, 10)", "[%f(%n), %f(%n)]", "[%f(%k), %f(%k)]",
	"[y | some x in [%n, %n]; y := {%n: x}[x]]", "{x: y | some x in [%n, %n]; y := [z | some z in [%n, %n]; z == x]}", "[count(y) | some x in [%n, %n]; y := {z | some z in [%n, %n]; z <= x}]", "numbers.range(%n, %n)",
	"{x | every x in [%n, %n] { x >= %n }; x := 1}", "[1 | every x in [%n, %n, %n] { x != %n }]", "[1 | every k, v in {%k: %n, %n: %n} { [k, v] != [%k, %n] }]", "[1 | every x in %t { is_string(x) }]", "[1 | every x in %r { x != %r }]",
	"[1 | every x in [] { x == 1 }]", "[1 | every x in [%n, %n] { to_number(%r) == x }]", "[[p, v] | walk(%t, [p, v])]", "[v | walk({%k: %n, %n: [%n, {%k}]}, [p, v])]", "[x | walk(%r, [[%k, x], _])]",
	"[[x, y] | x := %r with input.%i as %n; y := %r]", "[[x, y] | x := input.%P with input.%P as %n; y := input.%P]", "[x | input.%P == %n with input.%P as %n; x := input.%P]", "[[x, y] | x := %r with input.%i as %t; y := %r]", "[[x, y, z] | x := %F(1) with %F as %n; y := %F(1); z := %r]", "[[x, y] | x := %r with %F as %n; y := %F(%n)]", "[%G(%n, %n), %G(%n, %n), %G(%n, %k)]", "[%F(%n), %F(%n), %F(%n)]", "[[x, y] | x := input with input.%i.%i as %k; y := input]",
	"[x | some k; x := %t[k]]", "[x | %t[x]]", "[x | some x in %t; x == %r]", "[k | some k, x in %t; not x == %n]", "[x | x := %t[_]; x in %r]", "[i | {%n: %n, %k: %k}[i] == %n]", "{v: k | some k, v in %t}", "{v: k | some k, v in {%k: %n, %k: %n}}",
	"json.unmarshal(json.marshal({%k: %n}))", "json.remove(%t, [[%K], [%N]])", "json.filter(%t, [[%K, %K], %K])", "json.patch(%r, [{\"op\": \"add\", \"path\": [%k], \"value\": %n}])", "array.slice(%t, %n, %n)", "[to_number(format_int(%n, 10)) == %n]",
	"type_name(%n)", "is_number(%n)", "%t[%n]", "%t[%k]", "%r[%k]", "[%n, %n][%n]", "[[%n, 1], [%n, 2]][0]", "{x | some x in [%k, %k, %n]}", "array.reverse([%n, %k])", "array.concat(%t, [%n])", "strings.count(%K, %K)",
	"internal.member_2(%n, {%n, %n})", `concat("", {%K, %K})`, "indexof_n(%K, %K)", "[[%n, %k], {%n: %k}] < [[%n, %k], {%n: %k}]", "{%n} < {%n}", "{%n: 1} < {%n: 1}", "object.subset({%n: %n}, {%n: %n})", "object.subset({%n, %n}, {%n})", "object.subset([%n, %n], [%n])",
	"union({{%n}, {%n}})", "intersection({{%n, %n}, {%n}})", "crypto.md5(json.marshal({%n: %k}))", "startswith(%K, %K)", "graph.reachable({%n: [%n], %n: [%k]}, [%n])", "graph.reachable_paths({%k: [%k], %k: [%n]}, [%k])",
}

// aimed fills in one of the aims. It hides half of the literals, because OPA's compiler evaluates
// literals itself.
func (g *maker) aimed(depth int) string {
	return g.inner(func() string {
		var out strings.Builder
		text := "(" + g.pick(aims...) + ")"
		f, pair, key := g.taking(1), g.taking(2), g.key()
		for {
			before, rest, found := strings.Cut(text, "%")
			out.WriteString(before)
			if !found {
				return out.String()
			}
			text = rest[1:]
			switch rest[0] {
			case 'n':
				out.WriteString(g.maybeHidden(g.pick(g.near...)))
			case 'k':
				out.WriteString(g.maybeHidden(g.pick(spelled...)))
			case 'N':
				out.WriteString(g.hidden(g.pick(g.near...)))
			case 'K':
				out.WriteString(g.hidden(g.pick(spelled...)))
			case 't':
				out.WriteString(g.hidden(g.term(depth)))
			case 'r':
				out.WriteString(g.known())
			case 'f':
				out.WriteString(g.taking(1))
			case 'F':
				out.WriteString(f)
			case 'G':
				out.WriteString(pair)
			case 'P':
				out.WriteString(key)
			case 'i':
				out.WriteString(g.key())
			default:
				out.WriteString("%" + rest[:1])
			}
		}
	})
}

func (g *maker) maybeHidden(text string) string {
	if g.below(2) == 0 {
		return g.hidden(text)
	}
	return text
}

// known returns a reference without a path, or with a short one.
func (g *maker) known() string {
	if len(g.rules) > 0 && g.below(3) > 0 {
		return g.pick(g.rules...)
	}
	return "input." + g.key()
}

// taking returns the name of a function with a number of parameters, or a built-in if there is
// none.
func (g *maker) taking(n int) string {
	var fit []string
	for _, f := range g.fns {
		if g.arity[f] == n {
			fit = append(fit, f)
		}
	}
	if len(fit) == 0 {
		return "object.remove"
	}
	return g.pick(fit...)
}
