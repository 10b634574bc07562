package native

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// GrantsRoot is the member of data with the grants of access: for each subject a list of objects.
// A grant is valid from starts_ns until just before expires_ns, in nanoseconds since 1970.
const GrantsRoot = "grants"

// document returns the document at a path below data. It returns only those grants that are valid
// now, so that no control has to check their time.
func (m *Machine) document(path []string) value.Value {
	if len(path) == 0 || path[0] != GrantsRoot {
		return m.data.Data(path)
	}
	if len(path) == 1 {
		return liveGrants(m.data.Data(path), m.Env.Now)
	}
	return liveOf(m.data.Data(path[:2]), m.Env.Now).At(path[2:]...)
}

// liveGrants returns the grants that are valid now, by subject. Subjects without one are absent.
func liveGrants(all value.Value, now time.Time) value.Value {
	var members []value.Member
	all.Each(func(subject string, list value.Value) bool {
		if list = liveOf(list, now); list.Defined() {
			members = append(members, value.Member{Key: subject, Value: list})
		}
		return true
	})
	return value.Object(members...)
}

// liveOf returns the grants of a list that are valid now; undefined if there is none.
func liveOf(list value.Value, now time.Time) value.Value {
	var live []value.Value
	for _, g := range list.Elems() {
		starts, begun := g.Get("starts_ns").Int64()
		expires, ends := g.Get("expires_ns").Int64()
		if at := now.UnixNano(); begun && ends && starts <= at && at < expires {
			live = append(live, g)
		}
	}
	if len(live) == 0 {
		return value.Value{}
	}
	return value.Array(live...)
}
