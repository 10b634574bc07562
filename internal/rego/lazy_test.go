package rego

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
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
		r := target.Resource{ID: m.ID, Path: fmt.Sprint("/", i)}
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
		if !c.BuiltFrom(want.controls[i].meta, source(i), nil) || c.BuiltFrom(want.controls[i].meta, source(i)+" ", nil) {
			t.Errorf("control %d does not know what it is of", i)
		}
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
