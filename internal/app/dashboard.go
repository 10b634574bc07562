package app

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/live"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// setUpDashboard sets up the dashboard, the live updates of consoles, and the search for
// anomalies. Each replica examines the tenants whose decisions it stores. One replica
// removes old anomalies.
func (p *parts) setUpDashboard(context.Context) error {
	p.anomalies = &anomaly.Service{Stores: p.stores, Log: p.audit, Tuning: p.anomalyTuning, Now: p.now, Logger: p.log}
	p.dashboard = &dashboard.Service{
		Stores: p.stores, Log: p.audit, Resources: p.resources, Bouncers: p.bouncers,
		Controls: func(ctx context.Context, tx *db.Tx, env scope.Env) (dashboard.Controls, error) {
			f, err := policy.LoadFigures(ctx, tx, env)
			return dashboard.Controls(f), err
		},
		Anomalies: p.anomalies.Count, Now: p.now,
	}
	p.live = &live.Service{Stores: p.stores, Log: p.log, Now: p.now}
	stop := p.stores.Watch(p.live.OnChange)
	p.closers.add("streams of changes", 5*time.Second, func(context.Context) error { stop(); p.live.Close(); return nil })
	every(p, "anomalies", p.cfg.AnomalyInterval, p.anomalies.Run)
	lead(p, "old anomalies", time.Minute, newID(), func(ctx context.Context) {
		repeat(ctx, 24*time.Hour, func() { p.anomalies.Forget(ctx) })
	})
	return nil
}

// anomalyTuning returns which anomalies a tenant wants to see.
func (p *parts) anomalyTuning(ctx context.Context, id scope.TenantID) (t anomaly.Tuning, on bool, err error) {
	err = p.stores.Read(ctx, id, func(tx *db.Tx) error {
		settings, err := tenant.SettingsIn(ctx, tx)
		t.Factor, on = settings.AnomalyFactor()
		return err
	})
	return t, on, err
}
