// Package audit stores the decision log and the administrative log. Each is hash-chained in the
// tenant's own store.
//
// The path of a decision:
//
//	Record ──appended line──▶  spool (disk, this process)      callers get their answers from here on
//	                             │ Run: batches, per tenant
//	                             ▼
//	        one transaction: drop known ids · chain · rows · counters
//
// Record returns when the operating system has the line, so a killed process loses nothing. The
// shipper recognises decisions by their ids. It may therefore repeat a batch: no decision is
// counted twice.
//
// decision_counts makes counting cheap. For each hour, environment and decision, it has the number
// of rows: in all, for each policy, for each resource, and for each pair of them. It also has the
// number for each user and day. `total` is a sum of these counts, and so is `filtered` if one kind
// of count covers the filter. Only the partial buckets at the ends of a time window, and a user
// combined with another filter, are counted with an index.
//
// The decisions table is not partitioned. PostgreSQL requires the partition key in every unique
// index, so decision_id alone could not be unique, and a batch that is sent again would be stored
// twice. Instead, retention removes the oldest rows of each level in small transactions, which
// touch no row that is being written.
//
// Append writes an administrative entry in the transaction of the change that it describes, so
// neither exists without the other.
package audit

import (
	"encoding/json"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Level says how much of a decision is stored, and for how long: 30, 90, 365 or 2555 days.
type Level string

// The audit levels of a resource. None keeps counters only.
const (
	None          Level = "none"
	Basic         Level = "basic"
	Detailed      Level = "detailed"
	Comprehensive Level = "comprehensive"
)

// LevelOf reads a resource's audit_level; an unset or unknown one means basic.
func LevelOf(s string) Level {
	switch l := Level(s); l {
	case None, Detailed, Comprehensive:
		return l
	default:
		return Basic
	}
}

// Keep returns how long rows of the level stay in the log.
func (l Level) Keep() time.Duration {
	const day = 24 * time.Hour
	switch l {
	case None:
		return 30 * day
	case Detailed:
		return 365 * day
	case Comprehensive:
		return 2555 * day
	default:
		return 90 * day
	}
}

// The two decisions of the API.
const (
	Permit = "PERMIT"
	Deny   = "DENY"
)

// Decision is one entry of the decision log: the published entry format and our additions.
type Decision struct {
	DecisionID string    `json:"decision_id" doc:"Identifies the decision; entries that are sent twice are recognised by it."`
	Timestamp  time.Time `json:"timestamp" doc:"When it was decided, RFC 3339 UTC."`
	// User, Resource and Action say what the decision was about.
	User             User     `json:"user"`
	Resource         Resource `json:"resource"`
	Action           string   `json:"action" doc:"The name of the action; without a name, the HTTP method."`
	Decision         string   `json:"decision" enum:"PERMIT,DENY"`
	Effect           string   `json:"effect,omitempty" enum:"ALLOW,DENY,MASK,NO_MATCH,SHADOW_WOULD_DENY,SHADOW_WOULD_MASK" doc:"The effect that the controls returned; in shadow mode, what enforce mode would have done."`
	PolicyID         int64    `json:"policy_id,omitempty" doc:"The control that decided; absent where none matched."`
	PolicyName       *string  `json:"policy_name" doc:"Null where no control matched."`
	PolicyVersion    int64    `json:"policy_version,omitempty"`
	Reason           string   `json:"reason"`
	EvaluationTimeMS float64  `json:"evaluation_time_ms"`
	IPAddress        string   `json:"ip_address"`

	Environment    scope.Env `json:"environment" enum:"sandbox,production"`
	ResourceID     int64     `json:"resource_id,omitempty" doc:"The matched resource; absent where none matched."`
	BouncerID      int64     `json:"bouncer_id,omitempty" doc:"The bouncer that decided; absent when this service decided."`
	RequestID      string    `json:"request_id,omitempty"`
	CallerID       string    `json:"caller_decision_id,omitempty" doc:"The decision_id that the caller sent; callers may use the same one twice."`
	CacheHit       bool      `json:"cache_hit"`
	Revision       int64     `json:"revision,omitempty" doc:"The revision of the controls that decided."`
	Mode           string    `json:"mode,omitempty" enum:"shadow,enforce" doc:"Set by bouncers."`
	RegulationTags []string  `json:"regulation_tags,omitempty" doc:"The compliance tags of the resource."`
	AuditLevel     Level     `json:"audit_level,omitempty" enum:"basic,detailed,comprehensive"`
	// Error is set when a control failed and the decision is a denial for that reason.
	Error string `json:"error,omitempty"`
	// Agent is set when an AI agent asked: for itself, or for the user.
	Agent *actor.AgentUse `json:"agent,omitempty" doc:"The AI agent that asked, for itself or for the user; absent when none did."`
	// Input and Explanation are stored at levels detailed and comprehensive, Trace only at
	// comprehensive. All are redacted. At basic, an Input is not part of the entry, but may be
	// stored for replay (Kept).
	Input json.RawMessage `json:"input,omitempty" doc:"The redacted input; at audit levels detailed and comprehensive."`
	Trace json.RawMessage `json:"trace,omitempty" doc:"The evaluation's steps; at audit level comprehensive."`
	// Explanation is a list of rego.Explanation: of the control that decided, or of the controls
	// that did not match.
	Explanation json.RawMessage `json:"explanation,omitempty" doc:"The reason for the decision: rule, line, conditions and values; at audit levels detailed and comprehensive."`
	// Folded is set when the entry stands for many refusals.
	Folded *FoldedCount `json:"folded,omitempty" doc:"Set when the entry stands for many refusals that came too fast to store each one."`
	// Gap is set in a bouncer's note that decisions are missing, which is never folded.
	Gap bool `json:"-"`
	// Hidden holds the secrets of the input. They are removed from Reason, Error, Trace and
	// Explanation when the decision is recorded.
	Hidden redact.Secrets `json:"-"`
	// Replay is the input of a decision at level basic, stored for replay outside the entry; the
	// log fills it in.
	Replay json.RawMessage `json:"-"`
}

// User is the subject of a decision, as stored in the log.
type User struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// Resource is the object of a decision, as stored in the log. The id is text, because callers
// name resources in their own ways; Decision.ResourceID is the registered id.
type Resource struct {
	ID   string `json:"id,omitempty"`
	Type string `json:"type"`
	Path string `json:"path"`
}

// Entry is a change, as passed to Append.
type Entry struct {
	// Type is the audit event's name, such as POLICY_CREATED or RESOURCE_UPDATED.
	Type string
	// Object is the type of the changed object (policy, resource, user ...); ObjectID and
	// ObjectName identify it.
	Object, ObjectID, ObjectName string
	Env                          scope.Env
	// Changes describes the change. EventContext holds further facts about the event, such as
	// resource_snapshot. Both are redacted before they are stored.
	Changes, EventContext map[string]any
}

// Event is one row of the administrative log.
type Event struct {
	ID           int64           `json:"id" db:"seq" doc:"The position in the tenant's log; it only grows."`
	Timestamp    time.Time       `json:"timestamp" db:"at"`
	Type         string          `json:"type" db:"type" doc:"Such as POLICY_CREATED, RESOURCE_UPDATED, POLICY_SIMULATION_RUN."`
	Object       string          `json:"object" db:"object" doc:"The kind of thing that changed."`
	ObjectID     string          `json:"object_id" db:"object_id"`
	ObjectName   string          `json:"object_name" db:"object_name"`
	Environment  scope.Env       `json:"environment,omitempty" db:"environment"`
	ActorKind    scope.ActorKind `json:"actor_kind" db:"actor_kind" enum:"user,api_key,bouncer,vendor,system"`
	ActorID      string          `json:"actor_id" db:"actor_id"`
	ActorName    string          `json:"actor_name" db:"actor_name"`
	IPAddress    string          `json:"ip_address,omitempty" db:"ip_address"`
	RequestID    string          `json:"request_id,omitempty" db:"request_id"`
	Changes      map[string]any  `json:"changes" db:"changes"`
	EventContext map[string]any  `json:"event_context" db:"event_context"`
}
