package decision

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// EvaluateBulk decides up to MaxBulk requests with one snapshot. read returns the items; it runs
// within the tenant's share of the processors. All items are checked before the first one is
// decided, so a call with an invalid item decides nothing.
//
// The whole call has a deadline. Items for which no time is left are DENY with the reason
// evaluation_limit. If the caller disconnects, it stops and records nothing (Unavailable
// "cancelled").
func (s *Service) EvaluateBulk(ctx context.Context, sc scope.Scope, read func() ([]value.Value, error)) (Bulk, error) {
	env := sc.EnvOr(scope.Production)
	set, err := s.Snapshots.Get(ctx, sc.Tenant, env)
	if err != nil {
		return Bulk{}, err
	}
	b := bulkCall{Service: s, caller: ctx, set: set}
	if s.BulkDeadline > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, s.BulkDeadline)
		defer done()
	}
	b.turn = s.startTurn(ctx, sc.Tenant, s.Now(), s.BulkDeadline)
	out, records, err := b.run(ctx, sc, env, read)
	b.turn.end()
	if err == nil {
		err = s.RecordAll(sc.Tenant, records)
	}
	s.recycle(records)
	if err != nil {
		return Bulk{}, err
	}
	return out, nil
}

// maxKeptRecords is the largest number of records whose memory is reused for the next bulk
// call.
const maxKeptRecords = 200

// takeRecords returns memory for n empty records.
func (s *Service) takeRecords(n int) []audit.Decision {
	if kept, ok := s.records.Get().(*[]audit.Decision); ok && cap(*kept) >= n {
		return (*kept)[:n]
	}
	return make([]audit.Decision, n)
}

// recycle keeps the memory of written records for reuse.
func (s *Service) recycle(records []audit.Decision) {
	if cap(records) == 0 || cap(records) > maxKeptRecords {
		return
	}
	clear(records)
	s.records.Put(&records)
}

// bulkCall is a bulk call in progress.
type bulkCall struct {
	*Service
	caller context.Context
	set    *rego.Set
	turn   *turn
	spent  time.Duration // since the last pause
}

// bulkPause is the evaluation time after which a bulk call pauses between two items.
const bulkPause = 50 * time.Microsecond

func (b *bulkCall) run(ctx context.Context, sc scope.Scope, env scope.Env, read func() ([]value.Value, error)) (Bulk, []audit.Decision, error) {
	inTime := b.pause() // reading a large body counts as work too
	items, err := read()
	if err != nil {
		return Bulk{}, nil, err
	}
	parsed, err := parseBulk(env, items)
	if err != nil {
		return Bulk{}, nil, err
	}
	for i := range parsed {
		if err := limitAgent(sc, &parsed[i].request); err != nil {
			return Bulk{}, nil, err
		}
	}
	out := Bulk{Results: make([]BulkResult, 0, len(items))}
	records := b.takeRecords(len(items))
	var total time.Duration
	for i := range parsed {
		it, sc := &parsed[i], sc
		if it.named {
			sc.Env = env
		}
		own := b.NewID()
		var d rego.Decision
		if inTime = inTime && ctx.Err() == nil; inTime {
			if d, err = b.decideInto(ctx, sc, b.set, &it.request, own, &records[i], b.turn, b.Person); err != nil {
				return Bulk{}, nil, err
			}
			inTime = b.pauseBetween(d.Duration)
		} else if b.caller.Err() != nil {
			return Bulk{}, nil, fault.Cancelled(b.caller.Err())
		} else {
			d = b.timedOut(sc, b.set, &it.request, own, &records[i])
		}
		if records[i].CallerID = it.id; it.id == "" {
			it.id = own
		}
		total += d.Duration
		out.Results = append(out.Results, BulkResult{
			DecisionID: it.id, AuditID: own, Decision: effectOf(d.Permit), Reason: d.Reason, EvaluationTimeMS: milliseconds(d.Duration), Mask: d.Mask,
			RequestAccess: RequestAccessFor(&d, &it.request),
		})
	}
	out.TotalEvaluationTimeMS = milliseconds(total)
	return out, records, nil
}

// pauseBetween pauses between two items if the items since the last pause took bulkPause. took is
// the time of the last item. It returns false if no time is left.
func (b *bulkCall) pauseBetween(took time.Duration) bool {
	if b.spent += took; b.spent < bulkPause {
		return true
	}
	b.spent = 0
	return b.pause()
}

func (b *bulkCall) pause() bool { return b.turn == nil || b.turn.pause() }

// timedOut returns the decision on an item for which no time is left.
func (s *Service) timedOut(sc scope.Scope, set *rego.Set, req *rego.Request, id string, rec *audit.Decision) rego.Decision {
	d := set.Refuse(req, rego.ErrLimit)
	record(rec, sc, set.Agents(), req, &d, id, s.Now().Truncate(time.Microsecond))
	s.count(sc.Tenant, &d)
	return d
}

// bulkItem is one request of a bulk call: the caller's id for it, and whether it
// names its environment.
type bulkItem struct {
	request rego.Request
	id      string
	named   bool
}

// parseBulk reads the items of a bulk call: each is a decision request with the caller's
// decision_id. One snapshot decides all, so an item may only name env, the environment of
// the call. It collects the errors of all items.
func parseBulk(env scope.Env, items []value.Value) ([]bulkItem, error) {
	if len(items) > MaxBulk {
		return nil, fault.Invalidf("/decisions", "%d decisions; at most %d in one call", len(items), MaxBulk)
	}
	out := make([]bulkItem, len(items))
	var offences []fault.Detail
	for i, item := range items {
		at := "/decisions/" + strconv.Itoa(i)
		if item.Kind() != value.ObjectKind {
			offences = append(offences, fault.Detail{Pointer: at, Message: "must be an object"})
			continue
		}
		asked, bad := environment(item)
		if len(bad) == 0 && asked != scope.AnyEnv && asked != env {
			bad = append(bad, fault.Detail{Pointer: "/environment", Message: "the call decides in " + string(env) + "; an item cannot name another environment"})
		}
		req, more := parse(item)
		for _, d := range append(bad, more...) {
			d.Pointer = at + d.Pointer
			offences = append(offences, d)
		}
		out[i].request, out[i].named = req, asked != scope.AnyEnv
		out[i].id, _ = item.Get("decision_id").Str()
	}
	if len(offences) > 0 {
		return nil, invalid(offences)
	}
	return out, nil
}

// parse reads one decision request. It accepts a decision_id, so that an item of a bulk call is also
// a valid single request.
func parse(body value.Value) (rego.Request, []fault.Detail) {
	req, offences := rego.ParseRequest(body)
	if id := body.Get("decision_id"); id.Defined() {
		if s, ok := id.Str(); !ok || len(s) > 200 {
			offences = append(offences, fault.Detail{Pointer: "/decision_id", Message: "must be a string of at most 200 bytes"})
		}
	}
	return req, offences
}

// environment returns the environment that a request names in its body; AnyEnv means none.
func environment(body value.Value) (scope.Env, []fault.Detail) {
	v := body.Get("environment")
	if !v.Defined() {
		return scope.AnyEnv, nil
	}
	name, _ := v.Str()
	if env := scope.Env(name); env.Valid() {
		return env, nil
	}
	return scope.AnyEnv, []fault.Detail{{Pointer: "/environment", Message: "must be sandbox or production"}}
}

// scopeFor returns the scope of a decision whose body names env. The environment can also come from
// the query, the header and the credential.
func scopeFor(sc scope.Scope, env scope.Env) (scope.Scope, error) {
	switch {
	case env == scope.AnyEnv || env == sc.Env:
		return sc, nil
	case sc.EnvBound:
		return sc, sc.May(env)
	case sc.Env != scope.AnyEnv:
		return sc, fault.New(fault.BadRequest, "environment_conflict", "the request names two different values for its environment")
	}
	sc.Env = env
	return sc, nil
}
