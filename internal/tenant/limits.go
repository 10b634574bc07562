package tenant

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// usageLimit is the type of the alerts about limits.
const usageLimit = "usage_limit"

// CheckLimit refuses n more objects of a kind if the tenant would then exceed its limit: 403
// limit_exceeded with limit and used. Call it in the transaction that creates the objects, before
// it does. It serialises such transactions, so that parallel ones cannot exceed the limit together.
// If the new objects reach 80 or 100 %, it opens the alert.
func (s *Service) CheckLimit(ctx context.Context, tx *db.Tx, kind string, n int64) error {
	settings, err := SettingsIn(ctx, tx)
	if err != nil {
		return err
	}
	limit, limited := settings.Limit(kind)
	count := s.Counters[kind]
	if !limited || count == nil {
		return nil
	}
	if err := tx.Lock(ctx, "limit."+kind); err != nil {
		return err
	}
	used, err := count(ctx, tx)
	if err != nil {
		return err
	}
	if used+n > limit {
		return fault.Newf(fault.Forbidden, "limit_exceeded", "the tenant may have %d %s and has %d", limit, kind, used).
			With("limit", limit).With("used", used)
	}
	return s.updateAlerts(ctx, tx, settings, kind, n)
}

// UpdateUsageAlerts reports that a tenant has one object less, within the transaction that removed it, and
// resolves the alerts that no longer apply.
func (s *Service) UpdateUsageAlerts(ctx context.Context, tx *db.Tx, kind string) error {
	settings, err := SettingsIn(ctx, tx)
	if err != nil {
		return err
	}
	return s.updateAlerts(ctx, tx, settings, kind, 0)
}

// usage counts the tenant's objects.
func (s *Service) usage(ctx context.Context, tx *db.Tx) (*Usage, error) {
	var u Usage
	for kind, dst := range map[string]*int64{Policies: &u.PoliciesUsed, Users: &u.UsersUsed, Bouncers: &u.BouncersUsed} {
		count := s.Counters[kind]
		if count == nil {
			continue
		}
		var err error
		if *dst, err = count(ctx, tx); err != nil {
			return nil, err
		}
	}
	return &u, nil
}

// updateAlerts opens and resolves the alerts of one limit; more is the number of objects that are
// about to be added.
func (s *Service) updateAlerts(ctx context.Context, tx *db.Tx, settings Settings, kind string, more int64) error {
	count := s.Counters[kind]
	if count == nil {
		return nil
	}
	alerts, err := selectOpen(ctx, tx, usageLimit, kind)
	if err != nil {
		return err
	}
	limit, limited := settings.Limit(kind)
	if !limited && len(alerts) == 0 {
		return nil
	}
	used, err := count(ctx, tx)
	if err != nil {
		return err
	}
	due := dueAlerts(used+more, limit, limited)
	for _, a := range alerts {
		if _, holds := due[a.Severity]; holds {
			delete(due, a.Severity)
			continue
		}
		if err := resolve(ctx, tx, a, s.Now()); err != nil {
			return err
		}
	}
	for severity, percent := range due {
		err := open(ctx, tx, Alert{
			Type: usageLimit, Severity: severity, Subject: kind, CreatedAt: s.Now(),
			Message: fmt.Sprintf("%d of %d %s are used (%d %%)", used+more, limit, kind, percent),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// dueAlerts returns the alerts that this usage requires, with the percentage reached.
func dueAlerts(used, limit int64, limited bool) map[string]int64 {
	due := map[string]int64{}
	if !limited || limit <= 0 || used <= 0 {
		return due
	}
	percent := used * 100 / limit
	if used*100 >= limit*80 {
		due["warning"] = percent
	}
	if used >= limit {
		due["critical"] = percent
	}
	return due
}

// Alerts lists a tenant's alerts, newest first. It first resolves alerts whose usage has fallen
// without a call of Released.
func (s *Service) Alerts(ctx context.Context, sc scope.Scope, id scope.TenantID) ([]Alert, error) {
	if _, err := s.findVisible(ctx, sc, id); err != nil {
		return nil, err
	}
	store, err := s.Stores.Tenant(ctx, id)
	if err != nil {
		return nil, err
	}
	list, err := db.ReadStore(ctx, store, func(tx *db.Tx) ([]Alert, error) { return selectAlerts(ctx, tx) })
	stale := false
	for _, a := range list {
		stale = stale || (a.ResolvedAt == nil && a.Type == usageLimit)
	}
	if err != nil || !stale {
		return list, err
	}
	err = store.Write(ctx, func(tx *db.Tx) error {
		settings, err := SettingsIn(ctx, tx)
		if err != nil {
			return err
		}
		for _, kind := range kinds() {
			if err := s.updateAlerts(ctx, tx, settings, kind, 0); err != nil {
				return err
			}
		}
		list, err = selectAlerts(ctx, tx)
		return err
	})
	return list, err
}
