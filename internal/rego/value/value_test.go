package value

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func must(t testing.TB, doc string) Value {
	t.Helper()
	v, err := Decode([]byte(doc), Limits{})
	if err != nil {
		t.Fatalf("Decode(%s): %v", doc, err)
	}
	return v
}

func TestDecodeRefuses(t *testing.T) {
	for name, doc := range map[string]string{
		"empty": "", "space": "  ", "trailing": `{} x`, "two": `1 2`, "duplicate": `{"a":1,"a":1}`,
		"case twin": `{"Tenant_ID":1,"tenant_id":2}`, "unicode twin": `{"k":1,"K":2}`, "long s": `{"S":1,"ſ":2}`,
		"1e400": `1e400`, "2^63": `9223372036854775808`, "-2^63-1": `-9223372036854775809`,
		"bad UTF-8": "\"\xff\"", "lone surrogate": `"\ud800"`, "surrogate order": `"\udc00\ud800"`, "leading zero": `01`, "-01": `-01`,
		"plus": `+1`, "dot": `1.`, "bare dot": `.5`, "exponent": `1e`, "minus": `-`, "nan": `NaN`, "control": "\"\x01\"",
		"escape": `"\x"`, "unicode escape": `"\u12g4"`, "open string": `"a`, "open escape": `"\`, "open object": `{"a":1`, "open array": `[1`, "comma": `[1,]`,
		"object comma": `{"a":1,}`, "key": `{1:2}`, "colon": `{"a" 1}`, "word": `tru`, "words": `truex`, "bom": "\ufeff1",
		"deep": strings.Repeat("[", 65) + strings.Repeat("]", 65), "very deep": strings.Repeat(`{"a":`, 1_000_000),
		"many":              "[" + strings.Repeat("0,", 250_000) + "0]",
		"duplicate of many": manyMembers(500, `"K7"`), "escaped duplicate": `{"a":1,"\u0061":2}`,
	} {
		_, err := Decode([]byte(doc), Limits{})
		if se, ok := errors.AsType[*SyntaxError](err); !ok || se.Offset < 0 || se.Offset > len(doc) || se.Message == "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Decode([]byte(`[1,2,3]`), Limits{Bytes: 6}); err == nil {
		t.Error("the limit of bytes does not hold")
	}
	if _, err := Decode([]byte(`[[1]]`), Limits{Depth: 1}); err == nil {
		t.Error("the limit of depth does not hold")
	}
}

func manyMembers(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		b.WriteString(`"k` + string(Int(int64(i)).AppendJSON(nil)) + `":0,`)
	}
	return b.String() + last + ":0}"
}

func TestDecodeKeepsOrderAndNumbers(t *testing.T) {
	for _, doc := range []string{
		`null`, `true`, `false`, `0`, `-0`, `-1`, `1.0`, `1e2`, `0.1`, `9223372036854775807`, `-9223372036854775808`, `123456789012345678`, `1.7976931348623157e308`,
		`""`, `"a\"b\\c\n\r\t\u0001é🙂"`, `[]`, `[1,"a",[],{}]`, `{}`, `{"b":1,"a":[{"z":null,"y":2.50}],"c":"x"}`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
	} {
		if got := string(must(t, doc).AppendJSON(nil)); got != doc {
			t.Errorf("%s became %s", doc, got)
		}
	}
	if s, _ := must(t, `"\ud83d\ude42\/\b\f"`).Str(); s != "🙂/\b\f" {
		t.Errorf("escapes: %q", s)
	}
	if got := must(t, " \t\n\r{ \"a\" : [ 1 , 2 ] } \n").At("a", "1"); !Equal(got, Int(2)) {
		t.Errorf("spaces: %v", got)
	}
}

func TestAccess(t *testing.T) {
	v := must(t, `{"u":{"id":"x","n":3,"f":1.0,"ok":true},"l":[1,2]}`)
	if s, ok := v.At("u", "id").Str(); !ok || s != "x" {
		t.Error("Str")
	}
	if i, ok := v.At("u", "f").Int64(); !ok || i != 1 {
		t.Error("Int64 of 1.0")
	}
	if v.At("u", "none", "deeper").Defined() || v.Get("l").Index(2).Defined() || v.Get("l").Index(-1).Defined() {
		t.Error("absent must be undefined")
	}
	if !v.At("u", "ok").True() || v.At("l").Len() != 2 {
		t.Error("Bool or Len")
	}
	w := v.With("l", Null()).With("new", Int(1))
	if string(w.AppendJSON(nil)) != `{"u":{"id":"x","n":3,"f":1.0,"ok":true},"l":null,"new":1}` || v.Get("new").Defined() || v.Get("l").IsNull() {
		t.Errorf("With: %s, was %s", w.AppendJSON(nil), v.AppendJSON(nil))
	}
	if got := string(w.With("u", Value{}).AppendJSON(nil)); got != `{"l":null,"new":1}` {
		t.Errorf("With undefined: %s", got)
	}
	big := must(t, manyMembers(100, `"last"`))
	if !Equal(big.Get("last"), Int(0)) || !Equal(big.Lookup(String("k50")), Int(0)) || big.Get("k100").Defined() {
		t.Error("Get in a big object")
	}
	if o := Object(Member{"a", Int(1)}, Member{"b", Value{}}, Member{"a", Int(2)}); string(o.AppendJSON(nil)) != `{"a":2}` {
		t.Errorf("Object: %s", o.AppendJSON(nil))
	}
}

func TestSize(t *testing.T) {
	v := Array(String(strings.Repeat("x", 1000)))
	for range 40 {
		v = Array(v, v, v)
	}
	if v.Size() != 1<<32-1 {
		t.Errorf("size of a value that shares its parts: %d", v.Size())
	}
	if got := must(t, `{"a":[1,"xy"],"b":null}`).Size(); got != 2+4+(2+8+5)+4+8 {
		t.Errorf("size %d", got)
	}
}

func TestSetsAndKeys(t *testing.T) {
	s := SetOf([]Value{Int(3), Int(1), must(t, "1.0"), String("a"), Int(2), Null(), Int(9), Int(8), Int(7), Int(6)})
	if got := string(s.AppendJSON(nil)); got != `[null,1,2,3,6,7,8,9,"a"]` || !s.Has(must(t, "3.0")) || s.Has(Int(4)) {
		t.Errorf("set: %s", got)
	}
	if _, err := ObjectOf([]Pair{{Int(1), Int(1)}, {must(t, "1.0"), Int(2)}}); !errors.Is(err, ErrConflict) {
		t.Errorf("conflict: %v", err)
	}
	o, err := ObjectOf([]Pair{{Int(2), Null()}, {Array(Int(1)), Bool(true)}, {Int(2), Null()}})
	if err != nil || string(o.AppendJSON(nil)) != `{"2":null,"[1]":true}` {
		t.Errorf("object: %s, %v", o.AppendJSON(nil), err)
	}
}

// drawValue draws any ground value, sets and odd keys too.
func drawValue(depth int, sets bool) *rapid.Generator[Value] {
	return rapid.Custom(func(t *rapid.T) Value {
		top := 5
		if depth > 0 {
			top = 7
			if sets {
				top = 8
			}
		}
		switch rapid.IntRange(0, top).Draw(t, "kind") {
		case 0:
			return Null()
		case 1:
			return Bool(rapid.Bool().Draw(t, "b"))
		case 2:
			return Int(rapid.Int64Range(-3, 12).Draw(t, "i"))
		case 3:
			v, err := Number(rapid.SampledFrom([]string{"1.0", "0.5", "-0", "0.0", "-0.0", "1e1", "10.0", "2.50", "2.5", "9007199254740993", "9007199254740992.0", "1e18", "1000000000000000000", "0.1", "0.10000000000000000555", "-1e-7", "12345678901234567890", "1e30", "1000000000000000000000000000000"}).Draw(t, "n"))
			errtest.Must(t, err)
			return v
		case 4:
			return String(rapid.SampledFrom([]string{"", "a", "b", "aa", "1", "é", "K\n\""}).Draw(t, "s"))
		case 5:
			return Int(rapid.Int64().Draw(t, "big"))
		case 6:
			return Array(rapid.SliceOfN(drawValue(depth-1, sets), 0, 4).Draw(t, "a")...)
		case 7:
			n := rapid.IntRange(0, 4).Draw(t, "members")
			seen := map[string]bool{}
			var pairs []Pair
			for range n {
				k := drawValue(0, false).Draw(t, "k")
				if !sets {
					k = String(rapid.StringN(0, 3, -1).Draw(t, "key"))
				}
				id := string(k.AppendKey(nil))
				if !seen[id] {
					pairs = append(pairs, Pair{k, drawValue(depth-1, sets).Draw(t, "v")})
				}
				seen[id] = true
			}
			v, err := ObjectOf(pairs)
			errtest.Must(t, err)
			return v
		}
		return SetOf(rapid.SliceOfN(drawValue(depth-1, sets), 0, 4).Draw(t, "set"))
	})
}

func TestComparesAsOPA(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawValue(2, true).Draw(t, "a"), drawValue(2, true).Draw(t, "b")
		want := ast.Compare(a.AST(), b.AST())
		if got := Compare(a, b); sign(got) != sign(want) {
			t.Fatalf("Compare(%s, %s) = %d, OPA %d", a.AppendJSON(nil), b.AppendJSON(nil), got, want)
		}
		if Equal(a, b) != (want == 0) {
			t.Fatalf("Equal(%s, %s) = %v", a.AppendJSON(nil), b.AppendJSON(nil), Equal(a, b))
		}
		if keys := slices.Equal(a.AppendKey(nil), b.AppendKey(nil)); keys != (want == 0) {
			t.Fatalf("keys of %s and %s: equal %v", a.AppendJSON(nil), b.AppendJSON(nil), keys)
		}
		back, err := FromAST(a.AST())
		if err != nil || !Equal(a, back) {
			t.Fatalf("through the AST: %s, %v", back.AppendJSON(nil), err)
		}
	})
}

func sign(i int) int { return min(1, max(-1, i)) }

// Two lists of values have equal keys only if they are equal value by value.
func TestKeysAreNeverAmbiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SliceOfN(drawValue(1, true), 0, 3)
		a, b := g.Draw(t, "a"), g.Draw(t, "b")
		var x, y []byte
		for _, v := range a {
			x = v.AppendKey(x)
		}
		for _, v := range b {
			y = v.AppendKey(y)
		}
		if slices.Equal(x, y) != slices.EqualFunc(a, b, Equal) {
			t.Fatalf("%s and %s", Array(a...).AppendJSON(nil), Array(b...).AppendJSON(nil))
		}
	})
}

// Exact keys are equal only where the JSON texts are the same: whoever sees a
// value can see no more than that.
func TestExactKeysAreTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SliceOfN(drawValue(2, false), 0, 3)
		a, b := g.Draw(t, "a"), g.Draw(t, "b")
		var x, y []byte
		for _, v := range a {
			x = v.AppendExact(x)
		}
		for _, v := range b {
			y = v.AppendExact(y)
		}
		texts := slices.Equal(Array(a...).AppendJSON(nil), Array(b...).AppendJSON(nil))
		if slices.Equal(x, y) != texts || Identical(Array(a...), Array(b...)) != texts {
			t.Fatalf("%s and %s", Array(a...).AppendJSON(nil), Array(b...).AppendJSON(nil))
		}
	})
	for _, c := range [][2]string{{"1", "1.0"}, {"0", "-0"}, {"1e2", "100"}, {`{"a":1,"b":2}`, `{"b":2,"a":1}`}, {`["0"]`, `{"0":"0"}`}, {`"1"`, "1"}, {"null", "false"}} {
		a, b := must(t, c[0]), must(t, c[1])
		if Identical(a, b) || !Identical(a, must(t, c[0])) {
			t.Errorf("%s and %s are not told apart", c[0], c[1])
		}
	}
	if Identical(Array(Int(1)), SetOf([]Value{Int(1)})) || Identical(Value{}, Null()) {
		t.Error("an array is a set, or null is undefined")
	}
	if v := must(t, `{"a":["x",{"b":1}]}`); v.Members("a", "0").Defined() || v.Members("a", "1", "b").Defined() || !v.Members("a").Defined() {
		t.Error("a name leads into an array")
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(3, false).Draw(t, "v")
		data := v.AppendJSON(nil)
		if !json.Valid(data) {
			t.Fatalf("not JSON: %s", data)
		}
		any1, err := FromAny(v.Any())
		if err != nil || !Equal(any1, v) {
			t.Fatalf("through any: %s, %v", any1.AppendJSON(nil), err)
		}
		if strings.Contains(string(data), "12345678901234567890") || strings.Contains(string(data), "1000000000000000000000000000000") {
			return // Decode refuses such integers
		}
		back, err := Decode(data, Limits{})
		if se, ok := errors.AsType[*SyntaxError](err); ok && strings.Contains(se.Message, "case") {
			return
		}
		if err != nil || !Equal(back, v) {
			t.Fatalf("%s decoded to %s, %v", data, back.AppendJSON(nil), err)
		}
	})
}

func TestFromAny(t *testing.T) {
	got, err := FromAny(map[string]any{"a": []any{1, 2.5, "x", nil, true, json.Number("1e3"), []string{"s"}}, "b": map[string]string{"k": "v"}, "c": struct {
		N int `json:"n"`
	}{3}, "d": uint64(1 << 63), "u": Value{}})
	errtest.Must(t, err)
	if diff := cmp.Diff(`{"a":[1,2.5,"x",null,true,1e3,["s"]],"b":{"k":"v"},"c":{"n":3},"d":9223372036854775808}`, string(got.AppendJSON(nil))); diff != "" {
		t.Error(diff)
	}
	if _, err := FromAny(make(chan int)); err == nil {
		t.Error("a channel is no value")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"\u00e9\n",null,true,{}]}`, `1e400`, `{"A":1,"a":2}`, `"\ud83d\ude42"`, `[[[]]]`, `-0`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keep := slices.Clone(data)
		v, err := Decode(data, Limits{})
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted %q, which is not JSON", data)
		}
		out := v.AppendJSON(nil)
		clear(data) // the value must not alias its source
		if got := v.AppendJSON(nil); !slices.Equal(got, out) {
			t.Fatalf("the value changed with its source: %s, was %s", got, out)
		}
		again, err := Decode(out, Limits{})
		if err != nil || !Equal(v, again) || !slices.Equal(v.AppendKey(nil), again.AppendKey(nil)) {
			t.Fatalf("%q written as %s reads as %s, %v", keep, out, again.AppendJSON(nil), err)
		}
		std, err := ast.ValueFromReader(strings.NewReader(string(keep)))
		if err == nil && ast.Compare(std, v.AST()) != 0 {
			t.Fatalf("%q: OPA reads %v, Decode %v", keep, std, v.AST())
		}
	})
}

func FuzzNumber(f *testing.F) {
	f.Add("1.0", "1")
	f.Add("-0.0", "1e-400")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err1 := Number(a)
		y, err2 := Number(b)
		if err1 != nil || err2 != nil || len(a) > 40 || len(b) > 40 || longExponent(a) || longExponent(b) {
			return
		}
		r, _ := new(big.Rat).SetString(a)
		s, _ := new(big.Rat).SetString(b)
		if got := Compare(x, y); sign(got) != r.Cmp(s) {
			t.Fatalf("Compare(%s, %s) = %d", a, b, got)
		}
		if slices.Equal(x.AppendKey(nil), y.AppendKey(nil)) != (r.Cmp(s) == 0) {
			t.Fatalf("keys of %s and %s", a, b)
		}
	})
}

func longExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(s)-i > 5
}

const benchRequest = `{"user":{"id":"u-1042","department":"finance","roles":["analyst","viewer"],"clearance":3,"email":"ann.example@corp.example","mfa":true},
"action":{"name":"read","method":"GET"},"resource":{"id":"r-5531","type":"document","path":"/finance/reports/q3","owner":"u-77","sensitivity":2},
"context":{"ip":"10.1.22.33","time":"2026-03-04T10:11:12Z","hour":10,"device":{"managed":true,"os":"linux"},"session":"s-99120"},"request_id":"01J9ZK3T5M8Q"}`

func BenchmarkDecode(b *testing.B) {
	data := []byte(benchRequest)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		errtest.Must(b, errtest.Of(Decode(data, Limits{})))
	}
}

func BenchmarkAppendKey(b *testing.B) {
	v, _ := Decode([]byte(benchRequest), Limits{})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = v.AppendKey(buf[:0])
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	v, _ := Decode([]byte(benchRequest), Limits{})
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = v.AppendJSON(buf[:0])
	}
}

// BenchmarkDecodeMany: a long text of many small objects costs by its length.
func BenchmarkDecodeMany(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		data := []byte(`{"items":[` + strings.Repeat(`{"a":{},"b":1},`, n-1) + `{}]}`)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				errtest.Must(b, errtest.Of(Decode(data, Limits{})))
			}
		})
	}
}
