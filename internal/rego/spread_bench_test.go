package rego

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// spreadControl is the control of the i-th resource. Those of one shape differ
// in constants only; the others read a member of the input of their own.
func spreadControl(i int, oneShape bool) string {
	reads := "clearance"
	if !oneShape {
		reads = fmt.Sprintf("clearance_%d", i)
	}
	return fmt.Sprintf(`package authz.record%d

default allow := false

limit := %d

allow if {
	input.action.name in {"read", "write"}
	input.user.attributes.%s >= limit
	some role in input.user.roles
	role in {"analyst", "admin", "team-%d"}
}

deny contains msg if {
	input.context.country == "XX"
	msg := sprintf("record %d is not shown in %%s", [input.context.country])
}

reason := "edition %d" if allow
`, i, i%4, reads, i, i, i)
}

// BenchmarkSpread is a decision where requests go over few or many resources
// with a control each.
func BenchmarkSpread(b *testing.B) {
	for _, oneShape := range []bool{true, false} {
		for _, n := range []int{10, 5000} {
			spec := SetSpec{Revision: 1}
			requests := make([]Request, max(n, 1000))
			for i := range n {
				spec.Controls = append(spec.Controls, Defer(Meta{ID: int64(i + 1), Name: fmt.Sprintf("record %d", i), ResourceID: int64(i + 1), Version: 1}, spreadControl(i, oneShape), nil))
				spec.Resources = append(spec.Resources, target.Resource{ID: int64(i + 1), Type: "api", Path: fmt.Sprintf("/records/%d", i), Doc: value.Object()})
			}
			for i := range requests {
				at := i * 7919 % n
				r, bad := ParseRequest(valuetest.Decode(b, fmt.Sprintf(`{"user":{"id":"u%d","roles":["guest","team-%d"],"attributes":{"clearance":%d,"clearance_%d":3}},
"action":{"name":"read","method":"GET"},"resource":{"id":%d,"type":"api","path":"/records/%d"},"context":{"country":"NL"}}`, i, at, i%5, at, at+1, at)))
				if bad != nil {
					b.Fatal(bad)
				}
				requests[i] = r
			}
			s := NewSet(spec)
			for i := range requests {
				s.Decide(b.Context(), &requests[i], Options{Clock: time.Now})
			}
			b.Run(fmt.Sprintf("one shape=%t/controls=%d", oneShape, n), func(b *testing.B) {
				b.ReportAllocs()
				ctx := b.Context()
				for i := 0; b.Loop(); i++ {
					s.Decide(ctx, &requests[i%len(requests)], Options{Clock: time.Now})
				}
			})
		}
	}
}
