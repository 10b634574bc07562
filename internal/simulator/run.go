package simulator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// maxRecord limits the record of a run in bytes; the details of a longer trace are left out.
const maxRecord = 4 << 20

// goneGrace limits the time to store the record of a run whose caller has disconnected.
const goneGrace = 5 * time.Second

// trialRun is one simulation in progress.
type trialRun struct {
	libraries []lang.Library
	sc        scope.Scope
	policy    policy.Policy
	scenario  *Scenario
	record    record.Record
	set       *rego.Set
	filled    filled
	took      time.Duration
}

// Simulate evaluates a control of the scope on an input, and stores the run. Faults: NotFound for
// the control or the scenario; Invalid "evaluation_limit" if the evaluation exceeded its time or
// memory, which is stored as a DENY with its error; RateLimited; Unavailable.
func (s *Service) Simulate(ctx context.Context, sc scope.Scope, id int64, r Request) (Result, error) {
	run, err := s.prepare(ctx, sc, id, r)
	if err != nil {
		return Result{}, err
	}
	start := s.Now()
	sim, err := s.Evaluator.Simulate(ctx, sc.Tenant, worker.SimulateRequest{
		Meta: meta(run.policy), Source: run.policy.RegoCode, Libraries: run.libraries, Input: run.filled.input, Data: run.data(),
	})
	if err != nil {
		return Result{}, s.storeFailed(ctx, run, s.Now().Sub(start), err)
	}
	run.took = sim.Took
	if s.LiveDeadline > 0 && sim.Took > s.LiveDeadline {
		run.filled.note("This took %s; a live evaluation is cancelled after %s with DENY, %s.", sim.Took.Round(time.Millisecond), s.LiveDeadline, rego.ReasonLimit)
	}
	if err := run.fillRecord(sim); err != nil {
		return Result{}, err
	}
	return s.storeRun(ctx, run)
}

// data returns the data that the control reads.
func (run *trialRun) data() rego.DataSource {
	if readsResources(run.sc) {
		return run.set
	}
	return rego.WithoutAttributes(run.set)
}

// prepare loads the control, the scenario and the data of a run.
func (s *Service) prepare(ctx context.Context, sc scope.Scope, id int64, r Request) (*trialRun, error) {
	p, err := s.control(ctx, sc, id)
	if err != nil {
		return nil, err
	}
	run := &trialRun{sc: sc, policy: p}
	if run.libraries, err = s.Policies.Libraries(ctx, sc, p.Environment); err != nil {
		return nil, err
	}
	if r.Scenario != nil {
		found, err := s.Scenario(ctx, sc, *r.Scenario)
		if err != nil {
			return nil, err
		}
		if found.PolicyID != id {
			return nil, fault.NotFoundf("no such scenario")
		}
		run.scenario = &found
		if !r.Input.Defined() {
			if r.Input.Value, err = expand(found.Attributes); err != nil {
				return nil, err
			}
		}
		r.TestType = cmp.Or(r.TestType, OfScenario)
	}
	r.TestType = cmp.Or(r.TestType, Manual)
	if r.Input.Kind() != value.ObjectKind {
		return nil, fault.Invalidf("/input_json", "send an object, or a scenario_id whose attributes are the input")
	}
	if run.set, err = s.Snapshots.Get(ctx, sc.Tenant, p.Environment); err != nil {
		return nil, err
	}
	if run.filled, err = s.fill(ctx, sc, p, run.set, r.Input.Value); err != nil {
		return nil, err
	}
	if _, err := value.Decode(run.filled.input.AppendJSON(nil), value.Limits{}); err != nil {
		return nil, fault.Invalidf("/input_json", "the input, completed from the resource and the user, is too large or too deep")
	}
	run.record = record.Record{
		Input: r.Input, EvaluatedInput: record.Object{Value: run.filled.input}, TestType: r.TestType, Environment: p.Environment, Timestamp: s.Now().Truncate(time.Microsecond),
		Policy: record.Subject{ID: p.ID, Name: p.Name, Version: p.Version, Status: shownStatus(p.Status)},
		User:   record.Actor{Kind: sc.Actor.Kind, ID: sc.Actor.ID, Name: nameOf(sc.Actor)},
		Trace:  []reason.Step{}, SourceLines: []record.SourceLine{},
	}
	if res := run.filled.resource; res != nil {
		run.record.Resource = &record.Named{ID: res.ID, Name: res.Name}
	}
	if run.scenario != nil {
		run.record.Scenario = &record.Named{ID: run.scenario.ID, Name: run.scenario.Name}
	}
	return run, nil
}

func meta(p policy.Policy) rego.Meta {
	m := rego.Meta{ID: p.ID, Name: p.Name, Version: p.Version}
	if p.ResourceID != nil {
		m.ResourceID = *p.ResourceID
	}
	return m
}

// fillRecord fills in the record with the result of the evaluation.
func (run *trialRun) fillRecord(sim worker.Simulation) error {
	rec := &run.record
	rec.Decision, rec.Reason, rec.Error, rec.Explanation = sim.Effect, sim.Reason, sim.Error, sim.Explanation
	if sim.Steps != nil {
		rec.Trace = sim.Steps
	}
	rec.SourceLines = sourceLines(run.policy.RegoCode, sim.Explanation)
	d := rego.Decision{Reason: sim.Reason, Mask: sim.Mask, Resource: run.filled.resource}
	for _, e := range []rego.Effect{rego.Allow, rego.Mask, rego.Deny} {
		if e.String() == sim.Effect {
			d.Effect, d.Permit = e, e.Permits()
			d.PolicyID, d.PolicyName, d.PolicyVersion = run.policy.ID, run.policy.Name, run.policy.Version
		}
	}
	var err error
	rec.Output.Value, err = decode(d.AppendJSON(nil))
	return err
}

// storeFailed stores a run that did not end, and returns its error.
func (s *Service) storeFailed(ctx context.Context, run *trialRun, took time.Duration, cause error) error {
	f, ok := errors.AsType[*fault.Error](cause)
	if !ok || f.Code != "evaluation_limit" && f.Code != "cancelled" {
		return cause
	}
	reason := rego.ReasonLimit
	if f.Code == "cancelled" {
		reason = "The caller disconnected before the evaluation ended"
	}
	run.took = took
	if err := run.fillRecord(worker.Simulation{Effect: rego.Deny.String(), Reason: reason, Error: f.Message}); err != nil {
		return err
	}
	kept, stop := context.WithTimeout(context.WithoutCancel(ctx), goneGrace)
	defer stop()
	if _, err := s.storeRun(kept, run); err != nil {
		return err
	}
	return cause
}

// storeRun writes the log row, the audit entry and the scenario's last use in one transaction. It
// returns the answer, which is made from the stored record.
func (s *Service) storeRun(ctx context.Context, run *trialRun) (Result, error) {
	rec := run.record
	rec.ExecutionTimeMS = milliseconds(run.took)
	rec.Notes = run.filled.notes
	if rec.Notes == nil {
		rec.Notes = []string{}
	}
	text, clean, err := sealRecord(rec)
	if err == nil && len(text) > maxRecord {
		for i := range rec.Trace {
			rec.Trace[i].Details = value.Object()
		}
		rec.Notes = append(rec.Notes, "The values in the trace were too long to store; they are left out.")
		text, clean, err = sealRecord(rec)
	}
	if err != nil {
		return Result{}, fault.Wrap(err, "simulator: writing the record")
	}
	sum := sha256.Sum256(text)
	r := row{
		PolicyID: run.policy.ID, PolicyName: run.policy.Name, Environment: run.policy.Environment,
		ActorKind: run.sc.Actor.Kind, ActorID: run.sc.Actor.ID, ActorName: nameOf(run.sc.Actor),
		Decision: rec.Decision, Nanoseconds: run.took.Nanoseconds(), Summary: summary(clean.Input.Value), AuditLevel: string(audit.Basic),
		Digest: hex.EncodeToString(sum[:]), Record: string(text), CreatedAt: rec.Timestamp,
	}
	if res := run.filled.resource; res != nil {
		r.AuditLevel = string(audit.LevelOf(res.AuditLevel))
	}
	err = s.write(ctx, run.sc, func(tx *db.Tx) error {
		if err := user.RequireActor(ctx, tx, run.sc); err != nil {
			return err
		}
		if r.ID, err = insert(ctx, tx, r); err != nil {
			return err
		}
		if run.scenario != nil {
			if err := useScenario(ctx, tx, run.scenario.ID, rec.Timestamp); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, run.sc, s.Now(), entry(r, clean))
	})
	if err != nil {
		return Result{}, err
	}
	clean.Input = rec.Input // the caller sent it, so it needs no redaction in the answer
	return Result{SimulationID: &r.ID, Checksum: checksum(r.Digest), Record: clean}, nil
}

// entry returns the audit entry of a run. It contains the digest of the row, and so the hash chain
// of the audit covers the row.
func entry(r row, rec record.Record) audit.Entry {
	about := map[string]any{
		"simulation_id": r.ID, "decision": rec.Decision, "reason": rec.Reason, "test_type": rec.TestType,
		"policy_version": rec.Policy.Version, "execution_time_ms": rec.ExecutionTimeMS, "checksum": checksum(r.Digest),
	}
	if rec.Scenario != nil {
		about["scenario_id"] = rec.Scenario.ID
	}
	if rec.Error != "" {
		about["error"] = rec.Error
	}
	return audit.Entry{
		Type: "POLICY_SIMULATION_RUN", Object: "policy", ObjectID: strconv.FormatInt(r.PolicyID, 10), ObjectName: r.PolicyName,
		Env: r.Environment, EventContext: about,
	}
}

func checksum(digest string) string { return "sha256:" + digest }

func parseStored(r row) (record.StoredRun, error) {
	sum := sha256.Sum256([]byte(r.Record))
	k := record.StoredRun{ID: r.ID, Checksum: checksum(r.Digest), Intact: hex.EncodeToString(sum[:]) == r.Digest, Text: json.RawMessage(r.Record)}
	if err := json.Unmarshal(k.Text, &k.Record); err != nil {
		return record.StoredRun{}, fault.Wrap(err, "simulator: reading a record")
	}
	return k, nil
}

// maxSourceLines limits the excerpt of a control.
const maxSourceLines = 60

// nearLines is the largest gap between two lines of the excerpt that is filled with the lines
// between them.
const nearLines = 2

// sourceLines returns the lines that matter for the decision: those of the rule that decided and,
// for a denial, those of the nearest rule that would have allowed.
func sourceLines(source string, why reason.Explanation) []record.SourceLine {
	outcome := map[int]string{}
	mark := func(first int, said string, conditions ...reason.Condition) {
		if first > 0 {
			outcome[first] = said
		}
		for _, c := range conditions {
			switch {
			case c.Unreached && outcome[c.Line] != "":
			case c.Unreached:
				outcome[c.Line] = ""
			default:
				outcome[c.Line] = map[bool]string{true: "held", false: "failed"}[c.Holds]
			}
		}
	}
	if near := why.Nearest; near != nil {
		mark(near.Line, "", slices.Concat(near.Held, near.Missing)...)
	}
	mark(why.Line, "decided", why.Conditions...)
	out := []record.SourceLine{}
	last := 0
	text := strings.Split(source, "\n")
	for _, line := range slices.Sorted(maps.Keys(outcome)) {
		if line < 1 || line > len(text) || len(out) >= maxSourceLines {
			continue
		}
		if last > 0 && line-last <= nearLines+1 {
			for between := last + 1; between < line; between++ {
				out = append(out, record.SourceLine{Line: between, Text: strings.TrimRight(text[between-1], "\r")})
			}
		}
		out = append(out, record.SourceLine{Line: line, Text: strings.TrimRight(text[line-1], "\r"), Outcome: outcome[line]})
		last = line
	}
	return out
}
