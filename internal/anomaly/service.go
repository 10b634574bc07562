package anomaly

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// How far back the detectors read.
const (
	window   = 5 * time.Minute    // for shares and latency
	sources  = 10 * time.Minute   // for addresses
	baseline = 7 * 24 * time.Hour // hours before the window
	days     = 14 * 24 * time.Hour
	// pause is how long an anomaly is not found before it ends.
	pause = 15 * time.Minute
	// keep is how long anomalies are listed after they were last found.
	keep = 90 * 24 * time.Hour
)

// Event is the type of the audit entry that is written when an anomaly begins.
const Event = "AI_ANOMALY_DETECTED"

// Service finds and stores anomalies. Its fields are its dependencies.
type Service struct {
	Stores *db.Cluster
	Log    *audit.DecisionLog
	// Tuning returns the tenant's setting. If it returns false, detection is off.
	Tuning func(ctx context.Context, tenant scope.TenantID) (Tuning, bool, error)
	Now    func() time.Time
	Logger *slog.Logger

	// looked is set once Run has checked every tenant. Only Run uses it.
	looked bool
}

// Anomaly is a stored anomaly.
type Anomaly struct {
	ID          int64     `json:"id" db:"id" doc:"Identifies the anomaly."`
	Kind        Kind      `json:"kind" db:"kind" enum:"denial_spike,error_spike,latency_anomaly,resource_access_spike,user_activity,suspicious_source_ip" doc:"The anomalies."`
	Environment scope.Env `json:"environment" db:"environment" enum:"sandbox,production" doc:"Environment."`
	Subject     string    `json:"subject" db:"subject" doc:"The user, resource or address that it concerns; empty: the whole environment."`
	BeganAt     time.Time `json:"began_at" db:"began_at" doc:"When it was first seen."`
	LastAt      time.Time `json:"last_at" db:"last_at" doc:"When it was last seen. If it is seen again within 15 minutes, it is the same anomaly."`
	Measured    float64   `json:"-" db:"measured"`
	Evidence    Evidence  `json:"evidence" db:"evidence" doc:"Why it is an anomaly, at its worst moment."`
}

// Page is a list of anomalies.
type Page struct {
	Anomalies []Anomaly `json:"anomalies" doc:"Newest first."`
	Total     int64     `json:"total" doc:"Number that match the filter."`
}

// Run checks the tenants whose decisions this process stored within the window of the detectors. It
// does not read the stores of the others: no detector looks for missing traffic, and an anomaly
// ends when it is not found again. The first Run checks every tenant, because it does not know what
// was stored before the process started. A tenant whose store fails is skipped until the next Run.
// Only one Run may be active at a time.
func (s *Service) Run(ctx context.Context) {
	tenants := s.Log.Active(s.Now().Add(-window))
	if !s.looked {
		all, err := s.Stores.Tenants(ctx)
		if err != nil {
			s.Logger.Warn("the tenants cannot be listed; anomalies are not detected", "error", err)
			return
		}
		tenants, s.looked = all, true
	}
	for _, t := range tenants {
		if err := s.Detect(ctx, t); err != nil && ctx.Err() == nil {
			s.Logger.Warn("anomalies of a tenant were not detected", "tenant", t, "error", err)
		}
	}
}

// Detect runs all detectors on one tenant and stores their findings.
func (s *Service) Detect(ctx context.Context, tenant scope.TenantID) error {
	tuning, on, err := s.Tuning(ctx, tenant)
	if err != nil || !on {
		return err
	}
	for _, env := range []scope.Env{scope.Production, scope.Sandbox} {
		found, err := s.detect(ctx, tenant, env, tuning)
		if err != nil {
			return err
		}
		for _, f := range found {
			if err := s.record(ctx, tenant, env, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// detect runs the detectors on one environment.
func (s *Service) detect(ctx context.Context, tenant scope.TenantID, env scope.Env, tuning Tuning) ([]Finding, error) {
	now := s.Now().UTC()
	sc := scope.Scope{Tenant: tenant, Env: env}
	recent, err := s.Log.Rollups(ctx, sc, stats.TenSeconds, now.Add(-window), now)
	if err != nil || len(recent) == 0 {
		return nil, err // no decisions: nothing is unusual
	}
	var current stats.Rollup
	for i := range recent {
		current.Merge(&recent[i])
	}
	// The baseline ends with the last full hour before the window.
	hours, err := s.Log.Rollups(ctx, sc, stats.Hour, now.Add(-baseline), now.Add(-window-time.Hour))
	if err != nil {
		return nil, err
	}
	found := append(DetectShares(current, window, hours, tuning), DetectLatency(current, window, hours, tuning)...)
	resources, err := s.Log.Activity(ctx, tenant, env, stats.TopResources, now, now.Add(-baseline), leastAccesses)
	if err != nil {
		return nil, err
	}
	found = append(found, DetectSpikes(ResourceSpike, time.Hour, baseline, resources, tuning)...)
	users, err := s.Log.Activity(ctx, tenant, env, stats.BusyUsers, now, now.Add(-days), leastAccesses)
	if err != nil {
		return nil, err
	}
	found = append(found, DetectSpikes(UserSpike, 24*time.Hour, days, users, tuning)...)
	if current.Denied < leastDenials {
		return found, nil
	}
	from, err := s.Log.Sources(ctx, tenant, env, now.Add(-sources), now)
	if err != nil {
		return nil, err
	}
	return append(found, DetectSources(from, sources, hours, tuning)...), nil
}

// lock is held while a finding is stored, because two replicas may find the same anomaly.
const lock = "anomalies"

// record stores a finding: as a new anomaly with its audit entry and event, or as the continuation
// of one that was found within pause.
func (s *Service) record(ctx context.Context, tenant scope.TenantID, env scope.Env, f Finding) error {
	return s.Stores.WriteUnder(ctx, tenant, lock, func(tx *db.Tx) error {
		now := s.Now().UTC().Truncate(time.Microsecond)
		again, err := extend(ctx, tx, env, f, now, now.Add(-pause))
		if err != nil || again {
			return err
		}
		id, err := insert(ctx, tx, env, f, now)
		if err != nil {
			return err
		}
		sc := scope.Scope{Tenant: tenant, Env: env, Actor: scope.Actor{Kind: scope.System, ID: "anomalies", Name: "anomalies"}}
		err = audit.Append(ctx, tx, sc, now, audit.Entry{
			Type: Event, Object: "anomaly", ObjectID: strconv.FormatInt(id, 10), ObjectName: string(f.Kind), Env: env,
			EventContext: map[string]any{"kind": string(f.Kind), "subject": f.Subject, "evidence": f.Evidence},
		})
		if err != nil {
			return err
		}
		return event.Emit(ctx, tx, sc, event.Event{
			Type: f.Kind.eventType(), ObjectKind: "anomaly", ObjectID: strconv.FormatInt(id, 10), ObjectName: string(f.Kind), Env: env,
			Data: map[string]any{"subject": f.Subject, "evidence": f.Evidence},
		})
	})
}

// eventType returns the event type for a kind of anomaly.
func (k Kind) eventType() string {
	if k == DenialSpike {
		return event.HighDenyRate
	}
	return event.Suspicious
}

// List returns the anomalies that were last found at since or later, in the scope's environment or
// in both.
func (s *Service) List(ctx context.Context, sc scope.Scope, kind Kind, since time.Time, skip, limit int64) (Page, error) {
	page := Page{}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countKind(ctx, tx, sc.Env, kind, since); err != nil {
			return err
		}
		page.Anomalies, err = list(ctx, tx, sc.Env, kind, since, skip, limit)
		return err
	})
	return page, err
}

// Count returns how many anomalies were last found at since or later, within the caller's
// transaction.
func (s *Service) Count(ctx context.Context, tx *db.Tx, env scope.Env, since time.Time) (int64, error) {
	return countKind(ctx, tx, env, "", since)
}

// Forget removes anomalies of all tenants that were last found more than keep ago.
func (s *Service) Forget(ctx context.Context) {
	tenants, err := s.Stores.Tenants(ctx)
	for _, t := range tenants {
		err = errors.Join(err, s.Stores.Write(ctx, t, func(tx *db.Tx) error { return forget(ctx, tx, s.Now().Add(-keep)) }))
	}
	if err != nil && ctx.Err() == nil {
		s.Logger.Warn("old anomalies could not be removed", "error", err)
	}
}
