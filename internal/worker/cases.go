package worker

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// opTest is the operation that runs the test cases of a control.
const opTest = "test"

// TestRequest is a control with its test cases.
type TestRequest struct {
	Name, Source string
	// Libraries are what the source may import.
	Libraries []lang.Library
	Cases     []suite.TestCase
	// Data provides what the control reads below data and a case does not set; nil provides
	// nothing. It is called in this process.
	Data func(ctx context.Context) (rego.DataSource, error)
}

// Test runs test cases against a control. The child gets only the data that the control refers to.
// Faults: those of Validate and of r.Data, Invalid "invalid_policy" if the source does not compile,
// Invalid "evaluation_limit" if it reads too much data.
func (p *Pool) Test(ctx context.Context, tenant scope.TenantID, r TestRequest) ([]suite.TestResult, error) {
	req := request{Op: opTest, Name: r.Name, Source: r.Source, Cases: r.Cases, Libraries: r.Libraries}
	rep, err := p.call(ctx, tenant, p.cfg.TestDeadline, req)
	if err == nil && len(rep.Needs) > 0 {
		if req.Data, err = r.data(ctx, rep.Needs); err != nil {
			return nil, err
		}
		rep, err = p.call(ctx, tenant, p.cfg.TestDeadline, req)
	}
	if err != nil {
		return nil, err
	}
	if len(rep.Issues) > 0 {
		return nil, notCompiled(rep.Issues)
	}
	if rep.Tests == nil {
		rep.Tests = []suite.TestResult{}
	}
	return rep.Tests, nil
}

// data returns the values at paths below data, as JSON.
func (r TestRequest) data(ctx context.Context, paths [][]string) (json.RawMessage, error) {
	var src rego.DataSource
	if r.Data != nil {
		var err error
		if src, err = r.Data(ctx); err != nil {
			return nil, err
		}
	}
	return dataFor(paths, src, "a test; give its cases their own data member")
}

func (c *child) test(ctx context.Context, req request) reply {
	control, issues := rego.Compile(rego.Meta{Name: req.Name}, req.Source, req.Libraries...)
	if len(issues) > 0 {
		return reply{Issues: issues}
	}
	var data rego.DataSource
	if needs := suite.Unset(control, req.Cases); len(needs) > 0 {
		if len(req.Data) == 0 {
			return reply{Needs: needs}
		}
		v, err := value.Decode(req.Data, sentLimits())
		if err != nil {
			return reply{Error: err.Error()}
		}
		data = rego.Object(v)
	}
	return reply{Tests: suite.RunTests(ctx, control, req.Cases, data, rego.Limits{Now: time.Now(), Clock: processorClock, Caught: c.addPanic}, time.Now)}
}

// processorClock counts the processor time of this process, so that a busy machine does not use up
// the deadline of a case.
func processorClock() time.Time {
	spent, counted := processorTime(os.Getpid())
	if !counted {
		return time.Now()
	}
	return time.Unix(0, int64(spent))
}
