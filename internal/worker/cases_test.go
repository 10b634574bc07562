package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// TestCasesWithData checks that a control under test sees the data that it refers to, unless a case sets
// it.
func TestCasesWithData(t *testing.T) {
	p := pool(t)
	data, calls := &recordingData{DataSource: rego.Object(valuetest.Decode(t, `{"resources":{"7":{"owner":"ada"},"8":{"owner":"bob"}},"pip":{"hr":{"x":1}}}`))}, 0
	r := TestRequest{
		Name: "owners", Source: "package owners\n\nallow if data.resources[\"7\"].owner == input.user.id\n\nallow if data.pip.hr.x == 2\n",
		Cases: []suite.TestCase{
			{Name: "ada", Input: valuetest.Decode(t, `{"user":{"id":"ada"}}`), Expected: true},
			{Name: "bob", Input: valuetest.Decode(t, `{"user":{"id":"bob"}}`), Expected: false},
			{Name: "bob's", Input: valuetest.Decode(t, `{"user":{"id":"bob"}}`), Expected: true, Data: valuetest.Decode(t, `{"resources":{"7":{"owner":"bob"}}}`)},
			{Name: "without owners", Input: valuetest.Decode(t, `{"user":{"id":"ada"}}`), Expected: false, Data: valuetest.Decode(t, `{"resources":{}}`)},
			{Name: "another source", Input: valuetest.Decode(t, `{"user":{"id":"bob"}}`), Expected: true, Data: valuetest.Decode(t, `{"pip":{"hr":{"x":2}}}`)},
			{Name: "the source and ada", Input: valuetest.Decode(t, `{"user":{"id":"ada"}}`), Expected: true, Data: valuetest.Decode(t, `{"pip":{}}`)},
		},
		Data: func(context.Context) (rego.DataSource, error) { calls++; return data, nil },
	}
	run := func(what string, reads ...[]string) {
		t.Helper()
		data.paths, calls = nil, 0
		got, err := p.Test(t.Context(), "default", r)
		if err != nil || len(got) != len(r.Cases) {
			t.Fatalf("%s: %+v, %v, want a result for each case", what, got, err)
		}
		for _, res := range got {
			if !res.Passed {
				t.Errorf("%s: %+v, want it passed", what, res)
			}
		}
		if calls > 1 || !slices.EqualFunc(data.paths, reads, slices.Equal) {
			t.Errorf("%s: data was requested %d times, for %v, want once at most, for %v", what, calls, data.paths, reads)
		}
	}
	run("some set some", []string{"pip", "hr", "x"}, []string{"resources", "7", "owner"})
	r.Cases = r.Cases[2:4]
	run("all set one", []string{"pip", "hr", "x"})
	r.Cases = []suite.TestCase{{Name: "both", Expected: true, Data: valuetest.Decode(t, `{"resources":{},"pip":{"hr":{"x":2}}}`)}}
	run("all set all")
	r.Data = nil
	r.Cases = []suite.TestCase{{Name: "no data", Input: valuetest.Decode(t, `{"user":{"id":"ada"}}`), Expected: false}}
	run("without data")
	down := fault.New(fault.Unavailable, "store_unavailable", "down")
	r.Data = func(context.Context) (rego.DataSource, error) { return nil, down }
	if _, err := p.Test(t.Context(), "default", r); !errors.Is(err, down) {
		t.Errorf("data that cannot be read: %v, want its error", err)
	}
}

// TestCasesWithMuchData checks that a control that reads data of over 100,000 resources is tested within
// its limits, or that the error names the limit. On a busy machine it may be either.
func TestCasesWithMuchData(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	p.cfg.TestDeadline = 20 * time.Second
	resources := func(n, padding int) func(context.Context) (rego.DataSource, error) {
		var list []value.Member
		for i := range n {
			id := fmt.Sprint(i + 1)
			list = append(list, value.Member{Key: id, Value: value.Object(
				value.Member{Key: "name", Value: value.String("resource " + id)}, value.Member{Key: "path", Value: value.String("/things/" + id)},
				value.Member{Key: "type", Value: value.String("api")}, value.Member{Key: "description", Value: value.String(strings.Repeat("d", padding))},
			)})
		}
		data := rego.Object(value.Object(value.Member{Key: "resources", Value: value.Object(list...)}))
		return func(context.Context) (rego.DataSource, error) { return data, nil }
	}
	const plain, with = "allow if { some r in data.resources; r.name == input.name }", "allow if { some r in data.resources; r.name == input.name with input.y as 1 }"
	for _, c := range []struct {
		name, body string
		n, padding int
		refused    string // in the message; empty: it works; any: it may work
	}{
		{"some", plain, 5000, 0, ""},
		{"many", plain, 100_000, 0, "any"},
		{"with", with, 100_000, 0, "any"},
		{"too much", plain, 100_000, 200, "more than 16 MiB of data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := TestRequest{Source: "package much\n\n" + c.body + "\n", Data: resources(c.n, c.padding), Cases: []suite.TestCase{
				{Name: "last", Input: valuetest.Decode(t, `{"name":"resource 5000"}`), Expected: true}, {Name: "none", Input: valuetest.Decode(t, `{"name":"x"}`), Expected: false},
			}}
			began := childrenTime(t, p)
			got, err := p.Test(t.Context(), "default", r)
			wantWithin(t, "test", began, p, 2*p.cfg.TestDeadline, err)
			t.Logf("%s: %v %+v", childrenTime(t, p)-began, err, got)
			f, ok := errors.AsType[*fault.Error](err)
			switch {
			case c.refused == "" && (err != nil || !got[0].Passed || !got[1].Passed):
				t.Errorf("%+v, %v, want both passed", got, err)
			case c.refused == "any" && err == nil && got[0].Passed && got[1].Passed: // fits
			case c.refused == "any" && err == nil:
				if !strings.Contains(got[0].Error+got[1].Error, rego.ReasonLimit) {
					t.Errorf("%+v, want a limit", got)
				}
			case c.refused != "" && (!ok || f.Code != "evaluation_limit" || c.refused != "any" && !strings.Contains(f.Message, c.refused)):
				t.Errorf("%+v, %v, want evaluation_limit with %q", got, err, c.refused)
			}
		})
	}
	if v, err := p.Validate(t.Context(), "default", fine); err != nil || !v.Valid {
		t.Fatalf("after all cases: %+v, %v, want a valid control", v, err)
	}
}
