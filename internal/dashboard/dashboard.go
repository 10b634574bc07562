// Package dashboard has the figures of a tenant: those of the last hour and day, series over time,
// and the controls and resources with the most denials. It reads the roll-ups of the decision log,
// so the cost of an answer does not depend on the number of decisions.
package dashboard

import (
	"context"
	"math"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Service has the use cases of the dashboard. All fields must be set.
type Service struct {
	Stores    *db.Cluster
	Log       *audit.DecisionLog
	Resources *resource.Service
	Bouncers  *bouncer.Service
	// Controls counts the controls of an environment, or of both for AnyEnv.
	Controls func(ctx context.Context, tx *db.Tx, env scope.Env) (Controls, error)
	// Anomalies returns the number of anomalies since a time.
	Anomalies func(ctx context.Context, tx *db.Tx, env scope.Env, since time.Time) (int64, error)
	Now       func() time.Time
}

// Controls counts controls that are not deleted.
type Controls struct {
	Total, Active, Draft int64
	// Protecting counts the active controls that are bound to a resource.
	Protecting int64
}

// Stats are the figures of the dashboard, as the specification defines them.
type Stats struct {
	TotalPolicies               int64    `json:"totalPolicies" doc:"Controls that are not deleted, libraries left out."`
	ActivePolicies              int64    `json:"activePolicies" doc:"Active ones, which decide."`
	DraftPolicies               int64    `json:"draftPolicies" doc:"Drafts."`
	PoliciesProtectingResources int64    `json:"policiesProtectingResources" doc:"Active controls that are bound to a resource."`
	TotalResources              int64    `json:"totalResources" doc:"Resources, including discovered ones."`
	DeployedPEPs                int64    `json:"deployedPEPs" doc:"Number of registered bouncers (PEPs)."`
	OperationalPEPs             int64    `json:"operationalPEPs" doc:"Those that are connected and healthy."`
	WarningPEPs                 int64    `json:"warningPEPs" doc:"Those that are degraded or disconnected."`
	SmartConnections            int64    `json:"smartConnections" doc:"Pairs of a bouncer and a control that the policy bridge delivers to it."`
	ActiveConnections           int64    `json:"activeConnections" doc:"smartConnections whose bouncer runs the control."`
	PendingConnections          int64    `json:"pendingConnections" doc:"smartConnections that are still being delivered. Failed deliveries are in neither figure."`
	Decisions24h                int64    `json:"authDecisions24h" doc:"Decisions of the last 24 hours, to the minute."`
	AllowedPercentage           float64  `json:"allowedPercentage" doc:"Share of PERMIT among them, in percent; 0 without decisions."`
	DeniedPercentage            float64  `json:"deniedPercentage" doc:"Share of DENY among them, in percent; 0 without decisions."`
	AnomalousActivity           int64    `json:"anomalousActivity" doc:"Anomalies that began or lasted within the last 24 hours; 0 means none. GET /dashboard/anomalies lists them."`
	RealTime                    RealTime `json:"realTimeMetrics" doc:"Figures of the last hour."`
}

// RealTime are the figures of the last hour and minute.
type RealTime struct {
	RequestsPerHour   int64   `json:"totalRequestsPerHour" doc:"Decisions of the last hour, to the minute."`
	RequestsPerMinute int64   `json:"totalRequestsPerMinute" doc:"Decisions of the last minute, to ten seconds."`
	LatencyP50        float64 `json:"latencyP50" doc:"Median evaluation time in the last hour, in milliseconds, accurate to an eighth."`
	LatencyP95        float64 `json:"latencyP95" doc:"95 of 100 evaluations took at most this long, in milliseconds."`
	LatencyP99        float64 `json:"latencyP99" doc:"99 of 100 evaluations took at most this long, in milliseconds."`
	ErrorRate         float64 `json:"overallErrorRate" doc:"Share of the last hour's decisions that were denied because a control failed or reached a limit, in percent."`
	Errors            int64   `json:"totalErrors" doc:"Number."`
	PolicyDenials     int64   `json:"totalPolicyDenials" doc:"Denials by a control within the last hour; denials because no control matched are not counted."`
	HealthScore       float64 `json:"averageHealthScore" doc:"Mean over the bouncers: 100 for a connected one, 50 for degraded, 0 for disconnected. 100 without bouncers."`
	ActivePEPs        int64   `json:"activePEPsCount" doc:"Bouncers that are in touch with the policy bridge."`
}

// Stats returns the figures of the scope's environment, or of both. It first waits, for at most
// half a second, until recent decisions are stored.
func (s *Service) Stats(ctx context.Context, sc scope.Scope) (Stats, error) {
	s.Log.WaitShipped(ctx)
	now := s.Now()
	var out Stats
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		out = Stats{}
		return s.count(ctx, tx, sc.Env, now, &out)
	})
	if err != nil {
		return Stats{}, err
	}
	lastDay, err := s.Log.Outcomes(ctx, sc, now.Add(time.Minute-24*time.Hour), now)
	if err != nil {
		return Stats{}, err
	}
	out.Decisions24h = lastDay.Total()
	out.AllowedPercentage = percent(lastDay.Permitted, lastDay.Total())
	out.DeniedPercentage = percent(lastDay.Denied, lastDay.Total())
	err = s.realTime(ctx, sc, now, &out.RealTime)
	return out, err
}

// count sets the figures of controls, resources, bouncers and anomalies.
func (s *Service) count(ctx context.Context, tx *db.Tx, env scope.Env, now time.Time, out *Stats) error {
	controls, err := s.Controls(ctx, tx, env)
	if err != nil {
		return err
	}
	out.TotalPolicies, out.ActivePolicies = controls.Total, controls.Active
	out.DraftPolicies, out.PoliciesProtectingResources = controls.Draft, controls.Protecting
	if out.TotalResources, err = resource.Total(ctx, tx, env); err != nil {
		return err
	}
	b, err := bouncer.LoadTally(ctx, tx, env)
	if err != nil {
		return err
	}
	out.DeployedPEPs, out.OperationalPEPs = b.Connected+b.Degraded+b.Disconnected, b.Connected
	out.WarningPEPs = b.Degraded + b.Disconnected
	out.SmartConnections, out.ActiveConnections, out.PendingConnections = b.Deliveries, b.Delivered, b.Awaited
	out.RealTime.ActivePEPs = b.Connected + b.Degraded
	out.RealTime.HealthScore = 100
	if out.DeployedPEPs > 0 {
		out.RealTime.HealthScore = round(float64(100*b.Connected+50*b.Degraded) / float64(out.DeployedPEPs))
	}
	out.AnomalousActivity, err = s.Anomalies(ctx, tx, env, now.Add(-24*time.Hour))
	return err
}

// realTime sets the figures of the decisions of the last hour and minute.
func (s *Service) realTime(ctx context.Context, sc scope.Scope, now time.Time, out *RealTime) error {
	hour, err := s.Log.Minutes(ctx, sc, now.Add(-59*time.Minute), now)
	if err != nil {
		return err
	}
	minute, err := s.Log.Totals(ctx, sc, stats.TenSeconds, now.Add(-50*time.Second), now)
	if err != nil {
		return err
	}
	out.RequestsPerHour, out.RequestsPerMinute = hour.Total(), minute.Total()
	out.LatencyP50 = round(hour.Latencies.Quantile(0.50))
	out.LatencyP95 = round(hour.Latencies.Quantile(0.95))
	out.LatencyP99 = round(hour.Latencies.Quantile(0.99))
	out.Errors, out.PolicyDenials = hour.Errors, hour.PolicyDenials
	out.ErrorRate = percent(hour.Errors, hour.Total())
	return nil
}

// percent returns part of whole in percent, rounded to three decimals. It is 0 if whole is 0.
func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return round(100 * float64(part) / float64(whole))
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
