package telemetry

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// LicenseStatus asks the license server, and returns what the license allows. Without a
// configuration, everything is allowed.
func (s *Service) LicenseStatus(ctx context.Context, sc scope.Scope) (LicenseStatus, error) {
	st, err := s.current(ctx, sc.Tenant, 0)
	return st.status(s.Now()), err
}

// current returns the state with an answer of the license server that is at most trust old, or the
// result of an attempt to get one. Without a configuration it returns the zero state.
func (s *Service) current(ctx context.Context, t scope.TenantID, trust time.Duration) (state, error) {
	st, err := s.load(ctx, t)
	if fault.Is(err, fault.NotFound) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	return s.verify(ctx, t, st, trust)
}

// Check says whether the license allows something now.
type Check struct {
	Allowed      bool       `json:"allowed" doc:"Whether it is allowed now."`
	Reason       string     `json:"reason" enum:"licensed,trial,trial_expired,no_license,subscription_inactive,no_connection" doc:"Why, for programs."`
	Message      string     `json:"message" doc:"Why, for people."`
	TrialEndDate *time.Time `json:"trial_end_date,omitempty" doc:"When the trial ended; only if it has."`
}

// CheckTests says whether controls may be tested. Faults: Forbidden without a connection to the
// license server, NotFound if none is configured.
func (s *Service) CheckTests(ctx context.Context, sc scope.Scope) (Check, error) {
	st, err := s.loadServer(ctx, sc.Tenant)
	if err == nil {
		st, err = s.verify(ctx, sc.Tenant, st, 0)
	}
	if err == nil {
		err = st.mayTest()
	}
	return Check{Allowed: true, Reason: reasonLicensed, Message: st.testMessage()}, err
}

// CheckPromotion says whether controls may be promoted to production and be enforced there. Fault:
// NotFound if no license server is configured.
func (s *Service) CheckPromotion(ctx context.Context, sc scope.Scope) (Check, error) {
	st, err := s.loadServer(ctx, sc.Tenant)
	if err == nil {
		st, err = s.verify(ctx, sc.Tenant, st, 0)
	}
	v := st.judge(s.Now())
	out := Check{Allowed: v.allowed, Reason: v.reason, Message: v.message}
	if v.expired {
		out.TrialEndDate = st.License.TrialEnd
	}
	return out, err
}

// MayTest returns Forbidden if controls may not be tested: while a license server is configured but
// cannot be reached.
func (s *Service) MayTest(ctx context.Context, sc scope.Scope) error {
	st, err := s.current(ctx, sc.Tenant, testTrust)
	if err != nil {
		return err
	}
	return st.mayTest()
}

func (st state) mayTest() error {
	if st.URL == "" || st.connected() {
		return nil
	}
	return fault.New(fault.Forbidden, "license_required", "policies cannot be tested: "+st.testMessage()).With("reason", reasonNoConnection)
}

// MayPromote returns Forbidden if controls may not be promoted to production or enforced there: a
// license server is configured, and the license does not allow it.
func (s *Service) MayPromote(ctx context.Context, sc scope.Scope) error {
	st, err := s.current(ctx, sc.Tenant, 0)
	if err != nil {
		return err
	}
	v := st.judge(s.Now())
	if v.allowed {
		return nil
	}
	f := fault.New(fault.Forbidden, "license_required", "the license does not allow this in production: "+v.message).With("reason", v.reason)
	if v.expired && st.License.TrialEnd != nil {
		f = f.With("trial_end_date", *st.License.TrialEnd)
	}
	return f
}
