package rego

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// lookalikes are JSON texts that some reading takes for one another: spellings of
// a number, an array and an object of the same members, members in another order,
// forms of one character, kinds that print alike.
var lookalikes = []string{
	`1`, `1.0`, `1.00`, `1e0`, `1E0`, `1e+0`, `10e-1`, `0.1e1`, `"1"`, `"1.0"`, `true`, `[1]`, `[1.0]`, `["1"]`, `{"0":1}`, `{"0":1.0}`, `{"1":1}`,
	`0`, `-0`, `0.0`, `-0.0`, `0e5`, `-0e0`, `""`, `null`, `false`, `[]`, `{}`, `[null]`, `[[]]`, `[{}]`, `{"":null}`,
	`100`, `1e2`, `1E2`, `100.0`, `9007199254740993`, `9007199254740993.0`, `9007199254740992`, `0.5`, `5e-1`, `0.50`,
	`["0"]`, `{"0":"0"}`, `["a","b"]`, `{"0":"a","1":"b"}`, `{"1":"b","0":"a"}`, `["a",["b"]]`, `[["a"],"b"]`, `["ab"]`, `["a","b",""]`,
	`[1,1.0]`, `[1.0,1]`, `{"a":1,"b":1.0}`, `{"b":1.0,"a":1}`, `{"a":1.0,"b":1}`,
	`"\u00e9"`, `"e\u0301"`, `"E\u0301"`, `"\u212b"`, `"\u00c5"`, `"\ufb01"`, `"fi"`, `"a\u0000b"`, `"a"`, `"a "`,
	`{"x":{"y":1}}`, `{"x":{"y":1.0}}`, `{"x":[1]}`, `{"x":"y"}`, `{"x":null}`, `{"y":1,"x":[]}`, `{"0":{"0":1}}`, `[[1]]`, `[{"0":1}]`, `{"0":[1]}`,
}

// observers are reasons that show how a value was sent. X stands for a part of
// the input.
var observers = []string{
	`sprintf("%v", [X])`, `sprintf("%d %s", [X, X])`, `json.marshal(X)`, `json.marshal({"k": X})`, `json.marshal([v | some v in X])`,
	`json.marshal({v | some v in X})`, `json.marshal({sprintf("%v", [k]): v | some k, v in X})`, `json.marshal([p | walk(X, p)])`,
	`json.marshal(X["0"])`, `json.marshal(X["0"]["0"])`, `json.marshal(X[0])`, `json.marshal(X["1"])`, `json.marshal(X.x)`, `json.marshal(X.x.y)`,
	`type_name(X)`, `type_name(X.x)`, `sprintf("%v", [count(X)])`, `sprintf("%v", [count(X["0"])])`,
	`json.marshal(data.pip.h[X])`, `json.marshal(data.pip.list[X])`, `json.marshal(data.resources[X])`, `json.marshal(table[X])`,
	`json.marshal({X: 1})`, `json.marshal({X, 1})`, `json.marshal({1.0, X})`, `json.marshal(object.get({"1": "one", "1.0": "oned", 1: "n"}, X, "none"))`,
	`concat(",", [sprintf("%v", [v]) | v := [X, 1][_]])`, `yaml.marshal(X)`, `base64.encode(json.marshal(X))`, `format_int(X, 10)`,
	`json.marshal(X + 0)`, `json.marshal(-X)`, `json.marshal(abs(X))`, `json.marshal(max([X, 1]))`, `json.marshal(sort([X, 1, 0]))`,
	`json.marshal(sum([X]))`, `json.marshal(to_number(X))`, `upper(X)`, `json.marshal(split(X, ""))`, `urlquery.encode(json.marshal(X))`,
	`seen with input.context.v.x as 7`, `seen with input.context.v.x.y as 7`, `json.marshal(input)`,
	`json.marshal(object.union(X, {"k": 1}))`, `json.marshal(array.concat(X, [1]))`, `json.marshal(X & {1})`,
}

// observed are the parts of a request at which a value is put, and how a control names them.
var observed = map[string]func(v value.Value) Request{
	"input.context.v":         func(v value.Value) Request { return Request{Context: member("v", v)} },
	`input.context["0"]`:      func(v value.Value) Request { return Request{Context: member("0", v)} },
	"input.context":           func(v value.Value) Request { return Request{Context: member("v", v)} },
	"input.user.attributes.v": func(v value.Value) Request { return Request{User: member("attributes", member("v", v))} },
	"input.resource.attributes.v": func(v value.Value) Request {
		return Request{Resource: member("attributes", member("v", v)), ResourceID: 1}
	},
	"input.resource.attributes": func(v value.Value) Request { return Request{Resource: member("attributes", v), ResourceID: 1} },
	"input.mcp.args":            func(v value.Value) Request { return Request{Extra: member("mcp", member("args", v))} },
	"input.action.v":            func(v value.Value) Request { return Request{Action: member("v", v)} },
}

func member(key string, v value.Value) value.Value {
	return value.Object(value.Member{Key: key, Value: v})
}

// watching is a control whose reason is what the observer makes of a part of the
// input.
func watching(id int64, part, observer string) string {
	expr, with, replaced := strings.Cut(observer, " with ")
	if replaced {
		with = " with " + with
	}
	return fmt.Sprintf(`package w%d

allow := true

table := {1: "int", "1": "text", 0: "zero", [1]: "list"}

seen := input.context.v.x

reason := r if r := sprintf("saw %%v", [%s])%s
`, id, strings.ReplaceAll(expr, "X", part), with)
}

// Whatever spelling another caller sent before, the cached answer is the one
// without a cache: over each pair of values that look alike, and each way that a
// control has to see them.
func TestCacheTellsSpellingsApart(t *testing.T) {
	fulltest.Only(t)
	values := make([]value.Value, len(lookalikes))
	for i, text := range lookalikes {
		values[i] = mustDecode(text)
	}
	id := int64(0)
	distinct := 0
	for part, request := range observed {
		for _, observer := range observers {
			id++
			c, issues := Compile(Meta{ID: id, Name: "w", Version: 1}, watching(id, part, observer))
			if len(issues) > 0 {
				t.Fatalf("%s of %s: %v", observer, part, issues)
			}
			s := spellingSet(c)
			fresh := make([]string, len(values))
			answers := map[string]bool{}
			cache := NewCache(64 << 20)
			for i, v := range values {
				r := request(v)
				fresh[i] = describe(s.Decide(context.Background(), &r, Options{Now: testNow, Deadline: time.Minute}))
				answers[fresh[i]] = true
			}
			distinct += len(answers)
			// Every value is asked after every other one: forth and back through one cache.
			for n := range 2 * len(values) {
				i := n
				if n >= len(values) {
					i = 2*len(values) - 1 - n
				}
				r := request(values[i])
				if got := describe(s.Decide(context.Background(), &r, Options{Now: testNow, Deadline: time.Minute, Cache: cache})); got != fresh[i] {
					t.Errorf("%s of %s on %s:\nwithout a cache %s\nwith one        %s", observer, part, lookalikes[i], fresh[i], got)
				}
			}
		}
	}
	if distinct < 2000 {
		t.Errorf("the controls tell only %d answers apart", distinct)
	}
}

func spellingSet(controls ...*Control) *Set {
	return NewSet(SetSpec{
		Revision: 1, Controls: controls,
		Resources: []target.Resource{{ID: 1, Name: "one", Type: "api", Doc: mustDecode(`{"name":"frozen","attributes":{"kept":1.0}}`)}},
		PIP:       mustDecode(`{"h":{"1":"one","1.0":"oned","0":"zero","-0":"minus","1e0":"exp","":"empty"},"list":["zeroth","first"]}`),
	})
}

// The same with values that are drawn, several controls of one request, and one
// cache for all of it.
func TestCacheTellsDrawnValuesApart(t *testing.T) {
	var all []*Control
	for i, observer := range observers {
		all = append(all, mustCompile(t, Meta{ID: int64(i + 1), Name: "w", Version: 1}, watching(int64(i+1), "input.context.v", observer)))
	}
	cache := NewCache(32 << 20)
	draw := func(t *rapid.T, label string) value.Value {
		pick := rapid.SampledFrom(lookalikes)
		text := pick.Draw(t, label)
		switch rapid.IntRange(0, 4).Draw(t, "shape") {
		case 1:
			text = "[" + text + "," + pick.Draw(t, label) + "]"
		case 2:
			text = `{"0":` + text + `,"1":` + pick.Draw(t, label) + "}"
		case 3:
			text = `{"1":` + pick.Draw(t, label) + `,"0":` + text + "}"
		case 4:
			text = `{"x":{"y":` + text + "}}"
		}
		return mustDecode(text)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := spellingSet(all[rapid.IntRange(0, len(all)-1).Draw(t, "first")], all[rapid.IntRange(0, len(all)-1).Draw(t, "second")])
		for range 8 {
			r := Request{Context: member("v", draw(t, "v")), User: member("id", draw(t, "id"))}
			opt := Options{Now: testNow, Deadline: time.Minute}
			fresh := describe(s.Decide(context.Background(), &r, opt))
			opt.Cache = cache
			for range 2 {
				if got := describe(s.Decide(context.Background(), &r, opt)); got != fresh {
					t.Fatalf("on %s:\nwithout a cache %s\nwith one        %s", r.Context.AppendJSON(nil), fresh, got)
				}
			}
		}
	})
}
