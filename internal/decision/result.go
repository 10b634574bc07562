// Package decision answers "may this subject do this to that resource" for
// API callers.
//
// For each tenant and environment it has a snapshot: an immutable rego.Set (matcher, controls, data)
// behind an atomic pointer. A change of a control or resource marks the snapshot stale. The next
// decision builds a new one, reuses what did not change, and replaces the old one. While a store is
// down, decisions use the last snapshot.
//
//	body ─► rego.ParseRequest ─► stored user fills gaps ─► Set.Decide ─► audit.Record ─► Result
//
// The audit record survives a crash of the process before the answer is sent.
package decision

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// MaxBulk is the largest number of decisions in one bulk call.
const MaxBulk = 1000

// Result is the answer to a decision request.
type Result struct {
	Decision         string             `json:"decision" enum:"PERMIT,DENY" doc:"PERMIT when the controls in scope allow (with MASK: except the masked parts), else DENY"`
	Reason           string             `json:"reason" doc:"The reason in words; the control's own reason if it gives one"`
	PolicyName       *string            `json:"policy_name" nullable:"true" doc:"The control that decided; null when none matched"`
	EvaluationTimeMS float64            `json:"evaluation_time_ms" doc:"Time the evaluation took, in milliseconds"`
	CacheHit         bool               `json:"cache_hit" doc:"True when the answer came from the decision cache"`
	DecisionID       string             `json:"decision_id" doc:"Identifies this decision in the audit"`
	Timestamp        time.Time          `json:"timestamp" doc:"When it was decided, UTC"`
	Mask             []masking.MaskRule `json:"mask,omitempty" doc:"For MASK: what the PEP must mask"`
	RequestAccess    *RequestAccess     `json:"request_access,omitempty" doc:"After a denial that can be requested: what to send to /access/v1/requests, with a reason"`
}

// BulkResult is the answer to one item of a bulk call.
type BulkResult struct {
	DecisionID       string             `json:"decision_id" doc:"The id that the caller sent, or a generated one"`
	AuditID          string             `json:"audit_id" doc:"Identifies this decision in the audit; unlike decision_id, it is unique"`
	Decision         string             `json:"decision" enum:"PERMIT,DENY"`
	Reason           string             `json:"reason"`
	EvaluationTimeMS float64            `json:"evaluation_time_ms"`
	Mask             []masking.MaskRule `json:"mask,omitempty"`
	RequestAccess    *RequestAccess     `json:"request_access,omitempty" doc:"After a denial that can be requested: what to send to /access/v1/requests, with a reason"`
}

// Bulk is the answer to a bulk call.
type Bulk struct {
	Results               []BulkResult `json:"results"`
	TotalEvaluationTimeMS float64      `json:"total_evaluation_time_ms"`
}

// Source is the data that a snapshot is built from, at one revision.
type Source struct {
	Revision int64
	Controls []ControlText
	// Libraries are the libraries that controls may import.
	Libraries []lang.Library
	Resources []target.Resource
	// PIP is data.pip: the data of connected sources by connection name.
	PIP value.Value
	// Grants is data.grants: the grants of access by subject.
	Grants value.Value
	// Agents are the AI agents of the tenant.
	Agents actor.Agents
}

// Delta is the change of a Source since a revision.
type Delta struct {
	Revision int64
	// Resources are those that are new or changed, RemovedResources those that were removed.
	Resources        []target.Resource
	RemovedResources []int64
	// Rest is set when something other than resources and data.pip changed. Controls are then new or
	// changed, RemovedControls removed; Libraries are all that controls may import.
	Rest            bool
	Controls        []ControlText
	RemovedControls []int64
	Libraries       []lang.Library
	// PIP are the members of data.pip that are new or changed. An undefined value means that the
	// member was removed.
	PIP []value.Member
	// Grants is all of data.grants.
	Grants value.Value
	// Agents are all AI agents of the tenant; nil: they are the same as before.
	Agents *actor.Agents
	// Whole means that Controls lists all active controls.
	Whole bool
}

// ControlText is an active control as stored.
type ControlText struct {
	rego.Meta
	Source string
}
