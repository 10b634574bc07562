package rego_test

import (
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Values on which the two evaluators once differed: the spelling of a number in
// a reference, the index of a comprehension, a number near zero.
func TestValuesThatOnceDiffered(t *testing.T) {
	decode := func(text string) value.Value {
		v, err := value.Decode([]byte(text), value.Limits{})
		errtest.Must(t, err)
		return v
	}
	input := decode(`{"one": 1.0, "plain": 1, "exp": 1e0, "text": "1", "list": [5, 6, 7], "object": {"1": "a"}, "pairs": [[1, "x"], [1.0, "y"]], "user": {"id": "ann"}}`)
	data := withData{"pip": decode(`{"h": {"1": "text", "1.0": "point"}, "list": ["zero", "one", "two"], "n": {"a": 1.0}}`)}
	for _, condition := range []string{
		`data.pip.h[1.0] == "text"`, `data.pip.h[1] == "text"`, `data.pip.h[input.one] == "text"`, `data.pip.h[input.text] == "text"`, `data.pip.h["1.0"] == "point"`,
		`data.pip.list[input.one] == "one"`, `data.pip.list[input.exp] == "one"`, `data.pip.list[input.plain] == "one"`, `data.pip.list["1"] == "one"`,
		`input.list[1.0] == 6`, `input.list[input.one] == 6`, `input.list[-0] == 5`, `input.list[1e0] == 6`, `input.list[0.5] == 5`, `input.object[1.0] == "a"`, `input.object[1] == "a"`,
		`[x | x := input.list[i]; i > 0][1] == 7`, `[x | x := input.list[_]][input.one] == 6`, `{x | x := input.list[_]}[5.0]`, `{x: y | y := input.list[x]}[1.0] == 6`,
		`{x: y | y := input.list[x]}[input.one] == 6`, `count({x | x := input.pairs[_][0]}) == 1`, `{1: "a"}[1.0] == "a"`, `{1, 2}[1.0]`,
		`1 == 1.0`, `1 == input.one`, `input.plain == input.exp`, `input.one in [1]`, `input.one in {1}`, `sprintf("%v", [input.one]) == "1.0"`, `sprintf("%v", [input.one]) == "1"`, `json.marshal(input.one) == "1.0"`,
		`json.marshal(input.one) == "1"`, `format_int(input.one, 10) == "1"`, `concat("", [sprintf("%d", [input.one])]) == "1"`, `1e-300 > 0`, `1e-307 * 1 > 0`, `to_number("1.0") == 1`, `[1, 2] == [1.0, 2]`, `{1.0} == {1}`,
		`object.get(data.pip.h, 1, "none") == "none"`, `object.get({1: "a"}, 1.0, "none") == "a"`, `data.pip.n.a == 1`, `walk(data.pip.n, [["a"], 1])`, `some k, 6 in input.list; k == 1.0`,
	} {
		t.Run(condition, func(t *testing.T) {
			c, issues := rego.Compile(rego.Meta{ID: 1, Name: "a", Version: 1}, "package a\n\nallow if { "+condition+" }\n")
			if len(issues) > 0 {
				t.Fatal(issues)
			}
			now := time.Unix(1_700_000_000, 0)
			ours := c.Eval(t.Context(), input, data, rego.Limits{Now: now})
			theirs := byTopdown(t, c, input, data, now)
			if ours.Effect != theirs.Effect || (ours.Err == nil) != (theirs.Err == nil) {
				t.Errorf("native says %s (%v), topdown %s (%v)", ours.Effect, ours.Err, theirs.Effect, theirs.Err)
			}
		})
	}
}

// withData is data by its first member.
type withData map[string]value.Value

// Data implements DataSource.
func (d withData) Data(path []string) value.Value {
	if len(path) == 0 {
		return value.Object(value.Member{Key: "pip", Value: d["pip"]})
	}
	return d[path[0]].At(path[1:]...)
}
