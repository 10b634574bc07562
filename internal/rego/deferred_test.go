package rego_test

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

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
			c := rego.Defer(rego.Meta{ID: 7, Name: "bad", Version: 1}, source, nil)
			if len(c.Broken()) == 0 {
				t.Fatal("it compiles")
			}
			good := compiledControl(t, rego.Meta{ID: 8, Name: "good", Version: 1}, "package g\n\nallow := true")
			s := rego.NewSet(rego.SetSpec{Controls: []*rego.Control{c, good}})
			r := rego.Request{Path: "/x"}
			opt := rego.Options{Cache: rego.NewCache(1 << 20)}
			for range 2 {
				d := s.Decide(context.Background(), &r, opt)
				why := explain.Decision(context.Background(), s, &r, opt, d)
				if d.Effect != rego.Deny || d.Permit || d.PolicyID != 7 || d.Err == nil || d.CacheHit || len(why) == 0 {
					t.Errorf("%s, %+v", described(d), why)
				}
				explain.TraceDecision(context.Background(), s, &r, opt, d)
				d.ReasonSecrets(&r)
			}
			if out := c.Eval(context.Background(), value.Value{}, nil, rego.Limits{}); out.Effect != rego.Deny || out.Err == nil {
				t.Errorf("%+v", out)
			}
			// A bundle carries it: there it denies with the same reason.
			data, err := bundle.Write(bundle.Spec{Set: s})
			errtest.Must(t, err)
			read, err := readBundle(data)
			errtest.Must(t, err)
			want, got := s.Decide(context.Background(), &r, rego.Options{}), read.Set.Decide(context.Background(), &r, rego.Options{})
			if got.Effect != rego.Deny || got.Reason != want.Reason || got.PolicyID != 7 {
				t.Errorf("in a bundle %s, not %s", described(got), described(want))
			}
			if answer := askOPA(t, apptest.OPA(t), data, []corpusCase{{Name: "x", Input: []byte(`{"resource":{"path":"/x"}}`)}}); answer[0] == nil || answer[0]["effect"] != "DENY" || answer[0]["reason"] != want.Reason {
				t.Errorf("a stock OPA answers %v, not %s", answer[0], described(want))
			}
			_, _, _, _ = c.Refs(), c.Package(), c.Libraries(), c.ActionNames()
		})
	}
}

// The next bundle costs what differs from the active one, and a bundle that was
// read before compiles nothing until it is asked.
func TestBundleReaderTakesOver(t *testing.T) {
	write := func(controls ...*rego.Control) []byte {
		data, err := bundle.Write(bundle.Spec{Set: rego.NewSet(rego.SetSpec{Controls: controls, PIP: value.Object()})})
		errtest.Must(t, err)
		return data
	}
	with := func(lib lang.Library) *rego.Control {
		c, issues := rego.Compile(rego.Meta{ID: 1, Name: "one", Version: 1}, "package a\n\nallow if data.lib.text.yes", lib)
		if len(issues) > 0 {
			t.Fatal(issues)
		}
		return c
	}
	lib := lang.Library{ID: 5, Name: "text", Version: 1, Source: "package lib.text\n\nyes := true"}
	one := with(lib)
	two := compiledControl(t, rego.Meta{ID: 2, Name: "two", Version: 1}, "package b\n\nallow := true")
	first, err := bundle.Reader{Stored: true}.Read(write(one, two))
	errtest.Must(t, err)
	for _, c := range first.Set.Controls() {
		if c.IsCompiled() {
			t.Errorf("control %d was compiled", c.Meta().ID)
		}
	}
	if d := first.Set.Decide(context.Background(), &rego.Request{}, rego.Options{}); !d.Permit {
		t.Errorf("%s", described(d))
	}
	changed := compiledControl(t, rego.Meta{ID: 2, Name: "two", Version: 2}, "package b\n\nallow := false")
	next, err := bundle.Reader{Active: first.Set}.Read(write(one, changed))
	errtest.Must(t, err)
	if next.Set.Control(1) != first.Set.Control(1) || next.Set.Control(2) == first.Set.Control(2) {
		t.Error("what did not change was not taken over, or what did was")
	}
	if d := next.Set.Decide(context.Background(), &rego.Request{}, rego.Options{}); d.Permit || d.PolicyVersion != 2 {
		t.Errorf("%s", described(d))
	}
	moved := with(lang.Library{ID: 5, Name: "text", Version: 2, Source: "package lib.text\n\nyes := false"})
	third, err := bundle.Reader{Active: next.Set}.Read(write(moved, changed))
	errtest.Must(t, err)
	if third.Set.Control(1) == next.Set.Control(1) || third.Set.Control(1).Libraries()[0].Version != 2 {
		t.Error("a control goes on by the library of before")
	}
}
