package vendor

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/metering"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// Status is the state of one of a vendor's tenants.
type Status struct {
	tenant.Tenant
	Bouncers []BouncerStatus `json:"bouncers" nullable:"false" doc:"The first hundred bouncers by id."`
	Alerts   int64           `json:"open_alerts" doc:"Number of open alerts of the tenant."`
}

// BouncerStatus is the state of a bouncer.
type BouncerStatus struct {
	ID            int64      `json:"id" doc:"Id of the bouncer."`
	Name          string     `json:"name" doc:"Name of the bouncer."`
	Environment   scope.Env  `json:"environment" enum:"sandbox,production" doc:"Environment whose controls it enforces."`
	Status        string     `json:"status" enum:"connected,degraded,disconnected" doc:"The state that the bridge sees."`
	LastHeartbeat *time.Time `json:"last_heartbeat" doc:"When it was last seen; null if never."`
}

// ListTenants returns a page of the tenants that the vendor has created.
func (s *Service) ListTenants(ctx context.Context, sc scope.Scope, skip, limit int) (tenant.Page, error) {
	return s.Tenants.ListOfVendor(ctx, sc.Actor.ID, tenant.Filter{Skip: skip, Limit: limit})
}

// Status returns the state of one of the vendor's tenants. Fault: NotFound for any other tenant.
func (s *Service) Status(ctx context.Context, sc scope.Scope, id scope.TenantID) (Status, error) {
	if _, err := s.Tenants.OfVendor(ctx, sc.Actor.ID, id); err != nil {
		return Status{}, err
	}
	inside := within(sc, id)
	t, err := s.Tenants.Get(ctx, inside, id)
	if err != nil {
		return Status{}, err
	}
	out := Status{Tenant: t, Bouncers: []BouncerStatus{}}
	page, err := s.Bouncers.List(ctx, inside, bouncer.Filter{Limit: 100})
	if err != nil {
		return Status{}, err
	}
	for _, b := range page.Bouncers {
		out.Bouncers = append(out.Bouncers, BouncerStatus{ID: b.ID, Name: b.Name, Environment: b.Environment, Status: b.Status, LastHeartbeat: b.LastHeartbeat})
	}
	alerts, err := s.Tenants.Alerts(ctx, inside, id)
	for _, a := range alerts {
		if a.ResolvedAt == nil {
			out.Alerts++
		}
	}
	return out, err
}

// Change changes one of the vendor's tenants. A vendor may also change the plan, the limits and
// the status. Fault: NotFound for any other tenant.
func (s *Service) Change(ctx context.Context, sc scope.Scope, id scope.TenantID, ch tenant.Change) (tenant.Tenant, error) {
	if _, err := s.Tenants.OfVendor(ctx, sc.Actor.ID, id); err != nil {
		return tenant.Tenant{}, err
	}
	return s.Tenants.Update(ctx, within(sc, id), id, ch)
}

// Remove deletes one of the vendor's tenants; with hard, it purges the tenant at once. Fault:
// NotFound for any other tenant.
func (s *Service) Remove(ctx context.Context, sc scope.Scope, id scope.TenantID, hard bool) (tenant.Deletion, error) {
	if _, err := s.Tenants.OfVendor(ctx, sc.Actor.ID, id); err != nil {
		return tenant.Deletion{}, err
	}
	return s.Tenants.Delete(ctx, within(sc, id), id, hard)
}

// Usage is what the vendor's tenants used.
type Usage struct {
	Usage []TenantUsage `json:"usage" nullable:"false" doc:"The tenants by id, each with its months, oldest first."`
	Total int64         `json:"total" doc:"Total number of tenants."`
}

// TenantUsage is what a tenant used.
type TenantUsage struct {
	TenantID  scope.TenantID `json:"tenant_id" doc:"Id of the tenant."`
	Name      string         `json:"name" doc:"Display name."`
	Status    string         `json:"status" enum:"active,suspended,deleted" doc:"Only an active tenant is served."`
	PlanType  string         `json:"plan_type" doc:"The current plan."`
	Policies  int64          `json:"policies" doc:"Current number of controls and libraries."`
	Users     int64          `json:"users" doc:"Current number of people."`
	Bouncers  int64          `json:"bouncers" doc:"Current number of bouncers."`
	StorageGB float64        `json:"storage_gb" doc:"Current size of the tenant's store in GB."`
	Months    []Month        `json:"months" nullable:"false" doc:"Each month of the period."`
}

// Month is what a tenant used in a month.
type Month struct {
	Month    string `json:"month" example:"2026-11" doc:"The month, in UTC."`
	APICalls int64  `json:"api_calls" doc:"Requests with an API key or by a signed-in person in the month."`
}

// monthForm is the layout of months in requests and answers.
const monthForm = "2006-01"

// maxMonths is the largest number of months in one answer.
const maxMonths = 24

// MonthlyUsage returns what the vendor's tenants used in the months from and to and between
// them. to is the current month if it is empty, and from is to. Fault: BadRequest.
func (s *Service) MonthlyUsage(ctx context.Context, sc scope.Scope, from, to string, skip, limit int) (Usage, error) {
	start, end, err := s.months(from, to)
	if err != nil {
		return Usage{}, err
	}
	page, err := s.Tenants.ListOfVendor(ctx, sc.Actor.ID, tenant.Filter{Skip: skip, Limit: limit})
	if err != nil {
		return Usage{}, err
	}
	out := Usage{Usage: []TenantUsage{}, Total: page.Total}
	for _, t := range page.Tenants {
		m, err := s.Metering.Metrics(ctx, within(sc, t.ID), t.ID, start, end, metering.ByMonth)
		if fault.Is(err, fault.NotFound) {
			continue // purged meanwhile
		}
		if err != nil {
			return Usage{}, err
		}
		size, err := s.Stores.Size(ctx, t.ID)
		if err != nil {
			return Usage{}, err
		}
		u := TenantUsage{
			TenantID: t.ID, Name: t.Name, Status: t.Status, PlanType: t.PlanType, Policies: m.Metrics.Policies.Total,
			Users: m.Metrics.Users.Total, Bouncers: m.Metrics.Bouncers.Total, StorageGB: float64(size) / 1e9, Months: []Month{},
		}
		for _, p := range m.Series {
			u.Months = append(u.Months, Month{Month: p.Start.Format(monthForm), APICalls: p.APICalls})
		}
		out.Usage = append(out.Usage, u)
	}
	return out, nil
}

// months returns the period from the start of the month from to the end of the month to.
func (s *Service) months(from, to string) (start, end time.Time, err error) {
	now := s.Now().UTC()
	start = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	last := start
	if to != "" {
		if last, err = parseMonth("query.to", to); err != nil {
			return start, end, err
		}
		start = last
	}
	if from != "" {
		if start, err = parseMonth("query.from", from); err != nil {
			return start, end, err
		}
	}
	end = last.AddDate(0, 1, 0)
	if start.After(last) || start.AddDate(0, maxMonths, 0).Before(end) {
		return start, end, badMonth("query.from", "the period must have 1 to 24 months")
	}
	return start, end, nil
}

func parseMonth(pointer, text string) (time.Time, error) {
	t, err := time.Parse(monthForm, text)
	if err != nil {
		return t, badMonth(pointer, "a month must be written like 2026-11")
	}
	return t, nil
}

func badMonth(pointer, message string) error {
	f := fault.New(fault.BadRequest, "invalid_parameter", message)
	f.Details = []fault.Detail{{Pointer: pointer, Message: message}}
	return f
}
