package patch

import "reflect"

// Differences are the members of an object whose values a change has changed, by name, for an
// audit entry.
type Differences map[string]any

// Note adds a member with both values, unless they are deeply equal. Do not call it for members
// that must not be in a log.
func (d Differences) Note(name string, from, to any) {
	if !reflect.DeepEqual(from, to) {
		d[name] = map[string]any{"from": from, "to": to}
	}
}
