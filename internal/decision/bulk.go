package decision

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// parseBulk reads the items of a bulk call: each a decision request with the
// caller's decision_id. It collects the offences of all items.
func parseBulk(items []value.Value) ([]rego.Request, []string, error) {
	if len(items) > MaxBulk {
		return nil, nil, fault.Invalidf("/decisions", "%d decisions; at most %d in one call", len(items), MaxBulk)
	}
	requests := make([]rego.Request, len(items))
	ids := make([]string, len(items))
	var offences []fault.Detail
	for i, item := range items {
		at := "/decisions/" + strconv.Itoa(i)
		if item.Kind() != value.ObjectKind {
			offences = append(offences, fault.Detail{Pointer: at, Message: "must be an object"})
			continue
		}
		if id := item.Get("decision_id"); id.Defined() {
			s, ok := id.Str()
			if !ok || len(s) > 200 {
				offences = append(offences, fault.Detail{Pointer: at + "/decision_id", Message: "must be a string of at most 200 bytes"})
			}
			ids[i] = s
			item = withoutID(item)
		}
		req, bad := rego.ParseRequest(item)
		for _, d := range bad {
			d.Pointer = at + d.Pointer
			offences = append(offences, d)
		}
		requests[i] = req
	}
	if len(offences) > 0 {
		return nil, nil, invalid(offences)
	}
	return requests, ids, nil
}

// withoutID is a bulk item as a decision request of its own.
func withoutID(item value.Value) value.Value {
	members := make([]value.Member, 0, item.Len())
	item.Each(func(key string, v value.Value) bool {
		if key != "decision_id" {
			members = append(members, value.Member{Key: key, Value: v})
		}
		return true
	})
	return value.Object(members...)
}
