package rego

import (
	"slices"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// names is an index of resources by type and name. It is built at its first use. Sets with the
// same resources share it.
type names struct {
	slots  []*slot
	once   sync.Once
	named  map[typeAndName]*target.Resource
	byType map[string][]string // names, sorted
}

type typeAndName struct{ kind, name string }

// ready builds the index if that has not happened yet.
func (n *names) ready() {
	n.once.Do(func() {
		n.named, n.byType = make(map[typeAndName]*target.Resource, len(n.slots)), map[string][]string{}
		for _, sl := range n.slots {
			if sl == nil {
				continue
			}
			key := typeAndName{sl.res.Type, sl.res.Name}
			first := n.named[key]
			if first == nil {
				n.byType[key.kind] = append(n.byType[key.kind], key.name)
			}
			if first == nil || sl.res.ID < first.ID {
				n.named[key] = sl.res
			}
		}
		for _, list := range n.byType {
			slices.Sort(list)
		}
	})
}

// ResourceNamed returns the resource of a type and name; nil if there is none. If several have
// the same type and name, it returns the one with the lowest id. The caller must not change it.
func (s *Set) ResourceNamed(kind, name string) *target.Resource {
	s.names.ready()
	return s.names.named[typeAndName{kind, name}]
}

// ResourceNames returns the names of the resources of a type, sorted, each once. The caller must
// not change the slice.
func (s *Set) ResourceNames(kind string) []string {
	s.names.ready()
	return s.names.byType[kind]
}

// UnknownHosts returns those of the names (see HostName) that are not the host of any resource of
// the set, whatever its port, each once. It visits all resources.
func (s *Set) UnknownHosts(names []string) []string {
	left := make(map[string]bool, len(names))
	for _, n := range names {
		left[n] = true
	}
	for _, sl := range s.slots {
		if sl != nil && sl.host != "" {
			delete(left, withoutPort(sl.host))
		}
	}
	var out []string
	for _, n := range names {
		if left[n] {
			left[n] = false
			out = append(out, n)
		}
	}
	return out
}
