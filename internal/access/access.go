// Package access has requests for access, and the grants that approved requests become. Controls
// read grants as data.grants.<subject>, a list. A grant ends at its time, wherever it was
// delivered.
package access

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a request. An approved one is a grant. Expired is a grant whose time is over, and a
// request that nobody decided in time.
const (
	Pending   = "pending"
	Approved  = "approved"
	Denied    = "denied"
	Revoked   = "revoked"
	Expired   = "expired"
	Withdrawn = "withdrawn"
)

const (
	// maxPending bounds the open requests of a tenant, maxOwn those of one subject, and maxFiled those
	// that one person or key filed, so that a key that floods leaves room for others.
	maxPending, maxOwn, maxFiled = 1000, 20, 500
	// maxGrants bounds the grants of a tenant: each bouncer whose controls read them gets all.
	maxGrants = 1000
	// keptFor is how long requests that are over are kept.
	keptFor = 365 * 24 * time.Hour
)

// Request is a request for access, and the grant that it became.
type Request struct {
	ID             int64      `json:"id" db:"id" doc:"Identifier, also of the grant."`
	Environment    scope.Env  `json:"environment" db:"environment" enum:"sandbox,production" doc:"The resource's environment."`
	SubjectID      string     `json:"subject_id" db:"subject_id" doc:"Who gets access: input.user.id of decisions." example:"ada"`
	ResourceID     int64      `json:"resource_id" db:"resource_id" doc:"Id of the resource."`
	ResourceName   string     `json:"resource_name" db:"resource_name" doc:"The resource's name when access was requested."`
	ResourceType   string     `json:"resource_type" db:"resource_type" doc:"The resource's type when access was requested."`
	Action         string     `json:"action" db:"action" doc:"Name of the action: input.action.name of decisions." example:"read"`
	Reason         string     `json:"reason" db:"reason" doc:"Why access is needed."`
	Duration       *int64     `json:"duration_seconds" db:"asked_seconds" doc:"How long access is needed, in seconds; null: the request does not say."`
	Status         string     `json:"status" db:"status" enum:"pending,approved,denied,revoked,expired,withdrawn" doc:"approved: access is granted until expires_at. expired: the grant's time is over, or nobody decided the request before lapses_at. withdrawn: the requester took it back."`
	RequestedBy    string     `json:"requested_by" db:"requested_by" doc:"Name of the person or key that filed it."`
	CreatedAt      time.Time  `json:"created_at" db:"created_at" doc:"When it was filed."`
	LapsesAt       *time.Time `json:"lapses_at" db:"lapses_at" doc:"Until when the request can be decided; null: for as long as it takes."`
	DecidedBy      *string    `json:"decided_by" db:"decided_by" doc:"Who approved or denied it; null: nobody yet."`
	DecidedAt      *time.Time `json:"decided_at" db:"decided_at" doc:"When it was approved or denied; null: not yet."`
	DecisionReason string     `json:"decision_reason" db:"decision_reason" doc:"Why it was approved, denied or revoked."`
	StartsAt       *time.Time `json:"starts_at" db:"starts_at" doc:"When the grant begins; null: there is none."`
	ExpiresAt      *time.Time `json:"expires_at" db:"expires_at" doc:"When the grant ends; null: there is none."`
	EndedBy        *string    `json:"ended_by" db:"ended_by" doc:"Who revoked the grant or withdrew the request; null: nobody."`
	EndedAt        *time.Time `json:"ended_at" db:"ended_at" doc:"When the grant or the request ended without a decision; null: it did not."`

	// BreakGlass is set for a grant that nobody requested first.
	BreakGlass bool `json:"break_glass" db:"break_glass" doc:"Whether it is a grant that was opened in an emergency, without a request."`

	CallerKind string `json:"-" db:"requested_by_kind"`
	CallerID   string `json:"-" db:"requested_by_id"`
}

// Page is one page of requests, newest first.
type Page struct {
	Requests []Request `json:"requests" doc:"The page, newest first."`
	Total    int64     `json:"total" doc:"How many there are."`
}

// Draft is a request to file, in the terms of AuthZEN.
type Draft struct {
	Subject struct {
		Type string `json:"type,omitempty" enum:"user,agent" doc:"Type of the subject; user by default."`
		ID   string `json:"id,omitempty" maxLength:"256" format:"name" doc:"Who needs access: input.user.id of the denied decision. A person files for themselves, and may leave it out." example:"ada"`
	} `json:"subject,omitzero" doc:"Who needs access."`
	Action struct {
		Name string `json:"name" minLength:"1" maxLength:"128" doc:"The action, as in the denied decision." example:"read"`
	} `json:"action" doc:"What they need to do."`
	Resource struct {
		ID string `json:"id" minLength:"1" maxLength:"256" doc:"Id of the resource, or its name if only one has it." example:"7"`
	} `json:"resource" doc:"The resource."`
	Reason   string `json:"reason" minLength:"1" maxLength:"500" doc:"Why access is needed; approvers read it." example:"Audit of the May payments"`
	Duration *int64 `json:"duration_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"How long access is needed, at most 30 days. An approval system cannot grant more; absent: the request does not say." example:"3600"`
}

// Approval is the decision to grant access.
type Approval struct {
	Duration int64  `json:"duration_seconds" minimum:"1" maximum:"2592000" doc:"How long the grant lasts, at most 30 days." example:"3600"`
	Reason   string `json:"reason,omitempty" maxLength:"500" doc:"Why access is granted."`
}

// Refusal is the decision to deny a request or to revoke a grant.
type Refusal struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; the requester reads it." example:"Use the report instead"`
}

// Filter selects requests.
type Filter struct {
	Status      string
	Env         scope.Env
	Skip, Limit int64
	// kind and id of the caller whose requests are listed, and the subject; "": all.
	kind, id string
}
