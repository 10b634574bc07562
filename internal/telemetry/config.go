package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Change is the body of an update of the configuration: members that are sent change, the others
// stay.
type Change struct {
	URL           *string             `json:"business_admin_url,omitempty" maxLength:"2000" doc:"Base URL of the license server: https, or http to an address that the operator allows; no internal network. A change to another host needs api_key: the stored one is sent only to the host that it was given for. Empty: none." example:"https://license.example.com"`
	APIKey        patch.Field[string] `json:"api_key,omitzero" writeOnly:"true" minLength:"1" maxLength:"500" doc:"API key for the license server. It also signs the server's license updates. Use 24 random bytes or more; null removes it."`
	Enabled       *bool               `json:"enabled,omitempty" doc:"Whether reports are sent; needs business_admin_url and api_key."`
	Frequency     *string             `json:"frequency,omitempty" enum:"twice_monthly,weekly,monthly,daily" doc:"When reports are sent, at midnight UTC; twice_monthly by default. Any other value: 400."`
	Encryption    *bool               `json:"encryption_enabled,omitempty" doc:"Whether reports are encrypted to the key that the license server publishes; false by default."`
	Anonymization *bool               `json:"anonymization_enabled,omitempty" doc:"Whether a random alias replaces the customer id; true by default."`
	RetentionDays *int64              `json:"local_retention_days,omitempty" minimum:"1" maximum:"3650" doc:"How many days the transmission history is kept; 90 by default."`
}

// Config returns the configuration. Fault: NotFound if there is none.
func (s *Service) Config(ctx context.Context, sc scope.Scope) (Config, error) {
	st, err := s.load(ctx, sc.Tenant)
	return st.config(), err
}

// Update creates or changes the configuration. If ifChange is not 0, it must be the ChangeNo;
// if it is not, Update fails with a Precondition fault.
func (s *Service) Update(ctx context.Context, sc scope.Scope, c Change, ifChange int64) (Config, error) {
	if c.URL != nil && *c.URL != "" {
		if err := s.Target.Check(ctx, "/business_admin_url", *c.URL); err != nil {
			return Config{}, err
		}
	}
	var next state
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := selectState(ctx, tx)
		if errors.Is(err, db.ErrNoRows) {
			old, err = state{Frequency: twiceMonthly, Anonymization: true, RetentionDays: defaultRetention, Alias: "anon-" + rand.Text()}, nil
		}
		if err != nil {
			return err
		}
		if err := fault.CheckVersion("configuration", old.ChangeNo, ifChange); err != nil {
			return err
		}
		if next, err = s.apply(sc.Tenant, old, c); err != nil {
			return err
		}
		if old.ChangeNo > 0 && reflect.DeepEqual(old, next) {
			return nil
		}
		return s.save(ctx, tx, sc, old, next)
	})
	if err != nil {
		return Config{}, err
	}
	// Read it again: next does not have the new ChangeNo.
	return s.Config(ctx, sc)
}

// apply returns the state after a change.
func (s *Service) apply(t scope.TenantID, old state, c Change) (state, error) {
	next := old
	if c.URL != nil {
		next.URL = *c.URL
	}
	if outbound.Origin(old.URL) != outbound.Origin(next.URL) {
		if len(old.APIKey) > 0 && next.URL != "" && !c.APIKey.Sent {
			f := fault.Invalidf("/api_key", "another host needs the API key again")
			f.Code = "credential_required"
			return next, f
		}
		next.APIKey = []byte{}
	}
	if c.APIKey.Sent {
		next.APIKey = []byte{}
		if !c.APIKey.Null {
			var err error
			if next.APIKey, err = s.seal(t, c.APIKey.Value); err != nil {
				return next, err
			}
		}
	}
	set(&next.Enabled, c.Enabled)
	set(&next.Frequency, c.Frequency)
	set(&next.Encryption, c.Encryption)
	set(&next.Anonymization, c.Anonymization)
	set(&next.RetentionDays, c.RetentionDays)
	switch {
	case next.URL == "" && len(next.APIKey) > 0:
		return next, fault.Invalidf("/business_admin_url", "an API key needs the URL of the license server")
	case next.Enabled && (next.URL == "" || len(next.APIKey) == 0):
		return next, fault.Invalidf("/enabled", "telemetry needs business_admin_url and api_key before it is enabled")
	}
	if next.URL != old.URL || string(next.APIKey) != string(old.APIKey) { // forget the answers of another server, or to another customer
		next.AttemptedAt, next.VerifiedAt, next.Failure, next.KeyRefused, next.License, next.ServerKey = nil, nil, "", false, License{}, ""
	}
	return next.plan(s.Now()), nil
}

func set[T any](at *T, sent *T) {
	if sent != nil {
		*at = *sent
	}
}

// save stores a changed configuration, deletes what it makes obsolete, updates the alerts, and
// wakes the scheduler.
func (s *Service) save(ctx context.Context, tx *db.Tx, sc scope.Scope, old, next state) error {
	now := db.Stamp(s.Now())
	next.UpdatedAt, next.ChangeNo = now, old.ChangeNo+1
	if err := putState(ctx, tx, next); err != nil {
		return err
	}
	if next.VerifiedAt == nil && !next.License.isSet() {
		if err := deleteUpdates(ctx, tx); err != nil {
			return err
		}
	}
	if _, err := deleteTransmissions(ctx, tx, now.AddDate(0, 0, -int(next.RetentionDays))); err != nil {
		return err
	}
	if err := updateAlerts(ctx, tx, next, now); err != nil {
		return err
	}
	if err := wake(ctx, tx, now); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, now, entry("TELEMETRY_CONFIGURED", changesOf(old, next)))
}

// changesOf lists the differences for the audit. Of the URL it gives only scheme and host, and of the
// API key only that it changed.
func changesOf(old, next state) map[string]any {
	out := patch.Differences{}
	out.Note("target", outbound.Origin(old.URL), outbound.Origin(next.URL))
	out.Note("enabled", old.Enabled, next.Enabled)
	out.Note("frequency", old.Frequency, next.Frequency)
	out.Note("encryption_enabled", old.Encryption, next.Encryption)
	out.Note("anonymization_enabled", old.Anonymization, next.Anonymization)
	out.Note("local_retention_days", old.RetentionDays, next.RetentionDays)
	if string(old.APIKey) != string(next.APIKey) {
		out["credential_changed"] = true
	}
	return out
}

// ConnectionTest is the result of a test call to the license server.
type ConnectionTest struct {
	Status    string    `json:"status" enum:"success,failed" doc:"Whether the license server accepted the API key."`
	Message   string    `json:"message" doc:"What happened."`
	URL       string    `json:"url" doc:"URL of the license server."`
	Timestamp time.Time `json:"timestamp" doc:"Time of the test."`
}

// TestConnection calls the license server now. Fault: NotFound if none is configured.
func (s *Service) TestConnection(ctx context.Context, sc scope.Scope) (ConnectionTest, error) {
	st, err := s.loadServer(ctx, sc.Tenant)
	if err == nil {
		st, err = s.ask(ctx, sc.Tenant, st)
	}
	out := ConnectionTest{Status: Success, Message: "the license server is connected", URL: st.URL, Timestamp: db.Stamp(s.Now())}
	if st.Failure != "" {
		out.Status, out.Message = Failed, st.Failure
	}
	return out, err
}
