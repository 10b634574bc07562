package rego

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// A number outside of the range ends the evaluation wherever it comes from: it is
// never a value, and never undefined, which would let a `not` pass.
func TestNumbersOutsideOfTheRange(t *testing.T) {
	token := func(payload string) string {
		enc := base64.RawURLEncoding.EncodeToString
		return enc([]byte(`{"alg":"none"}`)) + "." + enc([]byte(payload)) + "."
	}
	for _, number := range []string{"1e30000000", "1e2000", "1e-99999999", "1e-400", "1" + strings.Repeat("0", 64)} {
		for name, source := range map[string]string{
			"io.jwt.decode":  `io.jwt.decode(input.token)[1].exp * 1000`,
			"json.unmarshal": `json.unmarshal(input.text) + 1`,
			"yaml.unmarshal": `yaml.unmarshal(input.yaml).exp`,
			"to_number":      `to_number(input.text)`,
			"units.parse":    `units.parse(input.text)`,
			"parse_bytes":    `units.parse_bytes(input.text)`,
		} {
			if strings.HasPrefix(name, "yaml") && len(number) > 60 {
				continue // a long integer is a string to YAML
			}
			for form, body := range map[string]string{"asked": "n > 0", "negated": "not n > 0"} {
				c := mustCompile(t, Meta{ID: 1, Name: "n"}, "package n\n\nn := "+source+"\n\nallow if "+body+"\n")
				in := value.Object(
					value.Member{Key: "token", Value: value.String(token(`{"exp":` + number + `}`))},
					value.Member{Key: "text", Value: value.String(number)},
					value.Member{Key: "yaml", Value: value.String("exp: " + number)},
				)
				out := c.Eval(context.Background(), in, nil, Limits{Clock: time.Now, Deadline: 5 * time.Second})
				if out.Effect != Deny || !errors.Is(out.Err, ErrLimit) {
					t.Errorf("%s of %.12s %s: %v %s", name, number, form, out.Effect, out.Reason)
				}
			}
		}
	}
	for _, source := range []string{
		`1e300 * 1e300`, `1e308 + 1e308`, `bits.lsh(1, 300)`, `bits.lsh(1, 100000000)`, `product([1e200, 1e200])`, `sum([1e308, 1e308])`,
		fmt.Sprintf("%s * 10", strings.Repeat("9", 64)), `product(numbers.range(1, 200))`, `count(numbers.range(1, 1` + strings.Repeat("0", 60) + `))`, `1e-300 * 1e-300`,
	} {
		c := mustCompile(t, Meta{ID: 1, Name: "n"}, "package n\n\nallow if not "+source+" == input.x\n")
		if out := c.Eval(context.Background(), value.Object(value.Member{Key: "x", Value: value.Int(1)}), nil, Limits{Clock: time.Now, Deadline: 5 * time.Second}); out.Effect != Deny || !errors.Is(out.Err, ErrLimit) {
			t.Errorf("%s: %v %s", source, out.Effect, out.Reason)
		}
	}
}

// Values that share their parts exponentially, and built-ins that compare each
// with each, end within the deadline; with another input, too.
func TestSharingEnds(t *testing.T) {
	fulltest.Only(t)
	const parts = "a0 := [input.x, input.x]\na1 := [x | some _ in numbers.range(1, 8); x := a0]\n"
	var levels strings.Builder
	levels.WriteString(parts)
	for i := 2; i <= 12; i++ {
		fmt.Fprintf(&levels, "a%d := [x | some _ in numbers.range(1, 8); x := a%d]\nb%d := a%d\n", i, i-1, i, i)
	}
	many := value.Array(make([]value.Value, 20_000)...)
	for _, with := range []string{"", " with input.y as 1"} {
		for name, rule := range map[string]string{
			"set": "count({a12}) == 1", "key": `{a12: 1}[a12] == 1`, "equal": "a12 == [a11]", "in": "a12 in [a11, a10]",
			"marshal": `json.marshal(a12) == ""`, "walk": "walk(a12, [_, v]); v == 7", "difference": "{a12} - {a11} == set()",
			"subset":  "object.subset(input.many, input.many)",
			"matches": "count(net.cidr_contains_matches([c | some i in numbers.range(1, 3000); c := sprintf(\"10.%d.%d.0/24\", [i % 256, i % 7])], [c | some i in numbers.range(1, 3000); c := sprintf(\"10.%d.%d.1\", [i % 256, i % 5])])) > 0",
			"paths":   `count(graph.reachable_paths({i: [j | some j in numbers.range(1, 12)] | some i in numbers.range(1, 12)}, [1])) > 0`,
			"find":    "count(regex.find_n(`a*b|a`, input.long, -1)) > 0",
			"bounds":  "count(regex.find_n(`\\ba*b|a`, input.long, -1)) > 0",
			"trim":    "trim(input.long, input.long) == \"\"",
			"indexof": "count(indexof_n(input.long, input.half)) > 0",
		} {
			c := mustCompile(t, Meta{ID: 1, Name: name}, "package s\n\n"+levels.String()+"\nheld if { "+rule+" }\n\nallow if held"+with+"\n")
			in := value.Object(
				value.Member{Key: "x", Value: value.Int(1)}, value.Member{Key: "many", Value: many},
				value.Member{Key: "long", Value: value.String(strings.Repeat("a", 200_000))}, value.Member{Key: "half", Value: value.String(strings.Repeat("a", 100_000))},
			)
			start := time.Now()
			out := c.Eval(context.Background(), in, nil, Limits{Clock: time.Now, Deadline: 250 * time.Millisecond})
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s%s: took %v", name, with, took)
			}
			if out.Err != nil && !errors.Is(out.Err, ErrLimit) {
				t.Errorf("%s%s: %v", name, with, out.Err)
			}
			t.Logf("%s%s: %v %v %s", name, with, time.Since(start).Round(time.Millisecond), out.Effect, out.Reason)
		}
	}
}
