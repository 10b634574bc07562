package rego

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
)

// TestResourceNames holds the lookup by name to a scan of all resources, over sets that
// follow each other.
func TestResourceNames(t *testing.T) {
	kinds, texts := []string{"api", "record"}, []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		resource := func() target.Resource {
			id := rapid.Int64Range(1, 6).Draw(t, "id")
			return target.Resource{ID: id, Type: rapid.SampledFrom(kinds).Draw(t, "type"), Name: rapid.SampledFrom(texts).Draw(t, "name"), Path: fmt.Sprint("/", id)}
		}
		set := NewSet(SetSpec{Resources: []target.Resource{{ID: 1, Type: "api", Name: "a", Path: "/1"}}})
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			if rapid.Bool().Draw(t, "ask first") {
				set.ResourceNames("api")
			}
			switch rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				set = set.With(Change{Resources: []target.Resource{resource()}})
			case 1:
				set = set.With(Change{RemovedResources: []int64{rapid.Int64Range(1, 6).Draw(t, "gone")}})
			default:
				c, _ := Compile(Meta{ID: 1}, "package c\nallow := true")
				before := set.names
				if set = set.With(Change{Controls: []*Control{c}}); set.names != before {
					t.Fatal("a change of a control makes the names anew")
				}
			}
			for _, kind := range kinds {
				want := map[string]int64{}
				for _, r := range set.Resources() {
					if r.Type == kind && (want[r.Name] == 0 || r.ID < want[r.Name]) {
						want[r.Name] = r.ID
					}
				}
				var list []string
				for _, name := range texts {
					var got int64
					if r := set.ResourceNamed(kind, name); r != nil {
						got = r.ID
					}
					if got != want[name] {
						t.Fatalf("%s %s is %d, want %d", kind, name, got, want[name])
					}
					if want[name] != 0 {
						list = append(list, name)
					}
				}
				if got := set.ResourceNames(kind); !slices.Equal(got, list) {
					t.Fatalf("%s: %v, want %v", kind, got, list)
				}
			}
		}
	})
}

// TestActionNames: a control knows its actions from the second call on, and so do the
// sets that follow, as they keep the controls that did not change.
func TestActionNames(t *testing.T) {
	for source, want := range map[string][]string{
		"package a\nallow if input.action.name == \"read\"":                                      {"read"},
		"package a\nallow if input.action.name in {\"write\", \"read\"}":                         {"read", "write"},
		"package a\nallow if { input.action.method == \"GET\"; input.action.name != \"\" }":      {"GET"},
		"package a\nallow if input.authzen.action.name == \"a\"":                                 {"a"},
		"package a\nallow if { input.action.name == \"a\" }\ndeny if input.action.name == \"a\"": {"a"},
		"package a\nallow if input.user.id == \"action\"":                                        nil,
		"package a\nallow if input.user.id == \"ann\"":                                           nil,
		"action {{{": nil,
	} {
		c := Defer(Meta{ID: 1}, source, nil)
		set := NewSet(SetSpec{Controls: []*Control{c}})
		if c.actions.Load() != nil {
			t.Errorf("%q: parsed before anybody asked", source)
		}
		if got := c.ActionNames(); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", source, got, want)
		}
		known := c.actions.Load()
		next := set.With(Change{Resources: []target.Resource{{ID: 1, Type: "api", Path: "/"}}}).Controls()[0]
		if next.ActionNames(); known == nil || next.actions.Load() != known {
			t.Errorf("%q: parsed again", source)
		}
		if c.once.done.Load() {
			t.Errorf("%q: compiled for its actions", source)
		}
	}
}

func TestUnknownHosts(t *testing.T) {
	set := NewSet(SetSpec{Resources: []target.Resource{{ID: 1, Host: "Known.example"}, {ID: 2, Host: "port.example:8443"}, {ID: 3, Path: "/x"}, {ID: 4, Host: "gone.example"}}})
	set = set.With(Change{RemovedResources: []int64{4}})
	got := set.UnknownHosts([]string{"known.example", "new.example", "port.example", "gone.example", "new.example"})
	if want := []string{"new.example", "gone.example"}; !slices.Equal(got, want) {
		t.Errorf("unknown: %v, want %v", got, want)
	}
}
