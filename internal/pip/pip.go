// Package pip keeps a tenant's data sources (policy information points, PIPs) and the data that
// they returned. Controls read it as data.pip.<connection>.
//
//	next_at ─▶ Syncer: one lane a connection ─▶ source.Fetch
//	                 │ data ───▶ pip_data, revision of both environments ─▶ snapshots, bundles
//	                 └ failure ▶ the last good data stays, marked stale; tried again
//
// A sync replaces the whole document and increases the revisions in one transaction: if the
// process is killed during a sync, the last good document stays.
package pip

import (
	"strings"
	"time"
	"unicode"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
)

const (
	// maxConnections is how many connections a tenant may have.
	maxConnections = 50
	// maxData is how large the data of all connections of a tenant may be together, in bytes of JSON.
	maxData = 32 << 20
	// keptSyncs is how many syncs of a connection are kept.
	keptSyncs = 100
)

// The states of a connection. The doc tags of Connection explain them.
const (
	Pending  = "pending"
	Active   = "active"
	Failing  = "error"
	Disabled = "disabled"
)

// The health of a connection. The doc tags of Connection explain it.
const (
	Unknown   = "unknown"
	Healthy   = "healthy"
	Stale     = "stale"
	Unhealthy = "unhealthy"
)

// Connection is a data source.
type Connection struct {
	ID             int64         `json:"id" db:"id" doc:"Identifier."`
	Name           string        `json:"name" db:"name" doc:"Name, unique. Controls read its data as data.pip.<name>." example:"hr"`
	Provider       string        `json:"provider" db:"provider" enum:"http_json,scim,s3,sql,ldap,git" doc:"Kind of source."`
	ConnectionType string        `json:"connection_type" db:"connection_type" doc:"Your word for the kind of data." example:"identity"`
	Status         string        `json:"status" db:"-" enum:"pending,active,error,disabled" doc:"pending: no sync has ended yet. active, error: how the last one ended. disabled: it is synced only on request."`
	HealthStatus   string        `json:"health_status" db:"-" enum:"unknown,healthy,stale,unhealthy" doc:"healthy: the last sync succeeded. stale: it failed, and the data of an earlier one is used. unhealthy: it failed, and there is no data. unknown: no sync has ended yet."`
	LastSync       *time.Time    `json:"last_sync" db:"last_sync_at" doc:"When its data was last read, or confirmed to be unchanged; null: never."`
	DataAge        *int64        `json:"data_age_seconds" db:"-" doc:"Seconds since last_sync; null: there is no data."`
	RecordsSynced  int64         `json:"records_synced" db:"records" doc:"Number of records in its data."`
	DataBytes      int64         `json:"data_bytes" db:"data_bytes" doc:"Size of its data as JSON."`
	SyncEnabled    bool          `json:"sync_enabled" db:"sync_enabled" doc:"Whether it is synced on its schedule."`
	SyncFrequency  string        `json:"sync_frequency" db:"sync_frequency" enum:"manual,every_5_minutes,every_15_minutes,hourly,every_6_hours,daily,weekly" doc:"How often it is synced. manual: only on request."`
	NextSync       *time.Time    `json:"next_sync" db:"next_at" doc:"When it is synced next; null: only on request."`
	LastAttempt    *time.Time    `json:"last_attempt" db:"last_attempt_at" doc:"When the last sync ended; null: never."`
	LastError      *string       `json:"last_error" db:"last_error" doc:"Why the last sync failed; null: it succeeded, or there was none."`
	Configuration  source.Config `json:"configuration" db:"configuration" doc:"What to read, and how to convert it."`
	CredentialsSet bool          `json:"credentials_set" db:"-" doc:"Whether credentials are stored. They are never returned."`
	CreatedBy      string        `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt      time.Time     `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt      time.Time     `json:"updated_at" db:"updated_at" doc:"When it was last changed by a person."`

	// ChangeNo is the ETag. Changes by people increase it; syncs do not.
	ChangeNo int64 `json:"-" db:"change_no"`
	// Credentials are sealed by Service.Box; empty: none.
	Credentials []byte `json:"-" db:"credentials"`
	// Failures is how many syncs in a row failed.
	Failures int `json:"-" db:"failures"`
}

// Draft is the body of a create.
type Draft struct {
	Name           string             `json:"name" minLength:"1" maxLength:"100" doc:"Name, unique ignoring case. Controls read the data as data.pip.<name>, or as data.pip[\"a b\"] if the name is not an identifier. It must not begin with _." example:"hr"`
	Provider       string             `json:"provider" enum:"http_json,scim,s3,sql,ldap,git" doc:"Kind of source."`
	ConnectionType string             `json:"connection_type,omitempty" maxLength:"100" doc:"Your word for the kind of data." example:"identity"`
	Configuration  source.Config      `json:"configuration" doc:"What to read, and how to convert it; docs/data-sources.md explains it."`
	Credentials    source.Credentials `json:"credentials,omitzero" writeOnly:"true" doc:"How to sign in at the source. They are stored encrypted and never returned."`
	SyncEnabled    *bool              `json:"sync_enabled,omitempty" doc:"Whether it is synced on its schedule, starting at once; true by default."`
	SyncFrequency  string             `json:"sync_frequency,omitempty" enum:"manual,every_5_minutes,every_15_minutes,hourly,every_6_hours,daily,weekly" doc:"How often it is synced; hourly by default."`
}

// Change is the body of an update: members that are sent change, the others stay.
type Change struct {
	Name           *string                         `json:"name,omitempty" minLength:"1" maxLength:"100" doc:"Name, unique ignoring case. Controls must use the new name."`
	ConnectionType patch.Field[string]             `json:"connection_type,omitzero" maxLength:"100" doc:"Kind of data."`
	Configuration  *source.Config                  `json:"configuration,omitempty" doc:"Replaces the whole configuration. A change to another host needs credentials again: the stored ones are sent only to the host that they were given for."`
	Credentials    patch.Field[source.Credentials] `json:"credentials,omitzero" writeOnly:"true" doc:"Replaces all credentials; null removes them."`
	SyncEnabled    *bool                           `json:"sync_enabled,omitempty" doc:"Whether it is synced on its schedule."`
	SyncFrequency  *string                         `json:"sync_frequency,omitempty" enum:"manual,every_5_minutes,every_15_minutes,hourly,every_6_hours,daily,weekly" doc:"How often it is synced."`
}

// Filter narrows a list.
type Filter struct {
	// Provider, Type and Health select connections with that value; empty: all.
	Provider, Type, Health string
	Skip, Limit            int64
}

// Page is one page of the connections, sorted by id.
type Page struct {
	Connections []Connection `json:"connections" doc:"The page, sorted by id."`
	Total       int64        `json:"total" doc:"Number of data sources that match the filters."`
}

// interval returns the time between two scheduled syncs; 0: there are none.
func interval(frequency string) time.Duration {
	return map[string]time.Duration{
		"every_5_minutes": 5 * time.Minute, "every_15_minutes": 15 * time.Minute, "hourly": time.Hour,
		"every_6_hours": 6 * time.Hour, "daily": 24 * time.Hour, "weekly": 7 * 24 * time.Hour,
	}[frequency]
}

// scheduled reports whether the connection is synced on a schedule.
func (c Connection) scheduled() bool { return c.SyncEnabled && interval(c.SyncFrequency) > 0 }

// connection returns the connection that a draft describes, with defaults, without credentials.
func (d Draft) connection() Connection {
	c := Connection{
		Name: strings.TrimSpace(d.Name), Provider: d.Provider, ConnectionType: strings.TrimSpace(d.ConnectionType), Configuration: d.Configuration,
		SyncEnabled: d.SyncEnabled == nil || *d.SyncEnabled, SyncFrequency: d.SyncFrequency, ChangeNo: 1, Credentials: []byte{},
	}
	if c.SyncFrequency == "" {
		c.SyncFrequency = "hourly"
	}
	return c
}

// apply returns the connection with a change made. It leaves the credentials alone.
func (c Connection) apply(ch Change) Connection {
	if ch.Name != nil {
		c.Name = strings.TrimSpace(*ch.Name)
	}
	ch.ConnectionType.Apply(&c.ConnectionType)
	c.ConnectionType = strings.TrimSpace(c.ConnectionType)
	patch.Assign(&c.Configuration, ch.Configuration)
	patch.Assign(&c.SyncEnabled, ch.SyncEnabled)
	patch.Assign(&c.SyncFrequency, ch.SyncFrequency)
	return c
}

// withComputed fills in the members that are computed from the others at a time.
func (c Connection) withComputed(now time.Time) Connection {
	c.CredentialsSet = len(c.Credentials) > 0
	if c.LastSync != nil {
		age := int64(max(0, now.Sub(*c.LastSync)) / time.Second)
		c.DataAge = &age
	}
	switch {
	case c.LastAttempt == nil:
		c.Status, c.HealthStatus = Pending, Unknown
	case c.LastError == nil:
		c.Status, c.HealthStatus = Active, Healthy
	case c.LastSync != nil:
		c.Status, c.HealthStatus = Failing, Stale
	default:
		c.Status, c.HealthStatus = Failing, Unhealthy
	}
	if !c.SyncEnabled {
		c.Status = Disabled
	}
	return c
}

// checkName refuses empty names, names that gatehouse reserves, and characters that do not print.
func checkName(name string) []fault.Detail {
	wrong := func(message string) []fault.Detail { return []fault.Detail{{Pointer: "/name", Message: message}} }
	switch {
	case name == "":
		return wrong("a connection needs a name")
	case strings.HasPrefix(name, "_"):
		return wrong("must not begin with _: gatehouse uses such names itself, as in data.pip._meta")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return wrong("must have printable characters and spaces only")
	}
	return nil
}
