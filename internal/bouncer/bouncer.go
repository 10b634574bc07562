// Package bouncer is the registry of enforcement points: their records, their one-time tokens, and
// what the bridge reports about each (heartbeat, bundle, the delivery of each control).
//
//	POST /bouncers ─► record + token (shown once; only its digest is stored)
//	                      │ Authorization: Bearer
//	                      ▼
//	bridge: ByToken ─► Publish ─► RecordSent ─► RecordActivation | RecordRefusal
//	        RecordHeartbeat, SetStatus    (sync rows: pending, in_progress, synced, failed)
//
// The functions for package bridge take the caller's transaction, so that one transaction can write
// everything that belongs together. None of them takes the lock "controls". A rotation of a token
// or a deletion increments the revision Topic of the tenant: watch it to end waiting polls.
package bouncer

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Topic is a revision that increments with every change of a bouncer. If its bundle may change, the
// revision of its environment's controls increments too.
const Topic = tenant.BouncerRevision

// The states of a bouncer.
const (
	Connected    = "connected"
	Degraded     = "degraded"
	Disconnected = "disconnected"
)

// Bouncer is one enforcement point.
type Bouncer struct {
	ID            int64          `json:"id" db:"id" doc:"Identifier, unique across both environments." example:"42"`
	Name          string         `json:"name" db:"name" doc:"Name, unique in its environment." example:"edge-1"`
	Hostname      string         `json:"hostname" db:"hostname" doc:"Host that it runs on." example:"edge-1.example.com"`
	Port          int            `json:"port" db:"port" doc:"Port that it listens on; 0 when unknown."`
	Environment   scope.Env      `json:"environment" db:"environment" enum:"sandbox,production" doc:"Environment whose controls it enforces."`
	TargetApp     string         `json:"target_app" db:"target_app" doc:"host:port of the application behind it." example:"app:8080"`
	Configuration map[string]any `json:"configuration" db:"configuration" doc:"cache_enabled, cache_ttl, enforcement_mode, default_action, max_stale, signing, identity and the other settings of a bouncer; members that begin with x- are free for your own use."`
	ResourceIDs   []int64        `json:"resource_ids" db:"resource_ids" doc:"Resources that it protects, besides those of the controls that name it. Resources that it discovers are added."`
	// Reported by the bridge.
	Status            string     `json:"status" db:"status" enum:"connected,degraded,disconnected" doc:"The state that the bridge sees."`
	StatusDetail      string     `json:"status_detail,omitempty" db:"status_detail" doc:"Why it is degraded."`
	LastHeartbeat     *time.Time `json:"last_heartbeat" db:"last_heartbeat" doc:"When it was last seen; null if never."`
	Version           string     `json:"version" db:"version" doc:"Version of its program."`
	PoliciesSynced    int64      `json:"policies_synced" db:"policies_synced" doc:"Number of controls in the bundle that it runs."`
	RequestsPerSecond float64    `json:"requests_per_second" db:"requests_per_second" doc:"Its load."`
	CacheHitRate      float64    `json:"cache_hit_rate" db:"cache_hit_rate" doc:"Share of requests answered from its decision cache, 0 to 1."`
	CreatedAt         time.Time  `json:"created_at" db:"created_at" doc:"When it was registered."`
	UpdatedAt         time.Time  `json:"updated_at" db:"updated_at" doc:"When a user last changed it."`

	TargetAppReachable bool      `json:"-" db:"target_app_reachable"`
	PolicyCacheSize    int64     `json:"-" db:"policy_cache_size"`
	DecisionCacheSize  int64     `json:"-" db:"decision_cache_size"`
	TokenDigest        string    `json:"-" db:"token_digest"`
	TokenIssuedAt      time.Time `json:"-" db:"token_issued_at"`
	// ChangeNo is the ETag: it increments with changes by people, not with heartbeats.
	ChangeNo int64 `json:"-" db:"change_no"`
	// CredentialsNo increments with each change of its credentials; 0: it never had any.
	CredentialsNo int64 `json:"-" db:"credentials_no"`
}

// Issued is a bouncer with its token, which is shown only once.
type Issued struct {
	Bouncer
	Token string `json:"token" doc:"The bouncer's token; shown once, stored as a hash."`
	// OPAConfig is the boot configuration, including the token.
	OPAConfig string `json:"opa_config" doc:"Boot configuration for a stock OPA, including this token (YAML)."`
	// VerifyKey is the public key that checks signed bundles.
	VerifyKey string `json:"verify_key,omitempty" doc:"Public key (PEM) that verifies its bundles, when configuration.signing is signed. A gatehouse bouncer takes it as GATEHOUSE_BOUNCER_VERIFY_KEY; opa_config contains it."`
}

// Draft is the input of a create.
type Draft struct {
	Name          string         `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique in its environment." example:"edge-1"`
	Hostname      string         `json:"hostname" minLength:"1" maxLength:"253" doc:"Host that it runs on." example:"edge-1.example.com"`
	Port          int            `json:"port" minimum:"1" maximum:"65535" doc:"Port that it listens on." example:"8443"`
	Environment   scope.Env      `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment; sandbox by default."`
	TargetApp     string         `json:"target_app,omitempty" maxLength:"260" doc:"host:port of the application behind it."`
	Configuration map[string]any `json:"configuration,omitempty" doc:"The members are checked. An unknown member is a 422 that names the closest known one; members that begin with x- are free for your own use."`
	ResourceIDs   []int64        `json:"resource_ids,omitempty" maxItems:"1000" doc:"Resources of the same environment that it protects."`
}

// Change is the input of an update: the members sent change, the others stay.
type Change struct {
	Name          *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique in its environment."`
	Hostname      *string                     `json:"hostname,omitempty" minLength:"1" maxLength:"253" doc:"Host that it runs on."`
	Port          *int                        `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"Port that it listens on."`
	Environment   *scope.Env                  `json:"environment,omitempty" enum:"sandbox,production" doc:"Must be the bouncer's own environment: a bouncer does not move."`
	TargetApp     patch.Field[string]         `json:"target_app,omitzero" maxLength:"260" doc:"host:port of the application behind it."`
	Configuration patch.Field[map[string]any] `json:"configuration,omitzero" doc:"Replaces the configuration as a whole. An unknown member is a 422, unless it is already stored with this value; members that begin with x- are free for your own use."`
	ResourceIDs   patch.Field[[]int64]        `json:"resource_ids,omitzero" maxItems:"1000" doc:"Resources of the same environment; replaces the complete list."`
}

// Filter selects bouncers. The environment comes from the scope.
type Filter struct {
	// Status is one of the three states, or empty.
	Status      string
	Skip, Limit int64
}

// Page is one page of a list, by id.
type Page struct {
	Bouncers []Bouncer `json:"bouncers" doc:"The page, sorted by id."`
	Total    int64     `json:"total" doc:"Number that match the filters."`
}

// Health is the health of a bouncer.
type Health struct {
	BouncerID          int64       `json:"bouncer_id" doc:"The bouncer."`
	Status             string      `json:"status" enum:"connected,degraded,disconnected" doc:"The state that the bridge sees."`
	StatusDetail       string      `json:"status_detail,omitempty" doc:"Why it is degraded."`
	LastHeartbeat      *time.Time  `json:"last_heartbeat" doc:"When it was last seen; null if never."`
	BridgeConnected    bool        `json:"policy-bridge_connected" doc:"Whether it is in touch with the bridge."`
	TargetAppReachable bool        `json:"target_app_reachable" doc:"Whether its last attempt to reach its application succeeded. False for a bouncer that is gone, and for one that never tries, such as a stock OPA."`
	PoliciesLoaded     int64       `json:"policies_loaded" doc:"Number of controls in the bundle that it runs."`
	Cache              CacheStatus `json:"cache_status" doc:"Its caches."`
}

// CacheStatus is the state of a bouncer's caches.
type CacheStatus struct {
	PolicyCacheSize   int64   `json:"policy_cache_size" doc:"Cached prepared controls."`
	DecisionCacheSize int64   `json:"decision_cache_size" doc:"Cached decisions."`
	HitRate           float64 `json:"hit_rate" doc:"Share of decisions answered from the decision cache, 0 to 1."`
}

// The states of a delivery. A control that a bouncer runs is enabled there, as
// sync views call it; a bouncer that runs all of its bundle is synced.
const (
	Pending    = "pending"
	InProgress = "in_progress"
	Enabled    = "enabled"
	Synced     = "synced"
	Failed     = "failed"
)

// Sync is the delivery of one control to one bouncer.
type Sync struct {
	BouncerID int64      `json:"-" db:"bouncer_id"`
	PolicyID  int64      `json:"policy_id" db:"policy_id" doc:"The control."`
	Version   int64      `json:"version" db:"version" doc:"Its version in the bundle."`
	Revision  int64      `json:"-" db:"revision"`
	Status    string     `json:"status" db:"status" enum:"pending,in_progress,enabled,failed" doc:"State of the delivery; enabled: the bouncer uses this control."`
	StartedAt time.Time  `json:"-" db:"started_at"`
	SyncedAt  *time.Time `json:"synced_at" db:"synced_at" doc:"When the bouncer loaded it; null before that."`
	Error     string     `json:"error,omitempty" db:"error" doc:"Why the bouncer refused it."`
	File      string     `json:"file,omitempty" db:"file" doc:"File in the bundle that it refused."`
	Line      int        `json:"line,omitempty" db:"line" doc:"Line in that file."`
}

// SyncStatus is the answer to GET /peps/{pep_id}/sync-status.
type SyncStatus struct {
	PepID        int64      `json:"pep_id" doc:"The bouncer."`
	Status       string     `json:"status" enum:"pending,in_progress,synced,failed" doc:"failed: the bouncer refused a control. in_progress: a control is on its way. pending: no bundle yet. synced: none of these."`
	LastSyncTime *time.Time `json:"last_sync_time" doc:"When it last fetched a bundle; null before the first."`
	Policies     []Sync     `json:"policies" doc:"One entry for each control of its bundle, sorted by id."`
	Revision     int64      `json:"revision" doc:"The revision it runs; 0 before the first."`
}

// Bundle is the bundle that a bouncer should run, and the one that it runs.
type Bundle struct {
	BouncerID   int64      `db:"bouncer_id"`
	Revision    int64      `db:"revision"`
	ContentHash string     `db:"content_hash"`
	PublishedAt time.Time  `db:"published_at"`
	Active      int64      `db:"active_revision"` // 0: none yet
	ActivatedAt *time.Time `db:"activated_at"`
	Refused     int64      `db:"refused_revision"` // 0: none; not to be sent again
	Errors      []Refusal  `db:"refused_errors"`
}

// Refusal is one error with which a bouncer refused a bundle. PolicyID 0 is the bundle as a whole.
type Refusal struct {
	PolicyID int64  `json:"policy_id,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Message  string `json:"message"`
}

// Figures is what a bouncer reports with a heartbeat; nil members do not change.
type Figures struct {
	Version            *string
	RequestsPerSecond  *float64
	CacheHitRate       *float64
	TargetAppReachable *bool
	PolicyCacheSize    *int64
	DecisionCacheSize  *int64
}

// SyncHealth is the bridge's part of /health/policy-bridge for one tenant.
type SyncHealth struct {
	InProgress int64      `db:"in_progress"`
	Stuck      int64      `db:"stuck"`
	LastSync   *time.Time `db:"last_sync"`
}

// Offences returns the errors in a draft that its schema cannot express, to report them with the
// schema's errors.
func (d Draft) Offences() []fault.Detail {
	_, offences := d.bouncer().normal()
	return append(offences, unknownMembers(d.Configuration, nil)...)
}

// bouncer returns the bouncer that the draft would create.
func (d Draft) bouncer() Bouncer {
	return Bouncer{
		Name: d.Name, Hostname: d.Hostname, Port: d.Port, TargetApp: d.TargetApp,
		Configuration: d.Configuration, ResourceIDs: d.ResourceIDs, Status: Disconnected, ChangeNo: 1,
	}
}

// Offences returns the errors in the sent members that their schemas cannot express, to report them
// with the schemas' errors. It also reports an unknown member of the configuration that is already
// stored: only the use case knows what is stored.
func (c Change) Offences() []fault.Detail {
	_, offences := Bouncer{Name: "any"}.apply(c).normal()
	return append(offences, unknownMembers(c.Configuration.Value, nil)...)
}

func (b Bouncer) apply(c Change) Bouncer {
	patch.Assign(&b.Name, c.Name)
	patch.Assign(&b.Hostname, c.Hostname)
	patch.Assign(&b.Port, c.Port)
	c.TargetApp.Apply(&b.TargetApp)
	c.Configuration.Apply(&b.Configuration)
	c.ResourceIDs.Apply(&b.ResourceIDs)
	return b
}

func (b Bouncer) health() Health {
	return Health{
		BouncerID: b.ID, Status: b.Status, StatusDetail: b.StatusDetail, LastHeartbeat: b.LastHeartbeat,
		BridgeConnected: b.Status != Disconnected, TargetAppReachable: b.TargetAppReachable && b.Status != Disconnected, PoliciesLoaded: b.PoliciesSynced,
		Cache: CacheStatus{PolicyCacheSize: b.PolicyCacheSize, DecisionCacheSize: b.DecisionCacheSize, HitRate: b.CacheHitRate},
	}
}
