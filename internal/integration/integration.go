// Package integration connects gatehouse to systems of the tenant: its SIEM, stores of policy
// engines, and programs that the actions of controls call. An Integration says where such a system
// is. One replica at a time sends what waits for an integration, in order:
//
//	audit logs ────────────▶ place of a siem_forwarder ─┐
//	bundle of a bouncer ───▶ pushed, of a policy_engine ┤
//	action.Service ─▶ Queue ─▶ integration_messages ────┤
//	                       └─▶ integration_runs ◀─ Answer, of those that answer back
//	                                                    │ Forwarder: one lane an integration
//	                                                    ├─ accepted ─▶ the place moves on, the message goes
//	                                                    └─ else ─▶ the same again, later
//
// The logs are the queue of a SIEM: nothing is copied, and nothing is lost while the target is away
// or the server restarts. Entries that were sent are sent again if the result was not stored.
//
// A policy_engine gets no messages. Its store, a registry or a bucket, gets the bundle of a bouncer
// whenever its revision is not the one that was pushed last.
//
// A syslog server (RFC 5425) sends no answers. Each parcel has its own TLS connection, and is
// delivered once the server has closed that connection in order (outbound.SendStream).
package integration

import (
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/kafka"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// maxIntegrations is the largest number of integrations of a tenant.
	maxIntegrations = 50
	// maxSettings is the largest size of an integration's settings, in bytes of JSON.
	maxSettings = 16 << 10
)

// The kinds of integrations.
const (
	Webhook  = "webhook"
	SIEM     = "siem_forwarder"
	Workflow = "workflow"
	Approval = "approval_queue"
	// PolicyEngine is a store from which a policy engine fetches its bundle.
	PolicyEngine = "policy_engine"
	// BreakGlass is a system that opens grants in emergencies.
	BreakGlass = "break_glass_bridge"
)

// Integration is a system of the tenant that is called.
type Integration struct {
	ID            int64           `json:"id" db:"id" doc:"Identifier."`
	Name          string          `json:"name" db:"name" doc:"Name, unique." example:"siem"`
	Kind          string          `json:"kind" db:"kind" enum:"webhook,workflow,approval_queue,policy_engine,break_glass_bridge,siem_forwarder" doc:"webhook: actions of controls post their decision. workflow: actions start it, and it answers back. approval_queue: decides requests for access. policy_engine: a registry or bucket that gets the bundle of a bouncer. break_glass_bridge: opens grants in emergencies. siem_forwarder: gets both audit logs."`
	Endpoint      string          `json:"endpoint" db:"endpoint" doc:"Address of the system." example:"https://siem.example.com/ingest"`
	Environment   scope.Env       `json:"environment" db:"environment" enum:",sandbox,production" doc:"Only this environment; empty: both."`
	Settings      map[string]any  `json:"settings" db:"settings" doc:"Settings of the kind; GET /integrations/kinds lists them."`
	CredentialSet bool            `json:"credential_set" db:"-" doc:"Whether a credential is stored. It is never returned."`
	Enabled       bool            `json:"enabled" db:"enabled" doc:"Whether gatehouse sends anything to it. Waiting entries and messages are sent once it is enabled again."`
	Failures      int64           `json:"consecutive_failures" db:"failures" doc:"Number of failed attempts since the last success."`
	LastError     string          `json:"last_error" db:"last_error" doc:"Why the last attempt failed; empty if it did not."`
	LastSuccessAt *time.Time      `json:"last_success_at" db:"last_success_at" doc:"When the system last accepted something; null: never."`
	LastFailureAt *time.Time      `json:"last_failure_at" db:"last_failure_at" doc:"When an attempt last failed; null: never."`
	NextAttemptAt *time.Time      `json:"next_attempt_at" db:"next_at" doc:"When it is tried again after a failure; null: the last attempt did not fail."`
	Pushed        *Pushed         `json:"pushed" db:"pushed" doc:"The bundle that the store of a policy_engine has; null: none was pushed to this address, or it is of another kind."`
	Place         *tail.Place     `json:"-" db:"place"`
	Looked        *storeRevisions `json:"-" db:"looked"`
	CreatedBy     string          `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt     time.Time       `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt     time.Time       `json:"updated_at" db:"updated_at" doc:"When it was last changed."`

	// ChangeNo is the ETag. Only changes by people increase it.
	ChangeNo int64 `json:"-" db:"change_no"`
	// Credential is encrypted.
	Credential []byte `json:"-" db:"credential"`
}

// Draft is the input of Create.
type Draft struct {
	Name        string         `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"siem"`
	Kind        string         `json:"kind" enum:"webhook,workflow,approval_queue,policy_engine,break_glass_bridge,siem_forwarder" doc:"webhook: actions of controls post their decision. workflow: actions start it, and it answers back. approval_queue: decides requests for access. policy_engine: a registry or bucket that gets the bundle of a bouncer. break_glass_bridge: opens grants in emergencies. siem_forwarder: gets both audit logs."`
	Endpoint    string         `json:"endpoint" minLength:"1" maxLength:"2000" doc:"Address of the system: an https URL, or http to an address that the operator allows; for a siem_forwarder also syslog+tls://host:port or kafka+tls://host:port,host:port; for a policy_engine oci://registry/repository:tag or s3://host/bucket/key. No internal network." example:"https://siem.example.com/ingest"`
	Environment scope.Env      `json:"environment,omitempty" enum:",sandbox,production" doc:"Only this environment; absent: both, or for a policy_engine that of its bouncer."`
	Settings    map[string]any `json:"settings,omitempty" doc:"Settings of the kind; GET /integrations/kinds lists them."`
	Credential  any            `json:"credential,omitempty" writeOnly:"true" doc:"An object with the secrets of the kind, or a string for its main secret. It is stored encrypted and never returned."`
	Enabled     *bool          `json:"enabled,omitempty" doc:"Whether gatehouse sends anything to it; true by default."`
}

// Change is the input of Update. Only the members that are sent change.
type Change struct {
	Name       *string                     `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	Endpoint   *string                     `json:"endpoint,omitempty" minLength:"1" maxLength:"2000" doc:"Address of the system. A change to another host needs the credential again: the stored one is sent only to the host that it was given for."`
	Settings   patch.Field[map[string]any] `json:"settings,omitzero" doc:"Settings of the kind; replaces all of them."`
	Credential any                         `json:"credential,omitempty" writeOnly:"true" doc:"Replaces the credential: an object with the secrets of the kind, or a string for its main secret; an empty object removes it."`
	Enabled    *bool                       `json:"enabled,omitempty" doc:"Whether gatehouse sends anything to it."`
}

// Page is one page of the integrations, sorted by id.
type Page struct {
	Integrations []Integration `json:"integrations" doc:"The page, sorted by id."`
	Total        int64         `json:"total" doc:"How many there are."`
}

// TestResult is the result of a test.
type TestResult struct {
	Delivered    bool   `json:"delivered" doc:"Whether the system accepted it."`
	ResponseCode int    `json:"response_code" doc:"HTTP status; 0: the system could not be reached, or it is a syslog server or Kafka, which have no status."`
	DurationMS   int64  `json:"duration_ms" doc:"Duration in milliseconds."`
	Error        string `json:"error" doc:"Why it failed; empty if it did not."`
}

// Kind describes integrations of one kind, for forms.
type Kind struct {
	Kind        string           `json:"kind" enum:"webhook,workflow,approval_queue,policy_engine,break_glass_bridge,siem_forwarder" doc:"Kind of integration."`
	Settings    []format.Setting `json:"settings" doc:"Settings."`
	Credentials [][]string       `json:"credentials" doc:"The sets of members that a credential may have. An empty set: it may be absent."`
}

// Kinds returns the descriptions of all kinds of integrations.
func Kinds() []Kind {
	var out []Kind
	for _, t := range types() {
		out = append(out, Kind{t.Name, t.Describe().Settings, t.Credentials})
	}
	return out
}

// The members of settings.
const (
	settingScheme  = "auth_scheme"
	settingFormat  = "format"
	settingCAs     = "ca_certificates"
	settingConfirm = "confirmation"
	settingStart   = "start"
	settingWithin  = "answer_within"
	settingAsks    = "access_requests"
	settingLongest = "longest_grant"
	asksAll        = "send"
	asksNone       = "ignore"
	startNow       = "now"
	startOldest    = "oldest"

	settingTopic     = "topic"
	settingMechanism = "sasl_mechanism"
	settingBouncer   = "bouncer_id"
	settingRegion    = "region"
)

// The members of a credential with a TLS client certificate, in PEM.
const (
	clientCertificate = "client_certificate"
	clientKey         = "client_key"
)

func types() []format.Type {
	return []format.Type{
		{
			Name: Webhook, Secrets: []string{format.HMACSecret}, Credentials: [][]string{{format.HMACSecret}},
		},
		{
			Name: Workflow, Secrets: []string{format.HMACSecret}, Credentials: [][]string{{format.HMACSecret}},
			Settings: []format.Setting{{Name: settingWithin, Kind: "choice", Values: durationNames(answerTimes)}},
		},
		{
			Name: Approval, Secrets: []string{format.HMACSecret}, Credentials: [][]string{{format.HMACSecret}},
			Settings: []format.Setting{
				{Name: settingWithin, Kind: "choice", Values: durationNames(answerTimes)},
				{Name: settingAsks, Kind: "choice", Values: []string{asksAll, asksNone}},
				{Name: settingLongest, Kind: "choice", Values: durationNames(grantTimes)},
			},
		},
		{
			Name: BreakGlass, Secrets: []string{format.HMACSecret}, Credentials: [][]string{{format.HMACSecret}},
			Settings: []format.Setting{{Name: settingLongest, Kind: "choice", Values: durationNames(glassTimes)}},
		},
		{
			Name: PolicyEngine, Secrets: []string{format.BearerToken, format.Username, format.Password, accessKey, secretKey, sessionToken},
			Settings: []format.Setting{
				{Name: settingBouncer, Kind: "text", Required: true},
				{Name: settingRegion, Kind: "text"},
			},
			Credentials: [][]string{{}, {format.Username, format.Password}, {format.BearerToken}, {accessKey, secretKey}, {accessKey, secretKey, sessionToken}},
		},
		{
			Name: SIEM, Secrets: []string{format.BearerToken, format.HMACSecret, clientCertificate, clientKey, format.Username, format.Password},
			Settings: []format.Setting{
				{Name: settingStart, Kind: "choice", Values: []string{startNow, startOldest}},
				{Name: settingScheme, Kind: "text", Values: nil},
				{Name: settingFormat, Kind: "choice", Values: []string{formatJSON, formatCEF, formatSyslog}},
				{Name: settingCAs, Kind: "list"},
				{Name: settingConfirm, Kind: "choice", Values: []string{confirmNotify, confirmClose}},
				{Name: settingTopic, Kind: "text"},
				{Name: settingMechanism, Kind: "choice", Values: []string{kafka.ScramSHA512, kafka.ScramSHA256, kafka.Plain}},
			},
			Credentials: [][]string{{}, {format.BearerToken}, {format.HMACSecret}, {format.BearerToken, format.HMACSecret}, {format.Username, format.Password}, {clientCertificate, clientKey}, {clientCertificate, clientKey, format.Username, format.Password}},
		},
	}
}

func typeOf(kind string) (format.Type, bool) {
	all := types()
	i := slices.IndexFunc(all, func(t format.Type) bool { return t.Name == kind })
	if i < 0 {
		return format.Type{}, false
	}
	return all[i], true
}
