// Package telemetry sends reports of use to the license server that a tenant's
// administrators name, and asks that server what the tenant's license allows.
//
//	                     every period, or SendNow
//	counts of decisions ──────────────────────────▶ telemetry_transmissions
//	                                                     │ one attempt at a time
//	                                                     ├─ 2xx ──▶ success
//	                                                     └─ else ─▶ failed, tried again 5 min … 6 h later
//
// Wake-ups are durable jobs, and all state is in rows. So all replicas together send a report once:
// the transaction that advances the schedule inserts the row of the period, and an attempt first
// claims its row. A report is sent twice only if a process dies after it sent the report and before
// it recorded that. The second report has the same Idempotency-Key.
//
// Without a configuration, nothing is sent, and nothing needs a license.
package telemetry

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Service has the use cases of telemetry and the license.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// NewID returns a new Idempotency-Key.
	NewID func() string
	// Box seals the API keys.
	Box *secret.Box
	// Target calls the license servers. It refuses addresses that the operator does not allow.
	Target *outbound.Client
	// Totals adds up the decisions in the scope's environment, from the day of from to the day of to,
	// both included.
	Totals func(ctx context.Context, sc scope.Scope, from, to time.Time) (stats.Rollup, error)
	// Active reports whether a tenant is in service.
	Active func(ctx context.Context, t scope.TenantID) (bool, error)
	// Health returns the state of the deployment: healthy, degraded or unhealthy.
	Health func(ctx context.Context) string
	// Version is the version of the build.
	Version string

	asking singleflight.Group
}

// The defaults of a configuration.
const (
	defaultRetention = 90
	communityTier    = "community"
)

// changes is the lock that is held while the configuration, the license or the schedule changes.
const changes = "telemetry"

// Config is the configuration as people see it.
type Config struct {
	URL                  string     `json:"business_admin_url" doc:"Base URL of the license server; empty: none." example:"https://license.example.com"`
	APIKeyConfigured     bool       `json:"api_key_configured" doc:"Whether an API key is stored. It is never returned."`
	Enabled              bool       `json:"enabled" doc:"Whether reports are sent."`
	Frequency            string     `json:"frequency" enum:"twice_monthly,weekly,monthly,daily" doc:"When reports are sent, at midnight UTC: twice_monthly on the 1st and 15th, weekly on Mondays, monthly on the 1st, daily every day."`
	EncryptionEnabled    bool       `json:"encryption_enabled" doc:"Whether reports are encrypted (HPKE, RFC 9180) to the key that the license server publishes, in addition to TLS."`
	AnonymizationEnabled bool       `json:"anonymization_enabled" doc:"Whether a random alias replaces the customer id in reports. The license server still knows the API key."`
	LocalRetentionDays   int64      `json:"local_retention_days" doc:"How many days the transmission history is kept."`
	LastTransmissionAt   *time.Time `json:"last_transmission_at" doc:"When a report last arrived; null: never."`
	NextScheduledAt      *time.Time `json:"next_scheduled_at" doc:"When the next report is due; null while disabled."`
	UpdatedAt            time.Time  `json:"updated_at" doc:"When a person last changed the configuration."`

	// ChangeNo is the ETag. Changes by people increase it; transmissions do not.
	ChangeNo int64 `json:"-"`
}

// state is the stored row: the configuration, the schedule, and the license.
type state struct {
	URL           string     `db:"url"`
	APIKey        []byte     `db:"api_key"` // sealed
	Enabled       bool       `db:"enabled"`
	Frequency     string     `db:"frequency"`
	Encryption    bool       `db:"encryption"`
	Anonymization bool       `db:"anonymization"`
	RetentionDays int64      `db:"retention_days"`
	Alias         string     `db:"alias"`
	PeriodStart   *time.Time `db:"period_start"`
	NextAt        *time.Time `db:"next_at"`
	LastSentAt    *time.Time `db:"last_sent_at"`
	UpdatedAt     time.Time  `db:"updated_at"`
	ChangeNo      int64      `db:"change_no"`

	AttemptedAt *time.Time `db:"attempted_at"`
	VerifiedAt  *time.Time `db:"verified_at"`
	Failure     string     `db:"failure"`
	KeyRefused  bool       `db:"key_refused"`
	License     License    `db:"license"`
	ServerKey   string     `db:"server_key"`
}

func (st state) config() Config {
	return Config{
		URL: st.URL, APIKeyConfigured: len(st.APIKey) > 0, Enabled: st.Enabled, Frequency: st.Frequency, EncryptionEnabled: st.Encryption,
		AnonymizationEnabled: st.Anonymization, LocalRetentionDays: st.RetentionDays, LastTransmissionAt: st.LastSentAt,
		NextScheduledAt: st.NextAt, UpdatedAt: st.UpdatedAt, ChangeNo: st.ChangeNo,
	}
}

// connected reports whether the last call to the license server succeeded.
func (st state) connected() bool { return st.URL != "" && st.AttemptedAt != nil && st.Failure == "" }

// find returns the state of a tenant. Fault: NotFound if telemetry is not configured.
func find(ctx context.Context, tx *db.Tx) (state, error) {
	st, err := selectState(ctx, tx)
	if errors.Is(err, db.ErrNoRows) {
		return state{}, fault.NotFoundf("telemetry is not configured")
	}
	return st, err
}

// load calls find in a transaction of its own.
func (s *Service) load(ctx context.Context, t scope.TenantID) (state, error) {
	return db.Read(ctx, s.Stores, t, func(tx *db.Tx) (state, error) { return find(ctx, tx) })
}

// loadServer is load, with the fault NotFound also if no license server is configured.
func (s *Service) loadServer(ctx context.Context, t scope.TenantID) (state, error) {
	st, err := s.load(ctx, t)
	if err == nil && st.URL == "" {
		err = fault.NotFoundf("no license server is configured")
	}
	return st, err
}

// place names the tenant that a sealed API key is bound to: it opens nowhere else.
func place(t scope.TenantID) string { return "telemetry:" + string(t) }

func (s *Service) seal(t scope.TenantID, key string) ([]byte, error) {
	sealed, err := s.Box.Seal([]byte(key), place(t))
	return sealed, fault.Wrap(err, "seal")
}

// apiKey returns the API key in clear.
func (s *Service) apiKey(t scope.TenantID, st state) ([]byte, error) {
	key, err := s.Box.Open(st.APIKey, place(t))
	return key, fault.Wrap(err, "open the API key of the license server")
}

// entry returns an audit entry about the configuration or the license.
func entry(kind string, changes map[string]any) audit.Entry {
	return audit.Entry{Type: kind, Object: "telemetry", ObjectID: "1", ObjectName: "telemetry", Changes: changes}
}
