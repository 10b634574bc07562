package rego

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// whyTopdown explains a control that runs on OPA's evaluator.
func (c *Control) whyTopdown(_ context.Context, _ value.Value, _ DataSource, _ Limits, _ Outcome, e *Explanation) {
	e.Partial = true
}
