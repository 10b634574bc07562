package rego_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

func lib(id int64, source string) lang.Library {
	return lang.Library{ID: id, Name: fmt.Sprint("library ", id), Version: 1, Source: source}
}

const textLibrary = "package lib.text\n\nsame(a, b) if lower(a) == lower(b)\n\nlines := {1: \"one\"}\n"

// What a control reads is what it and the rules that it reaches read; its
// digest, its bundle and its place in a set follow its libraries.
func TestLibrariesOfAControl(t *testing.T) {
	people := lib(1, "package lib.people\n\nimport data.lib.text\n\nnamed(n) if text.same(input.user.id, n)\n\nprompt := input.llm.model\n\ntime_of := time.now_ns()\n\nhr := data.pip.hr.x\n")
	libs := []lang.Library{people, lib(2, textLibrary), lib(3, "package lib.other\n\nx := 1\n")}
	m := rego.Meta{ID: 1, Name: "a", Version: 1}
	const source = "package a\n\nimport data.lib.people\n\nallow if people.named(\"ann\")\n"
	c, issues := rego.Compile(m, source, libs...)
	if issues != nil {
		t.Fatal(issues)
	}
	if r := c.Refs(); r.LLM || r.Clock || len(r.Data) > 0 || fmt.Sprint(r.Input) != "[[user id]]" {
		t.Errorf("refs %+v", r)
	}
	if got := c.Libraries(); len(got) != 2 || got[0].ID != 1 || got[1].ID != 2 {
		t.Errorf("libraries %v", got)
	}
	if got := lang.Reach(source, libs); !slices.Equal(got, c.Libraries()) {
		t.Errorf("reach %v", got)
	}
	d, issues := rego.Compile(m, strings.Replace(source, `named("ann")`, "prompt == people.hr", 1), libs...)
	if issues != nil {
		t.Fatal(issues)
	}
	if r := d.Refs(); !r.LLM || fmt.Sprint(r.Data) != "[[pip hr x]]" {
		t.Errorf("refs %+v", r)
	}
	changed := slices.Clone(libs)
	changed[1].Source, changed[1].Version = strings.ReplaceAll(textLibrary, "lower", "upper"), 2
	e, issues := rego.Compile(m, source, changed...)
	if issues != nil {
		t.Fatal(issues)
	}
	if e.Sum() == c.Sum() || !c.BuiltFrom(m, source, libs) || c.BuiltFrom(m, source, changed) || !c.BuiltFrom(m, source, append(libs[:2:2], lib(9, "package lib.new\n\nx := 1"))) {
		t.Error("a change of a library does not show")
	}
	data, err := bundle.Write(bundle.Spec{Set: rego.NewSet(rego.SetSpec{Controls: []*rego.Control{c, compiledControl(t, rego.Meta{ID: 2}, "package b\nallow := true")}})})
	errtest.Must(t, err)
	var names []string
	for _, name := range tarNames(t, data) {
		if strings.Contains(name, "libraries/") {
			names = append(names, name)
		}
	}
	if !slices.Equal(names, []string{"/gatehouse/libraries/l1v1.rego", "/gatehouse/libraries/l2v1.rego"}) {
		t.Errorf("the bundle holds %q", names)
	}
}

// A library's rule is one condition in an explanation: the author of the control
// sees what was asked of it.
func TestExplainWithALibrary(t *testing.T) {
	c, issues := rego.Compile(rego.Meta{ID: 1, Name: "a", Version: 1}, "package a\n\nimport data.lib.text\n\ndefault allow := false\n\nallow if text.same(input.user.id, \"ann\")\n", lib(2, textLibrary))
	if issues != nil {
		t.Fatal(issues)
	}
	for id, want := range map[string]rego.Effect{"ANN": rego.Allow, "bob": rego.Deny} {
		in := valuetest.Decode(t, fmt.Sprintf(`{"user":{"id":%q}}`, id))
		out, why := explain.Control(t.Context(), c, in, nil, rego.Limits{})
		list := why.Conditions
		if why.Nearest != nil {
			list = why.Nearest.Missing
		}
		if out.Effect != want || why.Partial || len(list) != 1 || list[0].Line != 7 || !strings.Contains(list[0].Source, "text.same") {
			t.Errorf("%s: %v %+v", id, out, why)
		}
	}
}
