package rego

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestEveryReadSeesTheResource: however a control reads input.resource, directly or by a
// library, it sees what is registered and not what the caller sent.
func TestEveryReadSeesTheResource(t *testing.T) {
	lib := lang.Library{ID: 1, Name: "names", Version: 1, Source: "package lib.names\n\nof(v) := v.resource.name\n\nhere := input.resource.name"}
	for name, rule := range map[string]string{
		"member":        `allow if input.resource.name == "real"`,
		"resource":      `allow if { r := input.resource; r.name == "real" }`,
		"whole":         `allow if { i := input; i.resource.name == "real" }`,
		"argument":      `allow if object.get(input, ["resource", "name"], "") == "real"`,
		"walk":          `allow if { walk(input, [path, v]); path == ["resource", "name"]; v == "real" }`,
		"computed":      `allow if { some part in ["user", "resource"]; input[part].name == "real" }`,
		"unbound":       `allow if { some part; input[part].name == "real" }`,
		"comprehension": `allow if { names := {v | some k, v in input.resource; k == "name"}; "real" in names }`,
		"negation":      "allow if not sent\nsent if input.resource.name == \"sent\"",
		"only reason":   "allow := true\nreason := input.resource.name",
		"only deny":     "allow := true\ndeny contains input.resource.name if input.resource.name != \"real\"",
		"only mask":     "allow := true\nmask contains input.resource.name",
		"function":      "of(v) := v.resource.name\n\nallow if of(input) == \"real\"",
		"library":       "import data.lib.names\nallow if names.here == \"real\"",
		"by library":    "import data.lib.names\nallow if names.of(input) == \"real\"",
	} {
		t.Run(name, func(t *testing.T) {
			c := Defer(Meta{ID: 1, Name: "c", Version: 1, ResourceID: 5}, "package c\n\n"+rule, []lang.Library{lib})
			if issues := c.Broken(); len(issues) > 0 {
				t.Fatal(issues)
			}
			s := NewSet(SetSpec{Controls: []*Control{c}, Resources: []target.Resource{{ID: 5, Name: "real", Doc: valuetest.Decode(t, `{"id":5,"name":"real"}`)}}})
			r := Request{ResourceID: 5, Resource: value.Object(value.Member{Key: "id", Value: value.Int(5)}, value.Member{Key: "name", Value: value.String("sent")})}
			d := s.Decide(context.Background(), &r, Options{})
			if !d.Permit || d.Err != nil {
				t.Errorf("%s", describe(d))
			}
			switch {
			case name == "only reason" && d.Reason != "real":
				t.Errorf("the reason is %q", d.Reason)
			case name == "only mask" && (len(d.Mask) != 1 || d.Mask[0].Path != "real"):
				t.Errorf("masked are %v", d.Mask)
			}
		})
	}
}
