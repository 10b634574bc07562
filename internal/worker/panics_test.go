package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// brokenWorker is a child in which crypto.md5 panics with its operand.
const brokenWorker = "broken-worker-for-test"

func breakMD5() {
	topdown.RegisterBuiltinFunc(ast.CryptoMd5.Name, func(_ topdown.BuiltinContext, args []*ast.Term, _ func(*ast.Term) error) error {
		panic("no digest of " + args[0].String())
	})
}

// TestPanicsOfChildren checks that, for each operation, the server logs and counts the panics that a child
// recovers, with their stacks, but without request data.
func TestPanicsOfChildren(t *testing.T) {
	var log bytes.Buffer
	var count atomic.Int32
	p := poolWith(t, brokenWorker, func(c *Config) {
		c.Panics = &fault.Panics{Log: slog.New(slog.NewTextHandler(&log, nil)), Add: func(where string) {
			if where == "worker" {
				count.Add(1)
			}
		}}
	})
	wantPanics := func(what string, least int32) {
		t.Helper()
		if n := count.Swap(0); n < least {
			t.Errorf("%s: %d panics are counted, want at least %d", what, n, least)
		}
	}
	const source = "package m\n\nallow if crypto.md5(input.user.id) == \"x\"\n"
	input := valuetest.Decode(t, `{"user":{"id":"u-hidden"}}`)
	if _, err := p.Simulate(t.Context(), "default", SimulateRequest{Source: source, Input: input}); err != nil {
		t.Errorf("a simulation: %v, want no error", err)
	}
	wantPanics("a simulation", 1)
	if _, err := p.Test(t.Context(), "default", TestRequest{Source: source, Cases: []suite.TestCase{{Name: "one", Input: input}}}); err != nil {
		t.Errorf("a test: %v, want no error", err)
	}
	wantPanics("a test", 1)
	r, err := p.Replay(t.Context(), "default", replaySpec(source, source, 3))
	errtest.Must(t, err)
	defer r.Close()
	if _, err := r.Run(t.Context(), recordedLines(20)); err != nil {
		t.Errorf("a replay: %v, want no error", err)
	}
	wantPanics("a replay", maxPanics)
	if text := log.String(); !strings.Contains(text, "goroutine") || !strings.Contains(text, "breakMD5") || strings.Contains(text, "hidden") {
		t.Errorf("the log is %s, want stacks without the input", text)
	}
}

// TestPanicOfTheChild checks that a panic of the child itself is an error, and is reported.
func TestPanicOfTheChild(t *testing.T) {
	c := &child{}
	rep := c.withPanics(func() (rep reply) {
		defer func() {
			if p := recover(); p != nil {
				rep = c.panicReply(p)
			}
		}()
		panic("hidden " + time.Now().String())
	}())
	if rep.Error == "" || strings.Contains(rep.Error, "hidden") || len(rep.Panics) != 1 || rep.Panics[0].What != "string" || rep.Panics[0].Stack == "" || c.panics != nil {
		t.Errorf("the reply is %+v, want an error without the text of the panic, and the stack", rep)
	}
	// An unknown operation must not panic.
	if rep := c.withPanics(c.serve(t.Context(), request{Op: "nothing"})); len(rep.Panics) != 0 {
		t.Errorf("the reply to an unknown operation is %+v, want no panic", rep)
	}
}

// TestPanicsOfChecks checks that a panic of OPA's parser or compiler is returned as an issue, and is reported.
func TestPanicsOfChecks(t *testing.T) {
	own := ast.CryptoMd5.Decl
	ast.CryptoMd5.Decl = nil // OPA's compiler panics when a control calls it
	t.Cleanup(func() { ast.CryptoMd5.Decl = own })
	const source = "package m\n\nallow if crypto.md5(input.user.id) == \"x\"\n"
	for op, req := range map[string]request{
		opValidate:     {Source: source},
		opCheckModules: {Modules: []suite.Module{{Path: "m.rego", Content: source}}},
	} {
		req.Op = op
		c := &child{}
		rep := c.withPanics(c.serve(t.Context(), req))
		if len(rep.Panics) == 0 || rep.Panics[0].Stack == "" || rep.Error != "" {
			t.Errorf("%s: the reply is %+v, want an issue and the stack", op, rep)
		}
	}
}
