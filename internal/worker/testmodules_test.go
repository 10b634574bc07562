package worker

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
)

// TestTestModules runs tests in a child. A run that does not end is stopped.
func TestTestModules(t *testing.T) {
	p := pool(t)
	rep, err := p.TestModules(t.Context(), "default", []suite.Module{
		{Path: "a.rego", Content: fine},
		{Path: "a_test.rego", Content: "package fine\n\ntest_admin if allow with input as {\"user\": {\"role\": \"admin\"}}\n"},
	})
	if err != nil || len(rep.Tests) != 1 || rep.Tests[0].Status != suite.TestPassed || len(rep.Coverage) != 1 || rep.Coverage[0].Percent != 100 {
		t.Fatalf("%+v, %v, want one passed test that covers all", rep, err)
	}

	p.cfg.ModulesDeadline = 300 * time.Millisecond
	loop := "package loop\n\ntest_loop if {\n\tsome a in numbers.range(1, 90000)\n\tsome b in numbers.range(1, 90000)\n\ta + b < 0\n}\n"
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // many times the deadline
	defer cancel()
	_, err = p.TestModules(ctx, "default", []suite.Module{{Path: "loop_test.rego", Content: loop}})
	wantLimit(t, "an endless test", err)
	if !fault.Is(err, fault.Invalid) || ctx.Err() != nil {
		t.Errorf("an endless test: %v, want Invalid before its context ends (%v)", err, ctx.Err())
	}
}
