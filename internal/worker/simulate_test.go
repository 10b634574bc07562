package worker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
)

// recordingData is data that records which paths were read.
type recordingData struct {
	rego.DataSource
	paths [][]string
}

func (a *recordingData) Data(path []string) value.Value {
	a.paths = append(a.paths, path)
	return a.DataSource.Data(path)
}

// TestSimulate checks that a simulation returns the effect and the reason, and reads only the data that the
// control refers to.
func TestSimulate(t *testing.T) {
	p := pool(t)
	data := &recordingData{DataSource: rego.Object(valuetest.Decode(t, `{"resources":{"7":{"owner":"ada"},"8":{"owner":"bob"}},"pip":{"hr":{"x":1}}}`))}
	r := SimulateRequest{
		Meta: rego.Meta{ID: 3, Name: "owners", Version: 2}, Data: data, Input: valuetest.Decode(t, `{"user":{"id":"ada"}}`),
		Source: "package owners\n\nallow if data.resources[\"7\"].owner == input.user.id\n\nmask[\"x\"] := \"hash\" if input.user.id == \"ada\"\n",
	}
	for range 2 { // the second time from the child's cache
		s, err := p.Simulate(t.Context(), "default", r)
		if err != nil || s.Effect != "MASK" || len(s.Mask) != 1 || s.Took <= 0 || s.Explanation.PolicyID != 3 {
			t.Fatalf("%+v, %v, want MASK by control 3", s, err)
		}
		if first, last := s.Steps[0].Type, s.Steps[len(s.Steps)-1].Type; first != "policy_matched" || last != "final_decision" {
			t.Errorf("the trace goes from %s to %s, want policy_matched to final_decision", first, last)
		}
	}
	if len(data.paths) != 2 || !slices.Equal(data.paths[0], []string{"resources", "7", "owner"}) {
		t.Errorf("the control read %v of the data, want the owner of resource 7 once a run", data.paths)
	}
	r.Input = valuetest.Decode(t, `{"user":{"id":"bob"}}`)
	if s, err := p.Simulate(t.Context(), "default", r); err != nil || s.Effect != "NO_MATCH" || s.Explanation.Nearest == nil {
		t.Errorf("for bob: %+v, %v, want NO_MATCH with the nearest rule", s, err)
	}
	r.Source = "package owners\n\nallow if nonsense(1)\n"
	_, err := p.Simulate(t.Context(), "default", r)
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "invalid_policy" || f.Details[0].Line != 3 {
		t.Errorf("a control that does not compile: %v, want invalid_policy in line 3", err)
	}
}

// TestSimulateHostile checks that every program of the table ends within the deadline and 250 ms, with
// an answer of bounded size or a limit error, and that the pool keeps working.
func TestSimulateHostile(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	p.cfg.SimulateDeadline = time.Second
	programs := map[string]string{
		"long reason": `reason := concat("", ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" | some _ in numbers.range(1, 200000)])` + "\nallow := true",
		"many masks":  `mask contains sprintf("field%d", [x]) if some x in numbers.range(1, 5000)`,
		"long masks":  `mask contains concat("", [sprintf("%d", [x]) | some x in numbers.range(1, 100000)])` + "\nallow := true",
		"long trace":  `allow if { some x in numbers.range(1, 100000); x > 99999; input.x == x }`,
	}
	for name, body := range hostile {
		if !strings.Contains(name, "2 MiB") { // the API already refuses a body of this size
			programs[name] = body
		}
	}
	for name, body := range programs {
		t.Run(name, func(t *testing.T) {
			began := childrenTime(t, p)
			s, err := p.Simulate(t.Context(), "default", SimulateRequest{Source: "package hostile\n\n" + body + "\n", Input: valuetest.Decode(t, `{"x":1}`)})
			wantWithin(t, "simulate", began, p, p.cfg.SimulateDeadline, err)
			if len(s.Steps) > 1001 || len(fmt.Sprint(s.Mask)) > 2<<20 {
				t.Errorf("%d steps, %d masks, want a bounded answer", len(s.Steps), len(s.Mask))
			}
		})
	}
	if s, err := p.Simulate(t.Context(), "default", SimulateRequest{Source: fine, Input: valuetest.Decode(t, `{"user":{"role":"admin"}}`)}); err != nil || s.Effect != "ALLOW" {
		t.Fatalf("after all programs: %+v, %v, want ALLOW", s, err)
	}
}

// TestAttributes checks that each source has its own list, and a source that does not parse has none.
func TestAttributes(t *testing.T) {
	p := pool(t)
	got, err := p.Attributes(t.Context(), "default", []string{fine, "package broken\n\nallow if", "package p\n\nallow if input.context.hour > 8\n"})
	if err != nil || len(got) != 3 || len(got[0]) != 1 || got[0][0].Key != "user.role" || len(got[1]) != 0 || got[2][0].Type != "number" {
		t.Errorf("the attributes are %+v, %v, want user.role, none, and a number", got, err)
	}
}
