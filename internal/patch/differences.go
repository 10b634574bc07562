package patch

import "reflect"

// Differences are the members of an object that a change gave other values, by name, for an
// entry of the audit.
type Differences map[string]any

// Note adds the member with both values, unless they are deeply equal. Leave out members that
// belong in no log.
func (d Differences) Note(name string, from, to any) {
	if !reflect.DeepEqual(from, to) {
		d[name] = map[string]any{"from": from, "to": to}
	}
}
