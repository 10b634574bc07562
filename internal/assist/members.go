package assist

import (
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// dataMembers are the roots of data that a control may read.
var dataMembers = []Member{
	{"data.resources", "object", "The metadata of each resource, by its id as a string."},
	{"data.pip", "object", "Data of the PIP connections, by connection name."},
	{"data.grants", "object", "Grants of access whose time it is: a list for each subject."},
}

// documented returns the documented members of the input.
func documented() []Member {
	out := make([]Member, len(lang.DocumentedInput))
	for i, m := range lang.DocumentedInput {
		out[i] = Member(m)
	}
	return out
}
