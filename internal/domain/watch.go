package domain

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// The types of alerts on domains; their subject is the domain.
const (
	alertUnresolved  = "domain_unresolved"
	alertCertificate = "domain_certificate"
)

// certificateWarning is how long before its end a certificate is warned of.
const certificateWarning = 14 * 24 * time.Hour

// Routes is what this replica knows of whose each verified domain is. It is safe for
// concurrent use.
type Routes struct {
	stores *db.Cluster
	log    *slog.Logger
	known  atomic.Pointer[map[string]scope.TenantID]
	stale  chan struct{}
}

// LoadRoutes reads whose each verified domain is.
func LoadRoutes(ctx context.Context, stores *db.Cluster, log *slog.Logger) (*Routes, error) {
	r := &Routes{stores: stores, log: log, stale: make(chan struct{}, 1)}
	return r, r.load(ctx)
}

func (r *Routes) load(ctx context.Context) error {
	var list []route
	err := r.stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		list, err = selectRoutes(ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	known := make(map[string]scope.TenantID, len(list))
	for _, one := range list {
		known[one.Domain] = one.Tenant
	}
	r.known.Store(&known)
	return nil
}

// Tenant is the tenant whose verified domain a host is.
func (r *Routes) Tenant(_ context.Context, host string) (scope.TenantID, bool) {
	id, ok := (*r.known.Load())[host]
	return id, ok
}

// Changed is told of changes in the stores.
func (r *Routes) Changed(id scope.TenantID, name string) {
	if id == "" && (name == Revision || name == "") {
		select {
		case r.stale <- struct{}{}:
		default: // it will be looked at anyway
		}
	}
}

// Run reads the routes again when they have changed, and every few seconds where no
// change is told of, until ctx ends.
func (r *Routes) Run(ctx context.Context) error {
	tick := time.NewTicker(4 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.stale:
		case <-tick.C:
		}
		if err := r.load(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("the routes of domains cannot be read", "error", err)
		}
	}
}

// Check looks at the domains of all tenants: it alerts where a verified one does not
// lead to us any more or its certificate is about to end, resolves what is over, and
// makes routes agree with verified domains. It is for one replica at a time.
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
	var rows []record
	err := s.Stores.Read(ctx, id, func(tx *db.Tx) (err error) {
		rows, err = selectDomains(ctx, tx)
		return err
	})
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

// checkDomain opens and resolves the alerts of one verified domain.
func (s *Service) checkDomain(ctx context.Context, id scope.TenantID, r record) error {
	look, cancel := context.WithTimeout(ctx, lookupTime)
	routed, found, unknown := s.routes(look, Record{"CNAME", r.Domain, s.target(id)})
	cancel()
	now := s.Now()
	ending := r.NotAfter != nil && now.Add(certificateWarning).After(*r.NotAfter)
	err := s.Stores.WriteUnder(ctx, id, "domains", func(tx *db.Tx) error {
		if _, err := selectDomain(ctx, tx, r.Domain); err != nil {
			return err // removed meanwhile
		}
		if unknown == nil { // a resolver that is down says nothing about the domain
			a := tenant.Alert{Type: alertUnresolved, Severity: tenant.SeverityError, Message: fmt.Sprintf("%s does not lead to %s any more: %s", r.Domain, s.target(id), found)}
			if err := setAlert(ctx, tx, a, r.Domain, !routed, now); err != nil {
				return err
			}
		}
		a := tenant.Alert{Type: alertCertificate, Severity: tenant.SeverityWarning}
		if ending {
			a.Message = fmt.Sprintf("the certificate of %s ends on %s", r.Domain, r.NotAfter.Format(time.RFC3339))
		}
		return setAlert(ctx, tx, a, r.Domain, ending, now)
	})
	if err != nil {
		return err
	}
	return s.repairRoute(ctx, r.Domain, id)
}

// setAlert opens an alert on a domain, or resolves it.
func setAlert(ctx context.Context, tx *db.Tx, a tenant.Alert, name string, on bool, now time.Time) error {
	if !on {
		return tenant.ResolveAlerts(ctx, tx, a.Type, name, now)
	}
	a.Subject, a.CreatedAt = name, now
	return tenant.OpenAlert(ctx, tx, a)
}

// repairRoute makes the route of a verified domain that has none: a process was killed
// between its two commits.
func (s *Service) repairRoute(ctx context.Context, name string, id scope.TenantID) error {
	var owner scope.TenantID
	err := s.Stores.System().Read(ctx, func(tx *db.Tx) (err error) {
		owner, err = ownerOf(ctx, tx, name)
		return err
	})
	if err != nil || owner != "" {
		return err
	}
	return s.claimRoute(ctx, name, id)
}
