package rego

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// TestBothReadingsGuard draws resources and paths. An application that distinguishes spellings serves
// one resource for a path, which a set of exact resources finds. If the control of that resource
// denies the request, no other spelling may permit it.
func TestBothReadingsGuard(t *testing.T) {
	deny, _ := Compile(Meta{ID: 1}, "package d\n\nallow := false\n")
	permit, _ := Compile(Meta{ID: 2}, "package p\n\nallow := true\n")
	both := 0
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "A", "b", "B", "a.b", "a+", "a+b", "a%20b", "*"})
		var spec, exact SetSpec
		for i := range rapid.IntRange(1, 5).Draw(t, "resources") {
			segs := rapid.SliceOfN(segment, 0, 3).Draw(t, "pattern")
			if rapid.Bool().Draw(t, "rest") {
				segs = append(segs, "**")
			}
			r := target.Resource{ID: int64(i + 1), Name: "r", Path: "/" + strings.Join(segs, "/"), Doc: value.Object()}
			spec.Resources = append(spec.Resources, r)
			r.PathMatching = target.PathExact
			exact.Resources = append(exact.Resources, r)
			from := rapid.SampledFrom([]*Control{deny, permit, nil}).Draw(t, "control")
			if from == nil {
				continue
			}
			c, issues := Compile(Meta{ID: int64(i + 1), ResourceID: r.ID}, from.Source())
			if len(issues) > 0 {
				t.Fatal(issues)
			}
			spec.Controls = append(spec.Controls, c)
		}
		exact.Controls = spec.Controls
		sent := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "A", "b", "B", "a;x", "%2541", "a.", "a.b", "b%20", "a+", "a+b", "a%20b", "b::$DATA"}), 1, 4).Draw(t, "path")
		r := Request{Path: "/" + strings.Join(sent, "/")}
		literal := NewSet(exact).Decide(t.Context(), &r, Options{})
		got := NewSet(spec).Decide(t.Context(), &r, Options{})
		if got.Resource != nil && literal.Resource != nil && got.Resource.ID != literal.Resource.ID {
			both++
		}
		if literal.Considered > 0 && !literal.Permit && got.Permit {
			t.Errorf("%s: resource %d denies what its spelling names, resource %d permits: %+v", r.Path, literal.Resource.ID, got.Resource.ID, spec.Resources)
		}
		if literal.Considered > 0 && got.Considered == 0 {
			t.Errorf("%s: no control is considered, though resource %d has one: %+v", r.Path, literal.Resource.ID, spec.Resources)
		}
	})
	if both == 0 && fulltest.Run() { // a shorter run may draw none
		t.Error("no path named two resources")
	}
}
