package rego

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/oracle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// byTopdown is the outcome of a control by OPA's own evaluator.
func byTopdown(t testing.TB, c *Control, in value.Value, data DataSource, now time.Time) Outcome {
	t.Helper()
	c.ready()
	var libs []string
	for _, l := range c.Libraries() {
		libs = append(libs, l.Source)
	}
	o, err := oracle.Compile(c.Source(), libs...)
	if err != nil {
		t.Fatalf("%s: %v", c.meta.Name, err)
	}
	ask := func(rule string, defined bool) value.Value {
		if !defined || err != nil {
			return value.Value{}
		}
		var v value.Value
		v, err = o.Rule(context.Background(), rule, in, data, now)
		return v
	}
	deny := ask("deny", c.code.Rules.Deny)
	var mask, allow value.Value
	if !denies(deny) {
		mask, allow = ask("mask", c.code.Rules.Mask), ask("allow", c.code.Rules.Allow)
	}
	if err != nil {
		return Outcome{Effect: Deny, Err: err}
	}
	out := c.outcome(deny, mask, allow)
	if out.Err == nil && out.Effect != NoMatch {
		reason := ask("reason", c.code.Rules.Reason)
		if err != nil {
			return Outcome{Effect: Deny, Err: err}
		}
		if s, ok := reason.Str(); ok && s != "" {
			out.Reason = s
		}
		if out.Reason == "" {
			out.Reason = c.defaultReason(out.Effect)
		}
		out.Reason = cutReason(out.Reason)
	} else if out.Reason == "" {
		out.Reason = noMatchReason
	}
	return out
}
