package rego_test

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/oracle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// byTopdown is the outcome of a control by OPA's own evaluator.
func byTopdown(t testing.TB, c *rego.Control, in value.Value, data rego.DataSource, now time.Time) rego.Outcome {
	t.Helper()
	var libs []string
	for _, l := range c.Libraries() {
		libs = append(libs, l.Source)
	}
	o, err := oracle.Compile(c.Source(), libs...)
	if err != nil {
		t.Fatalf("%s: %v", c.Meta().Name, err)
	}
	ask := func(rule string, defined bool) value.Value {
		if !defined || err != nil {
			return value.Value{}
		}
		var v value.Value
		v, err = o.Rule(context.Background(), rule, in, data, now)
		return v
	}
	deny := ask("deny", c.Rules().Deny)
	var mask, allow value.Value
	if !rego.Denies(deny) {
		mask, allow = ask("mask", c.Rules().Mask), ask("allow", c.Rules().Allow)
	}
	if err != nil {
		return rego.Outcome{Effect: rego.Deny, Err: err}
	}
	out := c.OutcomeOf(deny, mask, allow)
	if out.Err == nil && out.Effect != rego.NoMatch {
		reason := ask("reason", c.Rules().Reason)
		if err != nil {
			return rego.Outcome{Effect: rego.Deny, Err: err}
		}
		if s, ok := reason.Str(); ok && s != "" {
			out.Reason = s
		}
		if out.Reason == "" {
			out.Reason = c.DefaultReason(out.Effect)
		}
		out.Reason = rego.CutReason(out.Reason)
	} else if out.Reason == "" {
		out.Reason = rego.NoMatchReason
	}
	return out
}
