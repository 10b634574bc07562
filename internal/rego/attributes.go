package rego

import (
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const ownerEmail = "owner_email"

// WithoutAttributes returns data without the attributes in data.resources. It is for trials of an
// author who may not read resources, because a control can show what it reads.
func WithoutAttributes(data DataSource) DataSource { return visible{data} }

type visible struct{ all DataSource }

// Data returns the value at a path.
func (v visible) Data(path []string) value.Value {
	if len(path) > 2 && path[0] == "resources" && path[2] == target.Attributes {
		return value.Value{}
	}
	found := v.all.Data(path)
	switch {
	case len(path) == 0:
		if all := found.Get("resources"); all.Defined() {
			return found.With("resources", plainResources(all))
		}
	case path[0] == "resources" && len(path) == 1:
		return plainResources(found)
	case path[0] == "resources" && len(path) == 2:
		return value.Without(found, target.Attributes)
	}
	return found
}

func plainResources(all value.Value) value.Value {
	members := make([]value.Member, 0, all.Len())
	all.Each(func(id string, r value.Value) bool {
		members = append(members, value.Member{Key: id, Value: value.Without(r, target.Attributes)})
		return true
	})
	return value.Object(members...)
}

// Object returns a DataSource that reads from one object with the members resources and pip, for
// tests and trials.
func Object(data value.Value) DataSource { return objectSource{data} }

type objectSource struct{ v value.Value }

// Data returns the value at path.
func (o objectSource) Data(path []string) value.Value { return o.v.At(path...) }
