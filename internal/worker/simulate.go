package worker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	opSimulate   = "simulate"
	opAttributes = "attributes"
)

// Limits of a simulation, in bytes: the data that the control may read, also in tests, and the
// answer.
const (
	maxSimulationData   = 16 << 20
	maxSimulationResult = 1 << 20
)

// maxCompiled is how many compiled controls a child caches, because authors run the same control
// repeatedly.
const maxCompiled = 16

// SimulateRequest is a control and its input.
type SimulateRequest struct {
	Meta   rego.Meta
	Source string
	// Libraries are what the source may import.
	Libraries []lang.Library
	Input     value.Value
	// Data provides what the control reads below data; nil provides nothing. It is read in this
	// process.
	Data rego.DataSource
}

// Simulation is the outcome of a control, and the reason for it.
type Simulation struct {
	// Effect is ALLOW, DENY, MASK or NO_MATCH.
	Effect string             `json:"effect"`
	Reason string             `json:"reason"`
	Mask   []masking.MaskRule `json:"mask,omitempty"`
	// Error is why the control could not be evaluated. The effect is then DENY.
	Error       string             `json:"error,omitempty"`
	Steps       []reason.Step      `json:"steps"`
	Explanation reason.Explanation `json:"explanation"`
	// Took is the duration of the evaluation without a trace.
	Took time.Duration `json:"took"`
}

// simulationInput is the simulation request for the child.
type simulationInput struct {
	Meta  rego.Meta       `json:"meta"`
	Input json.RawMessage `json:"input"`
	// Data is set after the child has reported which paths it needs.
	Data     json.RawMessage `json:"data,omitempty"`
	Deadline time.Duration   `json:"deadline"`
}

// simulationResult is the child's answer: a simulation, or the paths below data that it needs, or the exceeded
// limit.
type simulationResult struct {
	Simulation *Simulation `json:"simulation,omitempty"`
	Needs      [][]string  `json:"needs,omitempty"`
	Limit      string      `json:"limit,omitempty"`
}

// Simulate evaluates a control with a trace. If the control reads paths below data, Simulate reads
// them from r.Data and sends the request again. Faults: Invalid "evaluation_limit" if the
// evaluation exceeded SimulateDeadline or the memory limit, Invalid "invalid_policy", RateLimited,
// Unavailable.
func (p *Pool) Simulate(ctx context.Context, tenant scope.TenantID, r SimulateRequest) (Simulation, error) {
	limit := p.cfg.SimulateDeadline
	req := request{Op: opSimulate, Source: r.Source, Libraries: r.Libraries, Simulation: &simulationInput{Meta: r.Meta, Input: r.Input.AppendJSON(nil), Deadline: limit}}
	out, err := p.simulateOnce(ctx, tenant, req)
	if err == nil && len(out.Needs) > 0 {
		if req.Simulation.Data, err = dataFor(out.Needs, r.Data, "a simulation"); err != nil {
			return Simulation{}, err
		}
		out, err = p.simulateOnce(ctx, tenant, req)
	}
	switch {
	case err != nil:
		return Simulation{}, err
	case out.Limit != "":
		return Simulation{}, limitFault(out.Limit)
	case out.Simulation == nil:
		return Simulation{}, fault.New(fault.Internal, "internal_error", "the evaluator sent no answer")
	}
	return *out.Simulation, nil
}

// simulateOnce sends one request to a child. The limit includes the wait for a child, so that the caller
// gets an answer in time.
func (p *Pool) simulateOnce(ctx context.Context, tenant scope.TenantID, req request) (simulationResult, error) {
	limit := p.cfg.SimulateDeadline
	bounded, stop := context.WithTimeout(ctx, limit+2*killGrace)
	defer stop()
	leave, err := p.acquireSlot(bounded, tenant, true)
	if err != nil {
		if bounded.Err() != nil && ctx.Err() == nil {
			err = fault.New(fault.RateLimited, "rate_limit_exceeded", "other evaluations of this tenant used up the time of this one").After(time.Second)
		}
		return simulationResult{}, err
	}
	defer leave()
	// The child normally stops at the deadline itself. Otherwise it is killed after killGrace.
	rep, err := p.callOnce(bounded, limit+killGrace, req)
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok && f.Code == "cancelled" && ctx.Err() == nil,
		errors.Is(err, errDeadline):
		return simulationResult{}, limitFault(timeoutText(limit))
	case err != nil:
		return simulationResult{}, err
	case len(rep.Issues) > 0:
		return simulationResult{}, notCompiled(rep.Issues)
	case rep.Simulated == nil:
		return simulationResult{}, fault.New(fault.Internal, "internal_error", "the evaluator sent no answer")
	}
	return *rep.Simulated, nil
}

// killGrace is the time between the deadline of a child and its kill.
const killGrace = 150 * time.Millisecond

func timeoutText(limit time.Duration) string {
	return fmt.Sprintf("the evaluation did not finish within %s and was cancelled", limit)
}

func notCompiled(issues []lang.Issue) error {
	f := fault.New(fault.Invalid, "invalid_policy", "the control does not compile")
	for _, is := range issues {
		f.Details = append(f.Details, fault.Detail{Pointer: "/rego_code", Message: is.Message, Line: is.Line, Column: is.Column})
	}
	return f
}

// dataFor returns an object with only the values at paths. It is an error if they are larger than
// maxSimulationData; what completes the error text.
func dataFor(paths [][]string, src rego.DataSource, what string) (json.RawMessage, error) {
	data := value.Object(value.Member{Key: "resources", Value: value.Object()}, value.Member{Key: "pip", Value: value.Object()})
	if src == nil {
		return data.AppendJSON(nil), nil
	}
	room := sizeCounter{left: maxSimulationData}
	for _, path := range paths {
		v := src.Data(path)
		if !v.Defined() {
			continue
		}
		if !room.add(v) {
			return nil, limitFault(fmt.Sprintf("the control reads more than %d MiB of data, too much for %s", maxSimulationData>>20, what))
		}
		data = put(data, path, v)
	}
	return data.AppendJSON(nil), nil
}

// sizeCounter adds up the size of values as JSON.
type sizeCounter struct {
	left    int
	scratch []byte
}

// add adds v. It returns false if the limit is exceeded.
func (s *sizeCounter) add(v value.Value) bool {
	if v.Kind() != value.ObjectKind {
		s.scratch = v.AppendJSON(s.scratch[:0])
		s.left -= len(s.scratch)
		return s.left >= 0
	}
	v.Each(func(key string, member value.Value) bool {
		s.left -= len(key) + len(`"":,`)
		return s.add(member)
	})
	return s.left >= 0
}

// sentLimits returns the limits for values that the server sent, which were checked already.
func sentLimits() value.Limits { return value.Limits{Depth: 160, Values: maxSimulationData} }

// put sets v at a path of object, and creates missing members on the way.
func put(object value.Value, path []string, v value.Value) value.Value {
	if len(path) == 0 {
		return v
	}
	if object.Kind() != value.ObjectKind {
		object = value.Object()
	}
	return object.With(path[0], put(object.Get(path[0]), path[1:], v))
}

// Attributes returns the input attributes that each source reads, in the order of sources. For a
// source that does not compile, the list is empty. Faults: those of Validate.
func (p *Pool) Attributes(ctx context.Context, tenant scope.TenantID, sources []string) ([][]lang.Attribute, error) {
	rep, err := p.call(ctx, tenant, p.cfg.TestDeadline, request{Op: opAttributes, Sources: sources})
	if err != nil {
		return nil, err
	}
	if len(rep.Attributes) != len(sources) {
		return nil, fault.New(fault.Internal, "internal_error", "the evaluator sent no answer")
	}
	return rep.Attributes, nil
}

func (c *child) attributes(req request) reply {
	out := make([][]lang.Attribute, len(req.Sources))
	for i, source := range req.Sources {
		var issues []lang.Issue
		out[i], issues = lang.Attributes(source)
		c.addCheckPanics(issues...)
	}
	return reply{Attributes: out}
}

// documents decodes the input and the data.
func (t *simulationInput) documents() (input, data value.Value, err error) {
	if input, err = value.Decode(t.Input, sentLimits()); err == nil && len(t.Data) > 0 {
		data, err = value.Decode(t.Data, sentLimits())
	}
	return input, data, err
}

func (c *child) simulate(ctx context.Context, req request) reply {
	t := req.Simulation
	if t == nil {
		return reply{Error: "no simulation in the request"}
	}
	control, issues := c.compiled(t.Meta, req.Source, req.Libraries)
	if len(issues) > 0 {
		return reply{Issues: issues}
	}
	needs := control.Refs().Data
	if len(needs) > 0 && len(t.Data) == 0 {
		return reply{Simulated: &simulationResult{Needs: needs}}
	}
	input, data, err := t.documents()
	if err != nil {
		return reply{Error: err.Error()}
	}
	// Evaluate without a trace to measure the time, and then again with a trace.
	start := time.Now()
	lim := rego.Limits{Deadline: t.Deadline, Steps: math.MaxInt, Now: start, Caught: c.addPanic}
	out := control.Eval(ctx, input, rego.Object(data), lim)
	took := time.Since(start)
	var steps []reason.Step
	var why reason.Explanation
	if !errors.Is(out.Err, rego.ErrLimit) {
		lim.Deadline = max(t.Deadline-took, time.Millisecond)
		out, steps, why = explain.Trace(ctx, control, input, rego.Object(data), lim)
	}
	if errors.Is(out.Err, rego.ErrLimit) {
		if time.Since(start) < t.Deadline {
			return reply{Simulated: &simulationResult{Limit: "the evaluation exceeded its memory limit"}}
		}
		return reply{Simulated: &simulationResult{Limit: timeoutText(t.Deadline)}}
	}
	s := &Simulation{Effect: out.Effect.String(), Reason: out.Reason, Mask: out.Mask, Steps: steps, Explanation: why, Took: took}
	if out.Err != nil {
		s.Error = out.Err.Error()
	}
	size := len(out.Reason)
	for _, m := range out.Mask {
		size += len(m.Path) + len(m.Strategy)
	}
	if size > maxSimulationResult {
		return reply{Simulated: &simulationResult{Limit: fmt.Sprintf("the control's answer is over %d MiB", maxSimulationResult>>20)}}
	}
	return reply{Simulated: &simulationResult{Simulation: s}}
}

// compiled returns the compiled control, from the cache if possible.
func (c *child) compiled(m rego.Meta, source string, libs []lang.Library) (*rego.Control, []lang.Issue) {
	id := fmt.Appendf(nil, "%d %d %d %q %q", m.ID, m.Version, m.ResourceID, m.Name, source)
	for _, l := range libs {
		id = fmt.Appendf(id, " %d %d %q %q", l.ID, l.Version, l.Name, l.Source)
	}
	key := sha256.Sum256(id)
	if control := c.controls[key]; control != nil {
		return control, nil
	}
	control, issues := rego.Compile(m, source, libs...)
	if len(issues) > 0 {
		return nil, issues
	}
	if c.controls == nil || len(c.controls) >= maxCompiled {
		c.controls = map[[sha256.Size]byte]*rego.Control{}
	}
	c.controls[key] = control
	return control, nil
}
