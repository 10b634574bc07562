// Package tenant stores the tenants of the deployment: their records, settings, limits and usage
// alerts, and the enforcement mode of their environments.
//
//	active ⇄ suspended      only by a platform administrator
//	   └────────┴──▶ deleted ──30 days or hard_delete──▶ purged (only the id is kept)
//
// The record is in the system store. What a tenant's own transactions need (its limits, the
// four-eyes setting) is copied into the tenant's store with each change, so that one transaction
// can count objects and check their limit.
package tenant

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The states of a tenant. Only an active one is served.
const (
	Active    = "active"
	Suspended = "suspended"
	Deleted   = "deleted"
)

// purging is the state of a tenant while its store is deleted (db.DropTenant).
const purging = "purging"

// KeepDeleted is how long the data of a deleted tenant is kept.
const KeepDeleted = 30 * 24 * time.Hour

// DefaultRegion is the region of a tenant without an explicit one.
const DefaultRegion = "us-east-1"

// DefaultPlan is the plan of a tenant without an explicit one.
const DefaultPlan = "standard"

// BouncerRevision is a revision in the tenant's store. It increments with each change of the
// tenant's bouncers (bouncer.Topic), and of the setting that bouncers need: whether inputs are
// stored for replay.
const BouncerRevision = "bouncers"

// Revision is a revision in the system store that increments with each change of a tenant's record.
const Revision = "tenants"

// Tenant is a customer of the deployment, with its own store.
type Tenant struct {
	ID           scope.TenantID `json:"id" db:"id" doc:"A DNS label, derived from the name; never reused."`
	Name         string         `json:"name" db:"name" doc:"Display name."`
	Domain       string         `json:"domain" db:"domain" doc:"The tenant's domain; by default its subdomain of the base domain."`
	CustomDomain *string        `json:"custom_domain" db:"custom_domain" doc:"A domain of the tenant's own. Requests to it reach the tenant once it is verified."`
	Status       string         `json:"status" db:"status" enum:"active,suspended,deleted" doc:"Only an active tenant is served."`
	Region       string         `json:"region" db:"region" enum:"us-east-1,us-west-2,ca-central-1,eu-west-1,eu-central-1,eu-north-1,ap-southeast-1,ap-northeast-1,ap-south-1" doc:"Where the tenant's data is stored."`
	PlanType     string         `json:"plan_type" db:"plan_type" enum:"standard,pro,enterprise" doc:"The plan; it sets the request rate of each key."`
	CreatedAt    time.Time      `json:"created_at" db:"created_at" doc:"When the tenant was created."`
	UpdatedAt    time.Time      `json:"updated_at" db:"updated_at" doc:"When the record last changed."`
	ExpiresAt    *time.Time     `json:"expires_at" db:"expires_at" doc:"When a deleted tenant's data is purged; null otherwise."`
	DeletedAt    *time.Time     `json:"deleted_at,omitempty" db:"deleted_at" doc:"When the tenant was deleted."`
	Settings     Settings       `json:"settings" db:"settings" doc:"Limits and features of the tenant."`
	// Vendor is the embedding vendor who created the tenant. Attempt is set until the tenant is
	// complete (Begin).
	Vendor  string `json:"-" db:"vendor"`
	Attempt string `json:"-" db:"attempt"`
	Limits  *Usage `json:"limits,omitempty" db:"-" doc:"Usage of the limits; absent in lists."`
}

// Usage is how many objects of each limited kind a tenant has.
type Usage struct {
	PoliciesUsed int64 `json:"policies_used" doc:"Controls, except deleted ones."`
	UsersUsed    int64 `json:"users_used" doc:"People."`
	BouncersUsed int64 `json:"bouncers_used" doc:"Bouncers."`
}

// Draft is the input for a new tenant.
type Draft struct {
	Name         string   `json:"name" minLength:"1" maxLength:"128" doc:"Display name; the id is derived from it."`
	Domain       string   `json:"domain,omitempty" maxLength:"253" doc:"The tenant's domain; absent: its subdomain of the base domain."`
	CustomDomain string   `json:"custom_domain,omitempty" maxLength:"253" doc:"A domain of the tenant's own. Requests to it reach the tenant once it is verified."`
	PlanType     string   `json:"plan_type,omitempty" enum:"standard,pro,enterprise" doc:"standard by default."`
	Region       string   `json:"region,omitempty" enum:"us-east-1,us-west-2,ca-central-1,eu-west-1,eu-central-1,eu-north-1,ap-southeast-1,ap-northeast-1,ap-south-1" doc:"us-east-1 by default. If the deployment has regions, it must be one of them."`
	Settings     Settings `json:"settings,omitempty" doc:"Limits and features; an absent limit means none. Members that begin with x- are free for your own use; any other unknown member is a 422 that names the closest known one."`
}

// Offences returns the errors in a draft that its schema cannot express, to report them with the
// schema's errors.
func (d Draft) Offences() []fault.Detail {
	_, err := (&Service{Now: func() time.Time { return time.Time{} }}).draft(d)
	return fault.Offences(err)
}

// Change is a change of a tenant; absent members stay. Only platform administrators may change the
// plan, the status and the limits.
type Change struct {
	Name     patch.Field[string]   `json:"name,omitzero" minLength:"1" maxLength:"128" doc:"Display name; the id does not change."`
	Settings patch.Field[Settings] `json:"settings,omitzero" doc:"Only the members that are sent change; null removes one. Only a platform administrator may change max_*. Members that begin with x- are free for your own use; any other unknown member is a 422 that names the closest known one, unless it is already stored with this value."`
	PlanType patch.Field[string]   `json:"plan_type,omitzero" enum:"standard,pro,enterprise" doc:"Only a platform administrator may change it."`
	Status   patch.Field[string]   `json:"status,omitzero" enum:"active,suspended,deleted" doc:"active or suspended; only a platform administrator may change it. To delete a tenant, use the delete operation."`
}

// Offences returns the errors in the sent members that their schemas cannot express, to report them
// with the schemas' errors. It also reports an unknown setting that is already stored: only the use
// case knows what is stored.
func (ch Change) Offences() []fault.Detail {
	var errs []error
	if ch.Name.Sent && strings.TrimSpace(ch.Name.Value) == "" {
		errs = append(errs, fault.Invalidf("/name", "must not be empty"))
	}
	if ch.Settings.Sent {
		errs = append(errs, Settings{}.merge(ch.Settings.Value).check(nil))
	}
	return fault.Offences(fault.Join(errs...))
}

// Filter narrows a list of tenants.
type Filter struct{ Skip, Limit int }

// Page is one page of tenants.
type Page struct {
	Tenants []Tenant `json:"tenants" nullable:"false" doc:"The tenants by id; without their usage."`
	Total   int64    `json:"total" doc:"Total number."`
}

// Deletion is the answer to a delete.
type Deletion struct {
	Message   string         `json:"message"`
	ID        scope.TenantID `json:"id"`
	DeletedAt time.Time      `json:"deleted_at"`
}

// Alert is an alert about a tenant.
type Alert struct {
	ID         int64      `json:"id" db:"id"`
	Type       string     `json:"type" db:"type" doc:"usage_limit: usage is close to a limit or has reached it. bouncer_disconnected: a bouncer has been silent for three of its poll intervals. bouncer_trouble: a bouncer cannot store its decision log, or its policy has not been confirmed for too long. domain_unresolved: a verified domain no longer leads to this deployment. domain_certificate: the certificate of a domain ends within 14 days. domain_certificate_order: no certificate could be ordered for a domain. audit_pipeline: the decision log lacks decisions of the tenant, or, in the tenant default, cannot be stored or waits for too long. disk_space, only in the tenant default: the disk is full or nearly full. deployment_certificate, only in the tenant default: the deployment's own certificate ends soon, has ended or has not begun, or its files have another that is not valid now."`
	Severity   string     `json:"severity" db:"severity" enum:"warning,error,critical" doc:"usage_limit: warning from 80 %, critical from 100 %. bouncer_disconnected, bouncer_trouble, domain_unresolved and domain_certificate_order: error. domain_certificate: warning."`
	Subject    string     `json:"subject" db:"subject" doc:"Subject of the alert. For usage_limit: policies, users or bouncers. For bouncers: the bouncer's id. For domains: the domain."`
	Message    string     `json:"message" db:"message"`
	CreatedAt  time.Time  `json:"created_at" db:"created_at"`
	ResolvedAt *time.Time `json:"resolved_at" db:"resolved_at" doc:"When its cause ended, such as when usage fell again; null while it lasts."`

	// Env is the environment that it concerns, for notifications; AnyEnv: the whole tenant. It is
	// not stored.
	Env scope.Env `json:"-" db:"-"`
}

// The two modes of an environment.
const (
	Shadow  = "shadow"
	Enforce = "enforce"
)

// Enforcement is the mode of one environment.
type Enforcement struct {
	Environment scope.Env  `json:"environment" db:"environment" enum:"sandbox,production"`
	Mode        string     `json:"mode" db:"mode" enum:"shadow,enforce" doc:"shadow records what would have been denied, enforce denies."`
	UpdatedAt   *time.Time `json:"updated_at" db:"updated_at" doc:"Null before the first change."`
	UpdatedBy   string     `json:"updated_by" db:"updated_by" doc:"Who changed it last."`
}

// ModeChange is the body of PUT /environments/{environment}/enforcement.
type ModeChange struct {
	Mode string `json:"mode" enum:"shadow,enforce" doc:"production accepts enforce only after sandbox."`
}

// validHostname reports whether s is a lower-case DNS name of at least one label.
func validHostname(s string) bool {
	return len(s) <= 253 && regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(s)
}

// checkDomain returns a domain in canonical form, or a 422 at pointer.
func checkDomain(pointer, s string) (string, error) {
	s = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s)), ".")
	if s != "" && !validHostname(s) {
		return "", fault.Invalidf(pointer, "is not a domain name")
	}
	return s, nil
}

// slug converts a name to a DNS label, short enough to append a number.
func slug(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range norm.NFKD.String(name) {
		switch r = unicode.ToLower(r); {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r): // the accent of the previous letter
		default:
			gap = true
		}
		if b.Len() >= 55 {
			break
		}
	}
	if b.Len() == 0 {
		return "tenant"
	}
	return b.String()
}

// numbered returns the n-th id to try for a name.
func numbered(base string, n int) scope.TenantID {
	if n == 1 {
		return scope.TenantID(base)
	}
	return scope.TenantID(fmt.Sprintf("%s-%d", base, n))
}

// reserved reports whether a label has a meaning below a base domain.
func reserved(id scope.TenantID) bool {
	switch id {
	case "www", "api", "admin", "system":
		return true
	}
	return false
}

// accessDenied returns the answer for a tenant that is not the caller's.
func accessDenied(id scope.TenantID) error {
	return fault.New(fault.Forbidden, "tenant_access_denied", "this credential has no access to the tenant").With("tenant_id", string(id))
}

func notFound(id scope.TenantID) error {
	return fault.New(fault.NotFound, "tenant_not_found", "there is no such tenant").With("tenant_id", string(id))
}

// decideChange applies ch to t, or returns why the caller may not.
func decideChange(sc scope.Scope, t Tenant, ch Change, now time.Time) (Tenant, error) {
	after := t
	after.UpdatedAt = now
	var errs []error
	if ch.Name.Sent {
		if after.Name = strings.TrimSpace(ch.Name.Value); after.Name == "" {
			errs = append(errs, fault.Invalidf("/name", "must not be empty"))
		}
	}
	if ch.Settings.Sent {
		after.Settings = t.Settings.merge(ch.Settings.Value)
		errs = append(errs, after.Settings.check(t.Settings))
		for _, name := range limitNames() {
			if !sc.Platform && !after.Settings.same(t.Settings, name) {
				errs = append(errs, fault.Invalidf("/settings/"+name, "only a platform administrator can change this"))
			}
		}
	}
	if ch.PlanType.Sent && ch.PlanType.Value != t.PlanType {
		if !sc.Platform || ch.PlanType.Null {
			errs = append(errs, fault.Invalidf("/plan_type", "only a platform administrator can change this"))
		}
		after.PlanType = ch.PlanType.Value
	}
	if ch.Status.Sent && ch.Status.Value != t.Status {
		var err error
		after, err = decideStatus(sc, after, ch.Status.Value)
		errs = append(errs, err)
	}
	return after, fault.Join(errs...)
}

// decideStatus changes between active and suspended, and from deleted back to active.
func decideStatus(sc scope.Scope, t Tenant, status string) (Tenant, error) {
	switch {
	case !sc.Platform:
		return t, fault.Invalidf("/status", "only a platform administrator can change this")
	case t.ID == scope.DefaultTenant:
		return t, fault.New(fault.Conflict, "default_tenant", "the default tenant is always active")
	case status != Active && status != Suspended:
		return t, fault.Invalidf("/status", "use DELETE to delete a tenant")
	}
	t.Status, t.ExpiresAt, t.DeletedAt = status, nil, nil
	return t, nil
}
