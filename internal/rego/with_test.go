package rego

import (
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// TestWithOfManyLeavesTheOldSet: a change of many resources that hang at the same
// nodes shows in the new set alone, and there as if all had been built anew.
func TestWithOfManyLeavesTheOldSet(t *testing.T) {
	const n = 300
	var list []target.Resource
	for id := int64(1); id <= n; id++ {
		r := target.Resource{ID: id, Path: fmt.Sprintf("/svc%d/{id}", id), Type: "api"}
		switch id % 5 {
		case 1:
			r.Path = "/**" // one list of slots holds them all
		case 2:
			r.Path = "/a/*"
		case 3:
			r.Host = fmt.Sprintf("h%d.example", id%30)
		}
		list = append(list, r)
	}
	ask := func(s *Set) string {
		out := ""
		for id := range int64(n + 2) {
			for _, host := range []string{"", fmt.Sprintf("h%d.example", id%30)} {
				for _, path := range []string{fmt.Sprintf("/svc%d/x", id), fmt.Sprintf("/new%d", id), "/a/b", "/q"} {
					if r := s.Match(&Request{Path: path, Host: host}); r != nil {
						out += fmt.Sprintf("%s%s %d %s\n", host, path, r.ID, r.Path)
					}
				}
			}
		}
		return out
	}
	old := NewSet(SetSpec{Resources: list})
	before := ask(old)
	var ch Change
	var after []target.Resource
	for _, r := range list {
		switch r.ID % 7 {
		case 0, 1:
			ch.RemovedResources = append(ch.RemovedResources, r.ID)
			continue
		case 2, 3:
			r.Path = fmt.Sprintf("/new%d", r.ID)
			ch.Resources = append(ch.Resources, r)
		case 4:
			r.Type = "" // another place in its list
			ch.Resources = append(ch.Resources, r)
		}
		after = append(after, r)
	}
	next := old.With(ch)
	if ask(old) != before {
		t.Error("the old set is another one now")
	}
	if want := ask(NewSet(SetSpec{Resources: after})); ask(next) != want || want == before {
		t.Error("the new set is not the one that is built anew")
	}
	if ask(next.With(Change{})) != ask(next) || ask(next.With(Change{Resources: list})) != before {
		t.Error("the way back leads elsewhere")
	}
}
