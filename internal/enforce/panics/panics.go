// Package panics counts and logs panics that were recovered.
package panics

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Reporter counts and logs panics that were recovered.
type Reporter struct {
	count *metrics.Counters
	log   *slog.Logger
}

// New returns a reporter that counts in count.
func New(count *metrics.Counters, logger *slog.Logger) *Reporter {
	return &Reporter{count, logger}
}

// Report counts and logs a panic. It must be called by the deferred function that recovered
// the panic, so that it logs the stack of the panic. id is the request's id, or empty.
func (r *Reporter) Report(ctx context.Context, what string, p any, id string) {
	r.count.Panics.Add(1)
	r.log.ErrorContext(ctx, what, "panic", fault.DescribePanic(p), "request_id", id, "stack", string(debug.Stack()))
}

// EvaluatorHandler returns the function that the evaluator calls when a control makes it panic. The control
// denies.
func (r *Reporter) EvaluatorHandler(ctx context.Context, id string) func(*rego.Panic) {
	return func(p *rego.Panic) {
		r.count.Panics.Add(1)
		r.log.ErrorContext(ctx, "the evaluator panicked", "panic", fault.DescribePanic(p.Value), "request_id", id, "stack", string(p.Stack))
	}
}

// Run runs fn. A panic of it is counted, logged as what, and returned as an error.
func (r *Reporter) Run(what string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Report(context.Background(), what, p, "")
			err = fmt.Errorf("%s: %s", what, fault.DescribePanic(p))
		}
	}()
	return fn()
}
