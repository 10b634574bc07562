package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// putLibrary adds a changed library to the candidate. Every active control that imports it,
// directly or indirectly, is compiled with it.
func (p *plan) putLibrary(c policy.Policy, edited bool) {
	next := lang.Library{ID: c.ID, Name: c.Name, Version: c.Version, Source: c.RegoCode}
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
	p.swaps = append(slices.DeleteFunc(p.swaps, func(l lang.Library) bool { return l.Package() == next.Package() }), next)
}

func isLibrary(c policy.Policy) bool {
	return c.Kind == policy.KindLibrary || lang.Library{Source: c.RegoCode}.Package() != ""
}

// changed returns a shelf in which the libraries of the candidate replace those of the same
// package.
func (p *plan) changed(shelf []lang.Library) []lang.Library {
	if len(p.swaps) == 0 {
		return shelf
	}
	return append(slices.DeleteFunc(slices.Clone(shelf), p.swapped), p.swaps...)
}

// swapped reports whether the candidate changes the package of a library.
func (p *plan) swapped(l lang.Library) bool {
	return slices.ContainsFunc(p.swaps, func(o lang.Library) bool { return o.Package() == l.Package() })
}

// reached returns the libraries of a shelf that a source imports, directly or indirectly.
func (p *plan) reached(source string, shelf []lang.Library) []lang.Library {
	if len(shelf) == 0 || !strings.Contains(source, lang.LibraryRoot) {
		return nil
	}
	var name strings.Builder
	for _, l := range shelf {
		fmt.Fprint(&name, p.library(l), " ")
	}
	at := reachKey{source, name.String()}
	libs, known := p.reach[at]
	if !known {
		libs = lang.Reach(source, shelf)
		p.reach[at] = libs
	}
	return libs
}

// reachKey is a source and the libraries that it may import, by index.
type reachKey struct{ source, shelf string }
