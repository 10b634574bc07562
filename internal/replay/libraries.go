package replay

import (
	"context"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// libraries puts what the controls of the source environment may import on the shelf.
func (s *Service) libraries(ctx context.Context, sc scope.Scope, p *plan) (err error) {
	p.spec.Libraries, err = s.Policies.Libraries(ctx, sc, p.request.SourceEnvironment)
	return err
}

// putLibrary notes that a library would be so: the candidate is then every active
// control that reaches it, compiled with it.
func (p *plan) putLibrary(c policy.Policy, edited bool) {
	next := rego.Library{ID: c.ID, Name: c.Name, Version: c.Version, Source: c.RegoCode}
	told := Subject{Name: c.Name, Edited: edited}
	if c.ID < newID {
		told.PolicyID = c.ID
	}
	if edited {
		next.Version++
	} else {
		told.Version = c.Version
	}
	p.subjects = append(p.subjects, told)
	if len(p.packages) == 0 {
		p.spec.Changed = slices.Clone(p.spec.Libraries)
	}
	p.packages = append(p.packages, next.Package())
	p.spec.Changed = append(slices.DeleteFunc(p.spec.Changed, func(l rego.Library) bool { return l.Package() == next.Package() }), next)
}

func isLibrary(c policy.Policy) bool {
	return c.Kind == policy.KindLibrary || rego.Library{Source: c.RegoCode}.Package() != ""
}

// relink puts, in the place of each control of the candidate that reaches a
// changed library, the same compiled with it.
func (p *plan) relink(candidate map[int64]int) {
	for id, at := range candidate {
		c := p.spec.Controls[at]
		if len(p.packages) == 0 || c.Changed || !p.reaches(c.Source) {
			continue
		}
		c.Changed = true
		candidate[id] = p.text(c)
	}
}

func (p *plan) reaches(source string) bool {
	if does, known := p.reach[source]; known {
		return does
	}
	does := slices.ContainsFunc(rego.Reach(source, p.spec.Changed), func(l rego.Library) bool { return slices.Contains(p.packages, l.Package()) })
	p.reach[source] = does
	return does
}
