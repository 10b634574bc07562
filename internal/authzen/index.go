package authzen

import (
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// typed is a type and a name.
type typed struct{ kind, name string }

// index finds a set's resources by type and name, and the actions that its controls
// speak of. It is made anew for a set that is asked for the first time.
type index struct {
	set     *rego.Set
	named   map[typed]int64
	byKind  map[string][]string // names, sorted
	actions []string            // sorted
}

// indexOf gives the index of a set. Two callers may make one at once; either is good.
func (s *Service) indexOf(set *rego.Set) *index {
	if x := s.indexes.Load(); x != nil && x.set == set {
		return x
	}
	x := &index{set: set, named: map[typed]int64{}, byKind: map[string][]string{}}
	for _, r := range set.Resources() {
		key := typed{r.Type, r.Name}
		if old, twice := x.named[key]; twice && old < r.ID {
			continue // of two of one name the elder is meant
		}
		if _, twice := x.named[key]; !twice {
			x.byKind[r.Type] = append(x.byKind[r.Type], r.Name)
		}
		x.named[key] = r.ID
	}
	for _, names := range x.byKind {
		slices.Sort(names)
	}
	x.actions = actionsOf(set)
	s.indexes.Store(x)
	return x
}

// maxActions bounds the actions that a search tries.
const maxActions = 1000

// actionsOf are the names of actions that controls compare input.action with, and the
// methods that resources take, sorted.
func actionsOf(set *rego.Set) []string {
	found := map[string]bool{}
	for _, c := range set.Controls() {
		if !strings.Contains(c.Source(), "action") {
			continue
		}
		list, _ := rego.Attributes(c.Source())
		for _, a := range list {
			if a.Key != "action.name" && a.Key != "action.method" && a.Key != "authzen.action.name" {
				continue
			}
			for _, v := range a.Values {
				if name, ok := v.(string); ok && name != "" && len(found) < maxActions {
					found[name] = true
				}
			}
		}
	}
	for _, r := range set.Resources() {
		for _, m := range r.Methods {
			if m != "*" && len(found) < maxActions {
				found[m] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}
