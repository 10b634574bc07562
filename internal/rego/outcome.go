package rego

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxReasonRunes is the length at which a reason is cut; maxMaskRules is the largest number of
// masks of one control.
const (
	maxReasonRunes = 1024
	maxMaskRules   = 1000
)

// effect returns the outcome of a control without the reason: deny true or non-empty: DENY; else
// mask non-empty and allow not false: MASK; else allow true: ALLOW; else allow false: DENY; else
// NO_MATCH. A rule with an invalid value refuses access: an allow that is not a boolean is a
// DENY.
func (c *Control) effect(r *run, b *timeBudget) Outcome {
	if len(c.issues) > 0 {
		return c.failedToCompile()
	}
	res, err := c.code.Program.Eval(r.env(b), r.in, r.data)
	if err != nil {
		return c.failed(r.failure(err))
	}
	return c.outcome(res.Deny, res.Mask, res.Allow)
}

// answer is effect with the reason, in one evaluation.
func (c *Control) answer(r *run, b *timeBudget) (out Outcome) {
	if len(c.issues) > 0 {
		return c.failedToCompile()
	}
	res, err := c.code.Program.EvalReason(r.env(b), r.in, r.data, func(res native.Result) bool {
		out = c.outcome(res.Deny, res.Mask, res.Allow)
		return c.code.Rules.Reason && out.reasoned()
	})
	if err != nil {
		return c.failed(r.failure(err))
	}
	c.giveReason(&out, res.Reason)
	return out
}

// reasoned reports whether the control gave the outcome's reason.
func (o *Outcome) reasoned() bool { return o.Err == nil && o.Effect != NoMatch }

// outcome combines the values of the rules.
func (c *Control) outcome(deny, mask, allow value.Value) Outcome {
	if Denies(deny) {
		return Outcome{Effect: Deny, Reason: joinReasons(deny)}
	}
	return c.maskOrAllow(mask, allow)
}

// maskOrAllow returns the outcome if deny does not decide.
func (c *Control) maskOrAllow(mask, allow value.Value) Outcome {
	if allow.False() {
		return Outcome{Effect: Deny}
	}
	if allow.Defined() && !allow.True() {
		return c.failed(fmt.Errorf("allow must be true or false, not %s", allow.Kind()))
	}
	rules, err := maskRules(mask)
	if err != nil {
		return c.failed(err)
	}
	switch {
	case len(rules) > 0:
		return Outcome{Effect: Mask, Mask: rules}
	case allow.True():
		return Outcome{Effect: Allow}
	}
	return Outcome{Effect: NoMatch}
}

// Denies reports whether a value of deny refuses: anything but false and an empty collection or
// string.
func Denies(v value.Value) bool {
	switch v.Kind() {
	case value.UndefinedKind:
		return false
	case value.BoolKind:
		return v.True()
	case value.StringKind, value.ArrayKind, value.ObjectKind, value.SetKind:
		return v.Len() > 0
	}
	return true
}

// joinReasons joins a set (or array) of reasons: its strings, sorted.
func joinReasons(v value.Value) string {
	if s, ok := v.Str(); ok {
		return s
	}
	if k := v.Kind(); k != value.SetKind && k != value.ArrayKind {
		return ""
	}
	var out []string
	for _, e := range v.Elems() {
		if s, ok := e.Str(); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// maskRules reads the value of mask: a set or array of paths, which are redacted, or an object
// from path to strategy.
func maskRules(v value.Value) ([]MaskRule, error) {
	if !v.Defined() || v.False() || v.Len() == 0 && v.Kind() >= value.ArrayKind {
		return nil, nil
	}
	if v.Kind() < value.ArrayKind {
		return nil, fmt.Errorf("mask must be a set of paths or an object path: strategy, not %s", v.Kind())
	}
	if v.Len() > maxMaskRules {
		return nil, ErrLimit
	}
	var out []MaskRule
	if v.Kind() == value.ObjectKind {
		for _, p := range v.Pairs() {
			path, ok1 := p.K.Str()
			strategy, ok2 := p.V.Str()
			if !ok1 || !ok2 || path == "" || lang.Strictness(strategy) == 0 {
				return nil, fmt.Errorf("mask: every member must be a path with the strategy redact, hash, last4 or remove")
			}
			out = append(out, MaskRule{path, strategy})
		}
	} else {
		for _, e := range v.Elems() {
			path, ok := e.Str()
			if !ok || path == "" {
				return nil, fmt.Errorf("mask: every element must be a path")
			}
			out = append(out, MaskRule{path, lang.StrategyRedact})
		}
	}
	return uniteMasks(out), nil
}

// uniteMasks sorts the masks by path and keeps the strictest strategy of each.
func uniteMasks(rules []MaskRule) []MaskRule {
	slices.SortFunc(rules, func(a, b MaskRule) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), lang.Strictness(b.Strategy)-lang.Strictness(a.Strategy))
	})
	return slices.CompactFunc(rules, func(a, b MaskRule) bool { return a.Path == b.Path })
}

// explain fills in the reason: the control's own rule, else the reasons that
// deny gave, else a sentence with its name. A reason that cannot be evaluated
// is an error of the control.
func (c *Control) explain(r *run, b *timeBudget, out *Outcome) {
	var reason value.Value
	if c.code.Rules.Reason && out.reasoned() {
		var err error
		if reason, err = c.code.Program.Rule("reason", r.env(b), r.in, r.data); err != nil {
			*out = c.failed(r.failure(err))
			return
		}
	}
	c.giveReason(out, reason)
}

// giveReason fills in the reason, given the value of the rule of that name.
func (c *Control) giveReason(out *Outcome, reason value.Value) {
	if !out.reasoned() {
		if out.Reason == "" {
			out.Reason = noMatchReason
		}
		return
	}
	if s, ok := reason.Str(); ok && s != "" {
		out.Reason = s
	}
	out.Authored = out.Reason != ""
	if !out.Authored {
		out.Reason = c.DefaultReason(out.Effect)
	}
	out.Reason = cutReason(out.Reason)
}

// DefaultReason returns the reason of an effect for which the control gives none.
func (c *Control) DefaultReason(e Effect) string { return defaultReason(c.meta.Name, e) }

func defaultReason(control string, e Effect) string {
	switch e {
	case Deny:
		return "Denied by control " + control
	case Mask:
		return "Masked by control " + control
	default:
		return "Allowed by control " + control
	}
}

// noMatchReason and noControlReason are the reasons of decisions without a control.
const (
	noMatchReason   = "No control matched the request"
	noControlReason = "No active control applies to the request"
)

// unresolvedReason is the reason of a decision without a control, if the request gave a number as
// its resource's id and no resource has it.
func unresolvedReason(id value.Value, considered int) string {
	rest := "no tenant-wide control matched the request"
	if considered == 0 {
		rest = "no tenant-wide control applies"
	}
	return cutReason("There is no resource " + string(id.AppendJSON(nil)) + " in this environment, and " + rest)
}

func cutReason(s string) string {
	if len(s) <= maxReasonRunes {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > maxReasonRunes {
			return s[:i]
		}
	}
	return s
}

// identityOf digests all that a control's outcome depends on besides input and data.
func identityOf(m Meta, source string, libs []lang.Library) [32]byte {
	h := sha256.New()
	text := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, i := range []int64{m.ID, m.Version, m.ResourceID} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(i)))
	}
	text(m.Name)
	text(source)
	for _, l := range libs {
		text(l.Source)
	}
	return [32]byte(h.Sum(nil))
}
