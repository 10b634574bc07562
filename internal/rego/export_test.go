package rego

import "github.com/gatehouse-dev/gatehouse/internal/rego/value"

// What the tests outside of the package need of it.
const NoMatchReason = noMatchReason

// CutReason bounds a reason.
func CutReason(s string) string { return cutReason(s) }

// OutcomeOf is what the values of the rules come to.
func (c *Control) OutcomeOf(deny, mask, allow value.Value) Outcome {
	c.ready()
	return c.outcome(deny, mask, allow)
}

// IsCompiled reports whether somebody asked the control before.
func (c *Control) IsCompiled() bool { return c.once.done.Load() }

// Sum is the digest of all that the control's outcome depends on.
func (c *Control) Sum() [32]byte { return c.sum }
