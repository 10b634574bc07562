package rego

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/native"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxReasonRunes is the length at which a reason is cut; maxMaskRules is the largest number of
// masks of one control.
const (
	maxReasonRunes = 1024
	maxMaskRules   = 1000
)

// effect returns the outcome of a control without its reason. The first of these applies: a deny
// that is true or not empty gives DENY, an allow that is false gives DENY, a mask that is not
// empty gives MASK, an allow that is true gives ALLOW. Otherwise the outcome is NO_MATCH. A rule
// with an invalid value gives DENY, such as an allow that is not a boolean.
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

// answer returns the outcome of a control with its reason, in one evaluation.
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

// reasoned reports whether the control may give a reason for the outcome.
func (o *Outcome) reasoned() bool { return o.Err == nil && o.Effect != NoMatch }

// outcome combines the values of the rules into an outcome.
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

// Denies reports whether a value of the rule deny refuses access. Any value does, except
// undefined, false, and an empty collection or string.
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

// joinReasons returns the reasons in a value of deny: the string itself, or the strings of a set
// or array, sorted and joined.
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

// maskRules reads the value of the rule mask: a set or array of paths to redact, or an object from
// path to strategy.
func maskRules(v value.Value) ([]masking.MaskRule, error) {
	if !v.Defined() || v.False() || v.Len() == 0 && v.Kind() >= value.ArrayKind {
		return nil, nil
	}
	if v.Kind() < value.ArrayKind {
		return nil, fmt.Errorf("mask must be a set of paths, or an object from path to strategy, not %s", v.Kind())
	}
	if v.Len() > maxMaskRules {
		return nil, ErrLimit
	}
	var out []masking.MaskRule
	if v.Kind() == value.ObjectKind {
		for _, p := range v.Pairs() {
			path, ok1 := p.K.Str()
			strategy, ok2 := p.V.Str()
			if !ok1 || !ok2 || path == "" || masking.Strictness(strategy) == 0 {
				return nil, fmt.Errorf("mask: every member must be a path with the strategy redact, hash, last4 or remove")
			}
			out = append(out, masking.MaskRule{Path: path, Strategy: strategy})
		}
	} else {
		for _, e := range v.Elems() {
			path, ok := e.Str()
			if !ok || path == "" {
				return nil, fmt.Errorf("mask: every element must be a path")
			}
			out = append(out, masking.MaskRule{Path: path, Strategy: masking.Redact})
		}
	}
	return uniteMasks(out), nil
}

// uniteMasks sorts the masks by path and keeps the strictest strategy of each.
func uniteMasks(rules []masking.MaskRule) []masking.MaskRule {
	slices.SortFunc(rules, func(a, b masking.MaskRule) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), masking.Strictness(b.Strategy)-masking.Strictness(a.Strategy))
	})
	return slices.CompactFunc(rules, func(a, b masking.MaskRule) bool { return a.Path == b.Path })
}

// explain evaluates the control's rule reason and fills in the reason of an outcome. If the rule
// cannot be evaluated, the control has failed, and the outcome is a DENY.
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

// giveReason fills in the reason of an outcome: the value of the rule reason, else the reasons
// that deny gave, else a sentence with the control's name.
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

// DefaultReason returns the reason for an effect if the control gives none.
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

// unresolvedReason returns the reason of a decision without a control, for a request whose
// resource id is a number that no resource has.
func unresolvedReason(id value.Value, considered int) string {
	rest := "no tenant-wide control matched the request"
	if considered == 0 {
		rest = "no tenant-wide control applies"
	}
	return cutReason("There is no resource " + string(id.AppendJSON(nil)) + " in this environment, and " + rest)
}

// cutReason cuts a reason off after maxReasonRunes characters.
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

// identityOf digests everything that a control's outcome depends on besides input and data.
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
