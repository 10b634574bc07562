package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// recent is how old the last transmission may be for telemetry to be healthy, and how long failures
// are shown.
const recent = 7 * 24 * time.Hour

// Health is the state of telemetry.
type Health struct {
	Status             string        `json:"status" enum:"healthy,warning,unhealthy,disabled,not_configured" doc:"healthy: connected, and a report arrived within 7 days. warning: connected, and none did. unhealthy: no connection, or the last report did not arrive."`
	Enabled            bool          `json:"enabled" doc:"Whether reports are sent."`
	ConnectionStatus   string        `json:"connection_status" enum:"connected,disconnected,not_configured" doc:"Whether the license server answers."`
	LicenseAdminURL    string        `json:"license_admin_url" doc:"URL of the license server; empty: none."`
	APIKeyConfigured   bool          `json:"api_key_configured" doc:"Whether an API key for it is stored."`
	LastTransmissionAt *time.Time    `json:"last_transmission_at" doc:"When a report last arrived; null: never."`
	NextScheduledAt    *time.Time    `json:"next_scheduled_at" doc:"When the next report is due; null: not scheduled."`
	Frequency          string        `json:"frequency" enum:"twice_monthly,weekly,monthly,daily" doc:"When reports are sent; the default without a configuration."`
	RecentErrors       []RecentError `json:"recent_errors" nullable:"false" doc:"Failed transmissions of the last 7 days, newest first, at most 5."`
	Message            string        `json:"message" doc:"The state in words."`
}

// RecentError is a transmission that failed.
type RecentError struct {
	LogID   int64     `json:"log_id" db:"id" doc:"Id of the transmission."`
	At      time.Time `json:"transmission_date" db:"at" doc:"When the report was created."`
	Message string    `json:"error_details" db:"error" doc:"Why it failed."`
}

// SchedulerStatus is the state of the schedule.
type SchedulerStatus struct {
	Running            bool       `json:"scheduler_running" doc:"Whether the tenant's next wake-up is stored: replicas share it, and one of them sends."`
	Enabled            bool       `json:"enabled" doc:"Whether reports are sent."`
	Frequency          string     `json:"frequency" enum:"twice_monthly,weekly,monthly,daily" doc:"When reports are sent; the default without a configuration."`
	NextScheduledAt    *time.Time `json:"next_scheduled_at" doc:"When the next report is due; null: not scheduled."`
	LastTransmissionAt *time.Time `json:"last_transmission_at" doc:"When a report last arrived; null: never."`
	Message            string     `json:"message" doc:"The state in words."`
}

// HealthOf asks the license server, and returns the state of telemetry.
func (s *Service) HealthOf(ctx context.Context, sc scope.Scope) (Health, error) {
	st, err := s.current(ctx, sc.Tenant, 0)
	if err != nil {
		return Health{}, err
	}
	h := Health{
		Enabled: st.Enabled, LicenseAdminURL: st.URL, APIKeyConfigured: len(st.APIKey) > 0, LastTransmissionAt: st.LastSentAt,
		NextScheduledAt: st.NextAt, Frequency: st.frequency(), ConnectionStatus: "disconnected",
	}
	switch {
	case st.URL == "":
		h.ConnectionStatus = "not_configured"
	case st.connected():
		h.ConnectionStatus = "connected"
	}
	lastFailed := false
	now := s.Now()
	err = s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		if h.RecentErrors, err = recentErrors(ctx, tx, now.Add(-recent)); err != nil {
			return err
		}
		last, err := lastTransmission(ctx, tx)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		lastFailed = last == Failed
		return err
	})
	h.Status, h.Message = st.health(now, lastFailed)
	return h, err
}

// health returns the value and the text of Health.Status and Health.Message. lastFailed says that
// the last transmission did not arrive.
func (st state) health(now time.Time, lastFailed bool) (value, message string) {
	switch {
	case st.URL == "":
		return "not_configured", "no license server is configured"
	case !st.Enabled:
		return "disabled", "telemetry is not enabled"
	case !st.connected():
		return "unhealthy", st.testMessage()
	case lastFailed:
		return "unhealthy", "the last report did not arrive"
	case st.LastSentAt == nil:
		return "warning", "no report has been sent yet"
	case now.Sub(*st.LastSentAt) > recent:
		return "warning", "the last report arrived more than 7 days ago"
	}
	return "healthy", "the license server is connected and gets reports"
}

// frequency returns the configured frequency, or the default.
func (st state) frequency() string {
	if st.Frequency == "" {
		return twiceMonthly
	}
	return st.Frequency
}

// Scheduler returns the state of the schedule.
func (s *Service) Scheduler(ctx context.Context, sc scope.Scope) (SchedulerStatus, error) {
	var st state
	var wakeUp *time.Time
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if st, err = selectState(ctx, tx); err != nil && !errors.Is(err, db.ErrNoRows) {
			return err
		}
		wakeUp, err = job.NextRun(ctx, tx, jobKind)
		return err
	})
	out := SchedulerStatus{
		Running: wakeUp != nil, Enabled: st.Enabled, Frequency: st.frequency(), NextScheduledAt: st.NextAt, LastTransmissionAt: st.LastSentAt,
	}
	switch {
	case st.URL == "":
		out.Message = "no license server is configured"
	case !st.Enabled:
		out.Message = "telemetry is not enabled; the license is checked every hour"
	default:
		out.Message = "the next report is due on " + st.NextAt.UTC().Format(time.DateOnly)
	}
	return out, err
}
