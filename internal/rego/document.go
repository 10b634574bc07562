package rego

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// AppendJSON appends the decision as JSON, in the form of data.gatehouse.decision in a bundle:
// {decision, allow, effect, reason, mask, policy_id, policy_name, policy_version, resource_id}.
func (d *Decision) AppendJSON(dst []byte) []byte {
	verdict := "DENY"
	if d.Permit {
		verdict = "PERMIT"
	}
	dst = append(append(dst, `{"decision":"`...), verdict...)
	dst = append(strconv.AppendBool(append(dst, `","allow":`...), d.Permit), `,"effect":"`...)
	dst = value.AppendString(append(append(dst, d.Effect.String()...), `","reason":`...), d.Reason)
	dst = append(dst, `,"mask":[`...)
	for i, m := range d.Mask {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value.AppendString(append(dst, `{"path":`...), m.Path)
		dst = append(value.AppendString(append(dst, `,"strategy":`...), m.Strategy), '}')
	}
	dst = append(dst, `],"policy_id":`...)
	if d.PolicyID == 0 && d.PolicyName == "" {
		dst = append(dst, `null,"policy_name":null,"policy_version":null`...)
	} else {
		dst = append(strconv.AppendInt(dst, d.PolicyID, 10), `,"policy_name":`...)
		dst = append(value.AppendString(dst, d.PolicyName), `,"policy_version":`...)
		dst = strconv.AppendInt(dst, d.PolicyVersion, 10)
	}
	dst = append(dst, `,"resource_id":`...)
	if d.Resource == nil {
		return append(dst, `null}`...)
	}
	return append(strconv.AppendInt(dst, d.Resource.ID, 10), '}')
}
