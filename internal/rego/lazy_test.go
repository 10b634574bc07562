package rego

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Many requests for controls that nobody asked before: each compiles once, and
// all get the answer of a control that was compiled beforehand.
func TestDeferredControlsCompileOnce(t *testing.T) {
	const n = 8
	source := func(i int) string {
		return fmt.Sprintf("package c\n\nallow if input.user.id == \"u%d\"\n\nreason := %q", i, fmt.Sprint("by ", i))
	}
	var eager, lazy SetSpec
	for i := range n {
		m := Meta{ID: int64(i + 1), Name: "c", Version: 1, ResourceID: int64(i + 1)}
		r := Resource{ID: m.ID, Path: fmt.Sprint("/", i)}
		eager.Controls, eager.Resources = append(eager.Controls, mustCompile(t, m, source(i))), append(eager.Resources, r)
		lazy.Controls, lazy.Resources = append(lazy.Controls, Defer(m, source(i), nil)), append(lazy.Resources, r)
	}
	want, got := NewSet(eager), NewSet(lazy)
	var wait sync.WaitGroup
	made := make([][n]*compiled, 16)
	for g := range made {
		wait.Go(func() {
			for i := range n {
				path := fmt.Sprint("/", i)
				r := Request{Path: path, User: member("id", value.String(fmt.Sprint("u", (g+i)%n))), Resource: member("path", value.String(path))}
				a, b := want.Decide(context.Background(), &r, Options{}), got.Decide(context.Background(), &r, Options{})
				if describe(a) != describe(b) {
					t.Errorf("%s, deferred %s", describe(a), describe(b))
				}
				made[g][i] = got.controls[i].compiled
			}
		})
	}
	wait.Wait()
	for g := range made {
		for i := range n {
			if made[g][i] == nil || made[g][i] != made[0][i] {
				t.Fatalf("control %d was compiled more than once", i)
			}
		}
	}
	for i, c := range got.Controls() {
		if !c.Of(want.controls[i].meta, source(i), nil) || c.Of(want.controls[i].meta, source(i)+" ", nil) {
			t.Errorf("control %d does not know what it is of", i)
		}
	}
}

// A deferred control that does not compile denies in every way of asking it, and
// no bundle is written of it.
func TestDeferredControlThatIsBroken(t *testing.T) {
	for name, source := range map[string]string{
		"no Rego":                 "nonsense",
		"unknown function":        "package c\n\nallow if nonsense(1)",
		"a library that is away":  "package c\n\nallow if data.lib.text.yes",
		"a built-in not offered":  "package c\n\nallow if http.send({})",
		"more than the bounds":    "package c\n\nallow if " + string(make([]byte, lang.MaxSourceBytes)),
		"an empty text":           "",
		"a package that is taken": "package system\n\nallow := true",
	} {
		t.Run(name, func(t *testing.T) {
			c := Defer(Meta{ID: 7, Name: "bad", Version: 1}, source, nil)
			if len(c.Broken()) == 0 {
				t.Fatal("it compiles")
			}
			good := mustCompile(t, Meta{ID: 8, Name: "good", Version: 1}, "package g\n\nallow := true")
			s := NewSet(SetSpec{Controls: []*Control{c, good}})
			r := Request{Path: "/x"}
			opt := Options{Cache: NewCache(1 << 20)}
			for range 2 {
				d, why := s.Explain(context.Background(), &r, opt)
				if d.Effect != Deny || d.Permit || d.PolicyID != 7 || d.Err == nil || d.CacheHit || len(why) == 0 {
					t.Errorf("%s, %+v", describe(d), why)
				}
				s.Trace(context.Background(), &r, opt, d)
				d.Hidden(&r)
			}
			if out := c.Eval(context.Background(), value.Value{}, nil, Limits{}); out.Effect != Deny || out.Err == nil {
				t.Errorf("%+v", out)
			}
			// A bundle carries it: there it denies with the same reason.
			data, err := WriteBundle(BundleSpec{Set: s})
			if err != nil {
				t.Fatal(err)
			}
			read, err := ReadBundle(data, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, got := s.Decide(context.Background(), &r, Options{}), read.Set.Decide(context.Background(), &r, Options{})
			if got.Effect != Deny || got.Reason != want.Reason || got.PolicyID != 7 {
				t.Errorf("in a bundle %s, not %s", describe(got), describe(want))
			}
			if answer := askOPA(t, stockOPA(t), data, []corpusCase{{Name: "x", Input: []byte(`{"resource":{"path":"/x"}}`)}}); answer[0] == nil || answer[0]["effect"] != "DENY" || answer[0]["reason"] != want.Reason {
				t.Errorf("a stock OPA answers %v, not %s", answer[0], describe(want))
			}
			_, _, _, _ = c.Refs(), c.Package(), c.Libraries(), c.ActionNames()
		})
	}
}

// The next bundle costs what differs from the active one, and a bundle that was
// read before compiles nothing until it is asked.
func TestBundleReaderTakesOver(t *testing.T) {
	write := func(controls ...*Control) []byte {
		data, err := WriteBundle(BundleSpec{Set: NewSet(SetSpec{Controls: controls, PIP: value.Object()})})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	with := func(lib lang.Library) *Control {
		c, issues := Compile(Meta{ID: 1, Name: "one", Version: 1}, "package a\n\nallow if data.lib.text.yes", lib)
		if len(issues) > 0 {
			t.Fatal(issues)
		}
		return c
	}
	lib := lang.Library{ID: 5, Name: "text", Version: 1, Source: "package lib.text\n\nyes := true"}
	one := with(lib)
	two := mustCompile(t, Meta{ID: 2, Name: "two", Version: 1}, "package b\n\nallow := true")
	first, err := BundleReader{Stored: true}.Read(write(one, two))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range first.Set.Controls() {
		if c.once.done.Load() {
			t.Errorf("control %d was compiled", c.meta.ID)
		}
	}
	if d := first.Set.Decide(context.Background(), &Request{}, Options{}); !d.Permit {
		t.Errorf("%s", describe(d))
	}
	changed := mustCompile(t, Meta{ID: 2, Name: "two", Version: 2}, "package b\n\nallow := false")
	next, err := BundleReader{Active: first.Set}.Read(write(one, changed))
	if err != nil {
		t.Fatal(err)
	}
	if next.Set.Control(1) != first.Set.Control(1) || next.Set.Control(2) == first.Set.Control(2) {
		t.Error("what did not change was not taken over, or what did was")
	}
	if d := next.Set.Decide(context.Background(), &Request{}, Options{}); d.Permit || d.PolicyVersion != 2 {
		t.Errorf("%s", describe(d))
	}
	moved := with(lang.Library{ID: 5, Name: "text", Version: 2, Source: "package lib.text\n\nyes := false"})
	third, err := BundleReader{Active: next.Set}.Read(write(moved, changed))
	if err != nil {
		t.Fatal(err)
	}
	if third.Set.Control(1) == next.Set.Control(1) || third.Set.Control(1).Libraries()[0].Version != 2 {
		t.Error("a control goes on by the library of before")
	}
}

// What is kept of a compiled control is its program, some 5 KB of a small one:
// neither the compiler (80 KB) nor the syntax tree (13 KB).
func TestCompiledControlsAreSmall(t *testing.T) {
	const n = 400
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	source := func(i int) string {
		return fmt.Sprintf("package c\n\ndefault allow := false\n\nlimit := %d\n\nallow if {\n\tinput.user.clearance >= limit\n\tsome role in input.user.roles\n\trole in {\"admin\", \"team-%d\"}\n}\n\ndeny contains msg if {\n\tinput.context.country == \"XX\"\n\tmsg := sprintf(\"not %%s\", [input.context.country])\n}\n\nreason := \"cleared\" if allow\n", i, i)
	}
	mustCompile(t, Meta{ID: 1}, source(0))
	list := make([]*Control, n)
	before := heap()
	for i := range list {
		list[i] = mustCompile(t, Meta{ID: int64(i + 1), Name: "c", Version: 1}, source(i))
	}
	if each := (int64(heap()) - int64(before)) / n; each > 12<<10 {
		t.Errorf("%d bytes are kept of a control", each)
	}
	runtime.KeepAlive(list)
}
