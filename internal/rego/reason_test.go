package rego

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// A control that is alone in scope is asked for its reason in the same evaluation,
// one among several in an evaluation of its own: what they say is the same.
func TestReasonOfOneAmongSeveral(t *testing.T) {
	for name, source := range map[string]string{
		"no reason":                   `allow if input.user.id == "ann"`,
		"a constant":                  `allow if input.user.id == "ann"` + "\n" + `reason := "because"`,
		"of what allows":              `allow if input.user.id == "ann"` + "\n" + `reason := "is ann" if allow` + "\n" + `else := "is not"`,
		"beside a deny":               `deny contains "is ann" if input.user.id == "ann"` + "\n" + `reason := "another" if count(deny) > 0`,
		"of a deny without":           `deny contains sprintf("is %s", [input.user.id]) if input.user.id`,
		"empty":                       `allow := true` + "\n" + `reason := ""`,
		"no text":                     `allow := true` + "\n" + `reason := 7`,
		"one that fails":              `allow := true` + "\n" + `reason := "a" if input.user.id` + "\n" + `reason := "b" if input.user.id`,
		"one that fails unasked":      `allow if false` + "\n" + `reason := "a" if input.user.id` + "\n" + `reason := "b" if input.user.id`,
		"one that fails beside a no":  `default allow := false` + "\n" + `reason := "a" if input.user.id` + "\n" + `reason := "b" if input.user.id`,
		"one that fails beside a bad": `allow := "yes"` + "\n" + `reason := "a" if input.user.id` + "\n" + `reason := "b" if input.user.id`,
		"of a mask":                   `allow := true` + "\n" + `mask := {"b.c", "a"}` + "\n" + `reason := concat(",", mask)`,
		"of a bad mask":               `allow := true` + "\n" + `mask := 7` + "\n" + `reason := "masked"`,
		"a control that fails":        `allow := 1 / input.user.none` + "\n" + `allow := to_number(input.user.id)` + "\n" + `reason := "x"`,
		"one that does not compile":   `allow := nonsense(1)`,
	} {
		t.Run(name, func(t *testing.T) {
			c := Defer(Meta{ID: 1, Name: "it", Version: 3}, "package c\n\n"+source, nil)
			other := mustCompile(t, Meta{ID: 2, Name: "other", Version: 1}, "package d\n\nallow if false")
			alone, among := NewSet(SetSpec{Controls: []*Control{c}}), NewSet(SetSpec{Controls: []*Control{c, other}})
			for _, id := range []string{"ann", "bob"} {
				r := Request{User: member("id", value.String(id))}
				a, b := alone.Decide(context.Background(), &r, Options{}), among.Decide(context.Background(), &r, Options{})
				b.Considered--
				if describe(a) != describe(b) || a.Reason == "" {
					t.Errorf("%s: alone %s, among several %s", id, describe(a), describe(b))
				}
			}
		})
	}
}
