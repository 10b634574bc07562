package decision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Lookup returns the stored members of input.user, undefined for a user who is not stored.
// Faults: those of the store, and ErrPersonUnknown.
type Lookup func(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error)

// Service makes decisions. Its fields are its dependencies. Cache, and those whose comments mention
// nil or 0, are optional.
type Service struct {
	Snapshots *Snapshots
	// Person looks up the user of a decision.
	Person Lookup
	// Record stores an audit record, RecordAll those of a bulk call. The answer is sent only after
	// they return.
	Record    func(tenant scope.TenantID, d *audit.Decision) error
	RecordAll func(tenant scope.TenantID, ds []audit.Decision) error
	// KeepsInput reports whether the input of a decision at audit level basic is stored for
	// replay. If it is nil, none is.
	KeepsInput func(tenant scope.TenantID, now time.Time) bool
	// Tally returns the tally of a control, always the same one. Policy 0 is for decisions that
	// no control made. Each evaluation counts its part of the decision's time.
	Tally func(tenant scope.TenantID, policy int64) *rego.Tally
	// Cache is the decision cache; nil turns it off.
	Cache *rego.Cache
	// Share divides the processors between tenants; nil: no limit.
	Share *ProcessorShare
	// Deadline limits the running time of one live evaluation; time spent waiting for a
	// share of the processors is not included. BulkDeadline limits a whole bulk call,
	// including waits; 0: no limit.
	Deadline, BulkDeadline time.Duration
	Now                    func() time.Time
	NewID                  func() string
	// Traced is called for each single decision that is answered. It may be nil.
	Traced func(ctx context.Context, id, effect string)
	// Panics is called for panics of the evaluator. It may be nil.
	Panics *fault.Panics

	assumed assumedReasons
	records sync.Pool // *[]audit.Decision, empty: see takeRecords
	single  sync.Pool // *audit.Decision, empty
}

// Evaluate decides one request, in the environment that the scope or the request names.
// Faults: Invalid with every error in the request; BadRequest "environment_conflict" and Forbidden
// "environment_denied" if the two name different ones; Unavailable if the decision log cannot be
// written: then there is no decision.
func (s *Service) Evaluate(ctx context.Context, sc scope.Scope, body value.Value) (Result, error) {
	asked, offences := environment(body)
	sc, err := scopeFor(sc, asked)
	if err != nil {
		return Result{}, err
	}
	set, err := s.Snapshots.Get(ctx, sc.Tenant, sc.EnvOr(scope.Production))
	if err != nil {
		return Result{}, err
	}
	req, bad := parse(body)
	if offences = append(offences, bad...); len(offences) > 0 {
		return Result{}, invalid(offences)
	}
	id := s.NewID()
	callerID, _ := body.Get("decision_id").Str()
	d, at, err := s.decide(ctx, sc, set, &req, id, callerID)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Decision: effectOf(d.Permit), Reason: d.Reason, PolicyName: name(&d), EvaluationTimeMS: milliseconds(d.Duration),
		CacheHit: d.CacheHit, DecisionID: id, Timestamp: at, Mask: d.Mask, RequestAccess: RequestAccessFor(&d, &req),
	}, nil
}

// DecideAnyInput is Evaluate for other protocols. Controls can read all members of the input, not only
// the four parts. It returns the decision, its id, and the request for access that may follow it
// (nil if none).
func (s *Service) DecideAnyInput(ctx context.Context, sc scope.Scope, input value.Value) (rego.Decision, string, *RequestAccess, error) {
	set, err := s.Snapshots.Get(ctx, sc.Tenant, sc.EnvOr(scope.Production))
	if err != nil {
		return rego.Decision{}, "", nil, err
	}
	req, offences := rego.ParseOpen(input)
	if len(offences) > 0 {
		return rego.Decision{}, "", nil, invalid(offences)
	}
	id := s.NewID()
	// With the environment set, no reason gets the ending assumedEnvironment: in these protocols,
	// reasons must be equal to those of a bundle.
	sc.Env = sc.EnvOr(scope.Production)
	d, _, err := s.decide(ctx, sc, set, &req, id, "")
	request := RequestAccessFor(&d, &req)
	return d, id, request, err
}

// decide decides one request and stores its record. callerID is the caller's own id for the decision;
// "" if there is none.
func (s *Service) decide(ctx context.Context, sc scope.Scope, set *rego.Set, req *rego.Request, id, callerID string) (rego.Decision, time.Time, error) {
	rec, ok := s.single.Get().(*audit.Decision)
	if !ok {
		rec = new(audit.Decision)
	}
	t := s.startTurn(ctx, sc.Tenant, s.Now(), waitFactor*s.Deadline)
	d, err := s.decideInto(ctx, sc, set, req, id, rec, t, s.Person)
	t.end()
	if rec.CallerID = callerID; err == nil {
		err = s.Record(sc.Tenant, rec)
	}
	if err == nil && s.Traced != nil {
		s.Traced(ctx, id, d.Effect.String())
	}
	at := rec.Timestamp
	*rec = audit.Decision{}
	s.single.Put(rec)
	return d, at, err
}

// Read calls parse, which parses a request of this many bytes. A large request takes as long as a
// slow evaluation, so parsing it counts against the tenant's share of the processors. Faults: those
// of parse, and RateLimited if no slot becomes free in time.
func (s *Service) Read(ctx context.Context, tenant scope.TenantID, size int, parse func() (value.Value, error)) (value.Value, error) {
	if s.Share != nil && size > largeRequest {
		done, err := s.Share.Acquire(ctx, tenant, waitFactor*s.Deadline)
		if err != nil {
			return value.Value{}, err
		}
		defer done()
	}
	return parse()
}

// largeRequest is the size of a request in bytes that takes about 100 us to read.
const largeRequest = 16 << 10

// startTurn begins a turn of the tenant's share. It returns nil if there is no share.
func (s *Service) startTurn(ctx context.Context, tenant scope.TenantID, now time.Time, most time.Duration) *turn {
	if s.Share == nil {
		return nil
	}
	return s.Share.begin(ctx, tenant, now, most)
}

// decideInto decides one request and fills in its record. It yields to other work as t requires. It
// looks up the user with stored.
func (s *Service) decideInto(ctx context.Context, sc scope.Scope, set *rego.Set, req *rego.Request, id string, rec *audit.Decision, t *turn, stored Lookup) (rego.Decision, error) {
	if err := limitAgent(sc, req); err != nil {
		return rego.Decision{}, err
	}
	unknown := fillUser(ctx, sc.Tenant, req, stored)
	if unknown != nil && !errors.Is(unknown, ErrPersonUnknown) {
		return rego.Decision{}, unknown
	}
	now := s.Now()
	// The log stores microseconds, so the answer has the same precision.
	at := now.Truncate(time.Microsecond)
	opt := rego.Options{Cache: s.Cache, Now: now, Deadline: s.Deadline, Clock: s.Now}
	if t != nil {
		opt.Clock, opt.Pause = t.clock, t.pause
	}
	d := set.Decide(ctx, req, opt)
	if sc.Env == scope.AnyEnv && !d.Authored && !d.Stopped && d.Err == nil {
		d.Reason = s.assumed.reason(d.Reason)
	}
	if p := d.Panic(); p != nil {
		s.panicHandler(ctx, sc, id)(p)
	}
	record(rec, sc, set.Agents(), req, &d, id, at)
	if unknown != nil && rec.Error == "" {
		rec.Error = unknown.Error() // marks a decision about a user who could not be looked up
	}
	switch rec.AuditLevel {
	case audit.Detailed, audit.Comprehensive:
		opt.Caught = s.panicHandler(ctx, sc, id)
		addExplanation(ctx, rec, set, req, opt, d)
	case audit.Basic:
		if s.KeepsInput != nil && s.KeepsInput(sc.Tenant, now) {
			rec.Input = appendInput(make([]byte, 0, 512), req)
		}
	}
	s.count(sc.Tenant, &d)
	return d, nil
}

// panicHandler returns a function that reports a panic of the evaluator in a decision.
func (s *Service) panicHandler(ctx context.Context, sc scope.Scope, id string) func(*rego.Panic) {
	return func(p *rego.Panic) {
		s.Panics.Caught(ctx, "decision", p.Value, p.Stack, "tenant", sc.Tenant, "request_id", sc.RequestID, "decision_id", id)
	}
}

// count counts the decision and the evaluation of each of its controls.
func (s *Service) count(tenant scope.TenantID, d *rego.Decision) {
	find := func(control int64) *rego.Tally { return s.Tally(tenant, control) }
	for _, c := range d.Ran {
		c.Tally(find).Evaluated(d.Duration/time.Duration(len(d.Ran)), d.CacheHit)
	}
	if c := d.Decider(); c != nil {
		c.Tally(find).Decided[d.Effect].Add(1)
		return
	}
	find(0).Decided[d.Effect].Add(1)
}

// fillUser adds members of the stored user with the same id to input.user, unless the request has
// them. Faults: those of stored, and Unavailable "cancelled" if the caller disconnected.
func fillUser(ctx context.Context, tenant scope.TenantID, req *rego.Request, stored Lookup) error {
	id, ok := req.User.Get("id").Str()
	if !ok || id == "" || req.NotStored {
		return nil
	}
	known, err := stored(ctx, tenant, id)
	switch {
	case err != nil && ctx.Err() != nil:
		return stoppedFault(ctx)
	case err != nil:
		return err
	case !known.Defined():
		return nil
	}
	known.Each(func(member string, v value.Value) bool {
		if !req.User.Get(member).Defined() {
			req.User = req.User.With(member, v)
		}
		return true
	})
	return nil
}

// record fills in the audit record of a decision.
func record(rec *audit.Decision, sc scope.Scope, agents actor.Agents, req *rego.Request, d *rego.Decision, id string, at time.Time) {
	*rec = audit.Decision{
		DecisionID: id, Timestamp: at,
		User:     audit.User{ID: text(req.User, "id"), Email: text(req.User, "email")},
		Resource: audit.Resource{ID: text(req.Resource, "id"), Type: text(req.Resource, "type"), Path: text(req.Resource, "path")},
		Action:   text(req.Action, "name"), Decision: effectOf(d.Permit), Effect: d.Effect.String(),
		PolicyID: d.PolicyID, PolicyName: name(d), PolicyVersion: d.PolicyVersion, Reason: d.Reason,
		EvaluationTimeMS: milliseconds(d.Duration), IPAddress: text(req.Context, "ip_address"),
		Environment: sc.EnvOr(scope.Production), RequestID: sc.RequestID, CacheHit: d.CacheHit, Revision: d.Revision,
		AuditLevel: audit.Basic,
	}
	rec.Action = cmp.Or(rec.Action, req.Method)
	if d.Err != nil {
		rec.Error = d.Err.Error()
	}
	rec.Agent = agents.Find(req.User, req.Extra.Get("mcp"), req.Extra.Get("llm"))
	rec.Hidden = d.ReasonSecrets(req)
	if r := d.Resource; r != nil {
		rec.ResourceID = r.ID
		rec.AuditLevel = audit.LevelOf(r.AuditLevel)
		rec.RegulationTags = r.Tags
		rec.Resource.Type = cmp.Or(rec.Resource.Type, r.Type)
	}
}

// addExplanation adds what the higher audit levels store: input and explanation, and at level
// comprehensive also the trace.
func addExplanation(ctx context.Context, rec *audit.Decision, set *rego.Set, req *rego.Request, opt rego.Options, d rego.Decision) {
	rec.Input, rec.Hidden = appendInput(nil, req), d.InputSecrets(req)
	if rec.AuditLevel == audit.Detailed {
		rec.Explanation = document(explain.Decision(ctx, set, req, opt, d))
		return
	}
	steps, why := explain.TraceDecision(ctx, set, req, opt, d)
	rec.Trace, rec.Explanation = document(steps), document(why)
}

// document returns a list as JSON; nil if it is empty.
func document[T any](list []T) json.RawMessage {
	if len(list) == 0 {
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return text
}

// appendInput writes a request as the evaluator received it, including members besides the
// four parts, so that it can be replayed.
func appendInput(dst []byte, req *rego.Request) []byte {
	dst = append(dst, '{')
	member := func(key string, v value.Value) bool {
		if !v.Defined() {
			return true
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = value.AppendString(dst, key)
		dst = append(dst, ':')
		dst = v.AppendJSON(dst)
		return true
	}
	member("user", req.User)
	member("action", req.Action)
	member("resource", req.Resource)
	member("context", req.Context)
	req.Extra.Each(member)
	return append(dst, '}')
}

// text returns a member as text: a string unchanged, a number as in the request.
func text(v value.Value, member string) string {
	m := v.Get(member)
	if s, ok := m.Str(); ok {
		return s
	}
	if m.Kind() == value.NumberKind {
		return string(m.AppendJSON(nil))
	}
	return ""
}

func effectOf(permit bool) string {
	if permit {
		return audit.Permit
	}
	return audit.Deny
}

func name(d *rego.Decision) *string {
	if d.PolicyID == 0 {
		return nil
	}
	text := d.PolicyName // a copy, because a pointer into the decision would move all of it to the heap
	return &text
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func invalid(offences []fault.Detail) error {
	return fault.CheckValues("the decision request has errors", offences)
}
