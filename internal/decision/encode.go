package decision

import (
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// AppendJSON writes r as encoding/json would, without reflection: this is the answer of the
// most frequent operation.
func (r *Result) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"decision":"`...)
	dst = append(dst, r.Decision...)
	dst = append(dst, `","reason":`...)
	dst = value.AppendString(dst, r.Reason)
	dst = append(dst, `,"policy_name":`...)
	if r.PolicyName == nil {
		dst = append(dst, "null"...)
	} else {
		dst = value.AppendString(dst, *r.PolicyName)
	}
	dst = append(dst, `,"evaluation_time_ms":`...)
	dst = strconv.AppendFloat(dst, r.EvaluationTimeMS, 'f', -1, 64)
	dst = append(dst, `,"cache_hit":`...)
	dst = strconv.AppendBool(dst, r.CacheHit)
	dst = append(dst, `,"decision_id":`...)
	dst = value.AppendString(dst, r.DecisionID)
	dst = append(dst, `,"timestamp":"`...)
	dst = r.Timestamp.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	dst = appendMask(dst, r.Mask)
	dst = r.RequestAccess.append(dst)
	return append(dst, '}')
}

// AppendJSON writes b as encoding/json would.
func (b *Bulk) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"results":[`...)
	for i := range b.Results {
		if i > 0 {
			dst = append(dst, ',')
		}
		r := &b.Results[i]
		dst = append(dst, `{"decision_id":`...)
		dst = value.AppendString(dst, r.DecisionID)
		dst = append(dst, `,"audit_id":`...)
		dst = value.AppendString(dst, r.AuditID)
		dst = append(dst, `,"decision":"`...)
		dst = append(dst, r.Decision...)
		dst = append(dst, `","reason":`...)
		dst = value.AppendString(dst, r.Reason)
		dst = append(dst, `,"evaluation_time_ms":`...)
		dst = strconv.AppendFloat(dst, r.EvaluationTimeMS, 'f', -1, 64)
		dst = appendMask(dst, r.Mask)
		dst = r.RequestAccess.append(dst)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"total_evaluation_time_ms":`...)
	dst = strconv.AppendFloat(dst, b.TotalEvaluationTimeMS, 'f', -1, 64)
	return append(dst, '}')
}

func appendMask(dst []byte, rules []masking.MaskRule) []byte {
	if len(rules) == 0 {
		return dst
	}
	dst = append(dst, `,"mask":[`...)
	for i, m := range rules {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"path":`...)
		dst = value.AppendString(dst, m.Path)
		dst = append(dst, `,"strategy":`...)
		dst = value.AppendString(dst, m.Strategy)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
