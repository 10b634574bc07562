package native

import (
	"errors"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/eval"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// regressions are differences from topdown that generated programs found, now fixed. want is the
// value of rule r, or error or limit.
var regressions = []struct{ name, source, want string }{
	{"a count with an exponent is no integer", `r := regex.find_n("a", "aa", input.one_e0)`, "error"},
	{"a count of 1.0 is one", `r := regex.find_n("a", "aa", input.one_0)`, `["a"]`},
	{"an index with an exponent is none", `r := [1, 2][input.one_e0]`, "undefined"},
	{"an index of 1.0 is one", `r := [1, 2][input.one_0]`, "2"},
	{"an index of 20 characters is none", `r := [1, 2][input.one_long]`, "undefined"},
	{"a chance below 1e0", `r := rand.intn("x", input.one_e0)`, "error"},
	{"a union keeps the left one's key", `r := sprintf("%v", [object.union({input.one_e0: 1}, {1.0: 2})])`, `"{1e0: 2}"`},
	{"a union of several keeps the last one's key", `r := sprintf("%v", [object.union_n([{input.one_e0: 1}, {1.0: 2}])])`, `"{1.0: 2}"`},
	{"an intersection keeps the smaller set's element", `r := sprintf("%v", [{input.one_e0, 7, 8} & {1.0, 9}])`, `"{1.0}"`},
	{"of two sets of one size it keeps the left one's", `r := sprintf("%v", [intersection({{input.one_e0, 7}, {1.0, 9}})])`, `"{1e0}"`},
	{"a reference comes before a comprehension", `r if {x | x := input.a & input} == input.none`, "undefined"},
	{"what is of another kind is not compared with a comprehension", `r if [x | x := input.a & input] == input`, "undefined"},
	{"what is under data is", `r if {x | x := input.a & input} == data.text`, "error"},
	{"65,536 addresses are within the bound", `r := count(net.cidr_expand("10.1.0.0/16"))`, "65536"},
	{"131,072 are not", `r := count(net.cidr_expand("10.0.0.0/15"))`, "limit"},
	{"a width may be an operand", `r := sprintf("%*d", [5, 42])`, `"   42"`},
	{"a wide one may not", `r := sprintf("%*d%*d%*d", [900000, 1, 900000, 1, 900000, 1])`, "limit"},
	{"a walk to an index of 1e0 finds none", `r := [x | walk([4, 5], [[input.one_e0], x])]`, "[]"},
	{"a walk to an index of 1.0 finds one", `r := [x | walk([4, [5, 6]], [[input.one_0, x], _])]`, "[0,1]"},
	{"a walk along a path that was put together", `r := [x | p := ["b", input.one_e0]; walk({"b": [4, 5], "c": 1}, [p, x])]`, "[]"},
	{"a walk to a pair that was put together", `r := [1 | p := [[input.one_e0], 5]; walk([4, 5], p)]`, "[]"},
	{"a walk to a key of 1e0", `r := [x | walk({1: 7, "1": 8}, [[input.one_e0], x])]`, "[7]"},
	{"a walk to an element of a set", `r := [[p, x] | walk({"b", ["d"]}, [[["d"], p], x])]`, `[[0,"d"]]`},
	{"of two equal keys the last value counts", `r := {"x": 1, input.a: 2}`, `{"x":2}`},
	{"for the first key", `r := sprintf("%v", [{1: "a", input.one_0: "b"}])`, `"{1: \"b\"}"`},
	{"in the order of the text", `r := sprintf("%v", [{input.one_0: "a", input.one_e0: "b"}])`, `"{1.0: \"b\"}"`},
	{"also where the two are equal", `r := json.marshal({1.0: -0, object.get({}, 0, 1.0): 0})`, `"{\"1.0\":0}"`},
	{"a key that is no string is no fault", `r := io.jwt.decode_verify("..", object.get({}, 0, {1: 2}))`, "error"},
}

func TestRegressions(t *testing.T) {
	number := func(text string) value.Value {
		v, err := value.Number(text)
		errtest.Must(t, err)
		return v
	}
	input := value.Object(
		value.Member{Key: "a", Value: value.String("x")}, value.Member{Key: "one_e0", Value: number("1e0")},
		value.Member{Key: "one_0", Value: number("1.0")}, value.Member{Key: "one_long", Value: number("1.000000000000000000")},
	)
	for _, c := range regressions {
		s, err := load("package m\n\n" + c.source + "\n")
		if err != nil || s.err != nil {
			t.Fatalf("%s: %v, %v", c.name, err, s.err)
		}
		s.strict = true
		got := "undefined"
		switch v, err := s.agree(t, "r", input, value.Object(value.Member{Key: "text", Value: value.String("x")})); {
		case errors.Is(err, eval.ErrLimit):
			got = "limit"
		case err != nil:
			got = "error"
		case v.Defined():
			got = string(v.AppendJSON(nil))
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	s, err := load("package m\n\nr[1].a := 1\n\nr[1.0].b := 2\n")
	if err != nil || s.err == nil {
		t.Errorf("two spellings of a number in the names of rules: %v, %v", err, s.err)
	}
}
