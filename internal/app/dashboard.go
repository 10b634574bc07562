package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// overview sets up what says what is going on. One replica looks for anomalies.
func (p *parts) overview(context.Context) error {
	p.anomalies = &anomaly.Service{Stores: p.stores, Log: p.audit, Tuning: p.anomalyTuning, Now: p.now, Logger: p.log}
	p.dashboard = &dashboard.Service{
		Stores: p.stores, Log: p.audit, Policies: p.policies, Resources: p.resources, Bouncers: p.bouncers,
		Anomalies: p.anomalies.Count, Now: p.now,
	}
	leases := &job.Leases{System: p.stores.System(), Holder: newID(), Now: p.now, Logger: p.log}
	p.task("anomalies", func(ctx context.Context) error {
		leases.Lead(ctx, "anomalies", time.Minute, func(ctx context.Context) {
			_ = every(ctx, p.cfg.AnomalyInterval, func() { p.anomalies.Run(ctx) })
		})
		return nil
	})
	p.task("old anomalies", func(ctx context.Context) error {
		return every(ctx, time.Hour, func() { p.anomalies.Forget(ctx) })
	})
	return nil
}

// anomalyTuning reads what a tenant wants flagged.
func (p *parts) anomalyTuning(ctx context.Context, id scope.TenantID) (t anomaly.Tuning, on bool, err error) {
	err = p.stores.Read(ctx, id, func(tx *db.Tx) error {
		settings, err := tenant.SettingsIn(ctx, tx)
		t.Factor, on = settings.AnomalyFactor()
		return err
	})
	return t, on, err
}
