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

// opTest runs the test cases of a control.
const opTest = "test"

// TestRequest is a control and the cases to run against it.
type TestRequest struct {
	Name, Source string
	// Libraries are what the source may import.
	Libraries []lang.Library
	Cases     []suite.TestCase
	// Data is called, in this process, where the control reads something below
	// data that not every case sets; nil is none.
	Data func(ctx context.Context) (rego.DataSource, error)
}

// Test runs test cases against a control. Of data the child gets what the
// control refers to. Besides the faults of Validate and of Data, a source that
// does not compile is Invalid "invalid_policy", and one that reads too much of
// data Invalid "evaluation_limit".
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
		return nil, uncompiled(rep.Issues)
	}
	if rep.Tests == nil {
		rep.Tests = []suite.TestResult{}
	}
	return rep.Tests, nil
}

// data is the values at paths below data.
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
	return reply{Tests: suite.RunTests(ctx, control, req.Cases, data, rego.Limits{Now: time.Now(), Clock: processorClock, Caught: c.note}, time.Now)}
}

// processorClock runs while this process does, so that the deadline of a case is not
// used up by what else the machine does.
func processorClock() time.Time {
	spent, counted := processorTime(os.Getpid())
	if !counted {
		return time.Now()
	}
	return time.Unix(0, int64(spent))
}
