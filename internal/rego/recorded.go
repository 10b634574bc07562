package rego

import (
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// ParseOpen reads a decision request from an input document of a bouncer, an OPA client or the
// decision log. All members besides user, resource, action and context reach the controls
// unchanged. The errors are those of ParseRequest for these four parts.
func ParseOpen(input value.Value) (Request, []fault.Detail) {
	var parts, rest []value.Member
	input.Each(func(key string, v value.Value) bool {
		if m := (value.Member{Key: key, Value: v}); slices.Contains(requestParts, key) {
			parts = append(parts, m)
		} else {
			rest = append(rest, m)
		}
		return true
	})
	r, offences := ParseRequest(value.Object(parts...))
	if len(rest) > 0 {
		r.Extra = value.Object(rest...)
	}
	return r, offences
}

// Input returns the input document that the controls see for a request: its parts, with the
// matched resource merged into input.resource. It fails for a path that can be read in more than
// one way.
func (s *Set) Input(r *Request) (value.Value, error) {
	at, err := s.locate(r)
	if err != nil {
		return value.Value{}, err
	}
	return input(r, s.planOf(at.slot).mergeResource(r.Resource, at.path)), nil
}

// Restrict returns the part of the set that a bouncer in front of the resources with these ids
// gets: these resources, their controls and the tenant-wide ones, and the resources whose data the
// controls read. All resources are without owner_email.
func (s *Set) Restrict(ids []int64) SetSpec {
	at := map[int64]bool{}
	for _, id := range ids {
		at[id] = s.matcher.byID[id] != nil
	}
	spec := SetSpec{Revision: s.revision, Env: s.env, PIP: s.pip, Grants: s.grants, Agents: s.agents}
	for _, c := range s.controls {
		if to := c.meta.ResourceID; to != 0 && !at[to] {
			continue
		}
		spec.Controls = append(spec.Controls, c)
		for _, path := range c.Refs().Data {
			switch {
			case len(path) == 0, len(path) == 1 && path[0] == "resources":
				for id := range s.matcher.byID {
					at[id] = true
				}
			case path[0] == "resources":
				if id, err := strconv.ParseInt(path[1], 10, 64); err == nil && s.matcher.byID[id] != nil {
					at[id] = true
				}
			}
		}
	}
	for _, sl := range s.slots {
		if sl == nil || !at[sl.res.ID] {
			continue
		}
		r := *sl.res
		r.Doc = value.Without(r.Doc, ownerEmail)
		spec.Resources = append(spec.Resources, r)
	}
	return spec
}
