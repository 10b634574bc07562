package pip

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	// tryTime is how long a test may take. It is short, because a person waits.
	tryTime = 30 * time.Second
	// triesOfTenant and tries are how many tests may run at once, of one tenant and of all: an
	// answer can take ten times its size in memory.
	triesOfTenant, tries = 2, 4
)

// trials counts the running tests, of all tenants and of each.
type trials struct {
	mu  sync.Mutex
	all int
	of  map[scope.TenantID]int
}

// begin counts a new test of a tenant. The caller calls leave when the test ends. Faults:
// RateLimited if the tenant already runs triesOfTenant tests, Unavailable if all tenants together
// run tries.
func (t *trials) begin(tenant scope.TenantID) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.of[tenant] >= triesOfTenant:
		return nil, fault.Newf(fault.RateLimited, "rate_limit_exceeded", "a tenant tests at most %d data sources at once", triesOfTenant).After(time.Second)
	case t.all >= tries:
		return nil, fault.New(fault.Unavailable, "busy", "too many data sources are being tested").After(time.Second)
	case t.of == nil:
		t.of = map[scope.TenantID]int{}
	}
	t.all++
	t.of[tenant]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all--
		if t.of[tenant]--; t.of[tenant] == 0 {
			delete(t.of, tenant)
		}
	}, nil
}

// TestResult is the result of a test of a source.
type TestResult struct {
	Success      bool           `json:"success" doc:"Whether the source could be read."`
	Status       string         `json:"status" enum:"connected,failed" doc:"The state in words."`
	Message      string         `json:"message" doc:"What happened."`
	ResponseTime float64        `json:"response_time" doc:"How long it took, in milliseconds."`
	ResponseCode int            `json:"response_code" doc:"HTTP status of the failed call; 0: none."`
	Fields       []source.Field `json:"fields" doc:"The members of the first records, as controls would see them, by name."`
	SampleData   []value.Value  `json:"sample_data" doc:"The first records, at most 5, as controls would see them. Long texts and lists are cut."`
}

// Trial is a source to test: a new one, or a changed one before it is saved.
type Trial struct {
	Draft
	ConnectionID int64 `json:"connection_id,omitempty" minimum:"1" doc:"Id of a stored data source. Without credentials in the request, its stored ones are used, if the hosts are those that they were given for."`
}

// repositoryOf returns the function that reads files of repositories for a tenant; nil: this server
// reads no repositories.
func (s *Service) repositoryOf(tenant scope.TenantID) func(ctx context.Context, f source.File) (source.Content, error) {
	if s.Repository == nil {
		return nil
	}
	return func(ctx context.Context, f source.File) (source.Content, error) { return s.Repository(ctx, tenant, f) }
}

// Test reads the first page of a source, and stores nothing. A source that cannot be read is a
// result without Success, not an error. Faults: RateLimited and Unavailable if too many tests run.
func (s *Service) Test(ctx context.Context, sc scope.Scope, d Trial) (TestResult, error) {
	if d.ConnectionID != 0 && d.Credentials.Empty() {
		stored, err := s.load(ctx, sc.Tenant, d.ConnectionID)
		if err != nil {
			return TestResult{}, err
		}
		if _, d.Credentials, err = s.apply(sc.Tenant, stored, Change{Configuration: &d.Configuration}); err != nil {
			return TestResult{}, err
		}
	}
	if err := s.check(ctx, d.connection(), d.Credentials); err != nil {
		return TestResult{}, err
	}
	leave, err := s.trials.begin(sc.Tenant)
	if err != nil {
		return TestResult{}, err
	}
	defer leave()
	began := s.Now()
	f := &source.Fetcher{Target: s.Target, Now: s.Now, Repository: s.repositoryOf(sc.Tenant), Limit: tryTime}
	res, err := f.Fetch(ctx, source.Order{Provider: d.Provider, Config: d.Configuration, Credentials: d.Credentials, Sample: true})
	out := TestResult{
		Success: true, Status: "connected", Message: "the source was read", Fields: []source.Field{}, SampleData: []value.Value{},
		ResponseTime: float64(s.Now().Sub(began).Microseconds()) / 1000,
	}
	if failure, ok := errors.AsType[*source.Failure](err); ok {
		out.Success, out.Status, out.Message, out.ResponseCode = false, "failed", failure.Message, failure.Status
		return out, nil
	}
	if err != nil {
		return TestResult{}, err
	}
	out.Fields, out.SampleData = res.Fields, res.Sample
	return out, nil
}
