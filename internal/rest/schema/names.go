package schema

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// nameFormat is the format of names for people; fault.NameOffence decides what it refuses.
const nameFormat = "name"

// MarkNames sets the format of the names in a schema, at every depth, so that every operation
// refuses the same characters.
func (c *Checker) MarkNames(s *huma.Schema) { c.markNames(s, map[*huma.Schema]bool{}) }

func (c *Checker) markNames(s *huma.Schema, seen map[*huma.Schema]bool) {
	if s = c.deref(s); s == nil || seen[s] {
		return
	}
	seen[s] = true
	for member, prop := range s.Properties {
		if slices.Contains(c.Names, member) {
			for _, at := range []*huma.Schema{prop, prop.Items} {
				if at != nil && at.Type == huma.TypeString && at.Format == "" && len(at.Enum) == 0 {
					at.Format = nameFormat
				}
			}
		}
		c.markNames(prop, seen)
	}
	c.markNames(s.Items, seen)
	if extra, ok := s.AdditionalProperties.(*huma.Schema); ok {
		c.markNames(extra, seen)
	}
	for _, sub := range slices.Concat(s.AllOf, s.AnyOf, s.OneOf) {
		c.markNames(sub, seen)
	}
}
