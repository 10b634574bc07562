package domain

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// The types of alerts about domains. The subject of each is the domain.
const (
	alertUnresolved  = "domain_unresolved"
	alertCertificate = "domain_certificate"
	alertOrder       = "domain_certificate_order"
)

// certificateWarning is how long before its end a certificate causes an alert.
const certificateWarning = 14 * 24 * time.Hour

// Check checks the verified domains of all tenants. It opens an alert if a domain does not lead to
// the tenant's target any more, or if its uploaded certificate expires soon. It resolves alerts
// that are over, and repairs routes. One replica at a time runs it.
func (s *Service) Check(ctx context.Context) error {
	tenants, err := s.Stores.Tenants(ctx)
	if err != nil {
		return err
	}
	var first error
	for _, id := range tenants {
		if err := s.checkTenant(ctx, id); err != nil && !fault.Is(err, fault.NotFound) && first == nil {
			first = fmt.Errorf("tenant %s: %w", id, err)
		}
	}
	return first
}

func (s *Service) checkTenant(ctx context.Context, id scope.TenantID) error {
	rows, err := db.Read(ctx, s.Stores, id, func(tx *db.Tx) ([]record, error) { return selectDomains(ctx, tx) })
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.VerifiedAt == nil {
			continue
		}
		if err := s.checkDomain(ctx, id, r); err != nil {
			return err
		}
	}
	return nil
}

// checkDomain opens and resolves the alerts of one verified domain, and repairs its route.
func (s *Service) checkDomain(ctx context.Context, id scope.TenantID, r record) error {
	look, cancel := context.WithTimeout(ctx, lookupTime)
	routed, found, unknown := s.routes(look, Record{"CNAME", r.Domain, s.target(id)})
	cancel()
	now := s.Now()
	ending := r.NotAfter != nil && now.Add(certificateWarning).After(*r.NotAfter)
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error {
		if _, err := selectDomain(ctx, tx, r.Domain); err != nil {
			return err // it was removed in the meantime
		}
		if unknown == nil { // a resolver that is down says nothing about the domain
			a := tenant.Alert{Type: alertUnresolved, Severity: tenant.SeverityError, Message: fmt.Sprintf("%s no longer leads to %s: %s", r.Domain, s.target(id), found)}
			if err := setAlert(ctx, tx, a, r.Domain, !routed, now); err != nil {
				return err
			}
		}
		a := tenant.Alert{Type: alertCertificate, Severity: tenant.SeverityWarning}
		if ending {
			a.Message = fmt.Sprintf("the certificate of %s expires on %s", r.Domain, r.NotAfter.Format(time.RFC3339))
		}
		return setAlert(ctx, tx, a, r.Domain, ending, now)
	})
	if err != nil {
		return err
	}
	return s.repairRoute(ctx, r, id)
}

// setAlert opens an alert about a domain, or resolves it.
func setAlert(ctx context.Context, tx *db.Tx, a tenant.Alert, name string, on bool, now time.Time) error {
	if !on {
		return tenant.ResolveAlerts(ctx, tx, a.Type, name, now)
	}
	a.Subject, a.CreatedAt = name, now
	return tenant.OpenAlert(ctx, tx, a)
}

// repairRoute makes the route of a verified domain equal to its record. They can differ if a process
// was killed between the commits in the two stores. A route of another tenant stays.
func (s *Service) repairRoute(ctx context.Context, r record, id scope.TenantID) error {
	want := r.route(id)
	have, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Route, error) { return selectRoute(ctx, tx, r.Domain) })
	if err != nil || have == want || have.Tenant != "" && have.Tenant != id {
		return err
	}
	return s.claimRoute(ctx, want)
}
