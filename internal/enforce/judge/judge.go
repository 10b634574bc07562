// Package judge decides on requests. It asks the controls and turns their decision into a
// verdict on the request. In enforce mode, whatever prevents a proper decision is a
// denial.
package judge

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// Judge decides on requests with the active controls. All fields are required.
type Judge struct {
	Bundles  *bundlesync.Syncer
	Cache    *rego.Cache
	Accounts *usage.Accounts
	Tools    *session.Tools
	IDs      *ids.Source
	Panics   *panics.Reporter
	Count    *metrics.Counters
	Now      func() time.Time
	Deadline time.Duration // of one decision
}

// Decide decides on a request. In enforce mode nothing here fails open: whatever prevents
// a proper decision is a denial.
func (j *Judge) Decide(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, idErr error) (v Verdict) {
	v = Verdict{ID: j.IDs.Next(in.At), Mode: st.Mode}
	defer func() {
		if p := recover(); p != nil {
			j.Panics.Report(ctx, "a decision panicked", p, in.ID)
			v.Failure = "the evaluation failed"
			v.Resolve(request.Refuse(http.StatusServiceUnavailable, "evaluation_error", "the request could not be decided"), nil)
		}
	}()
	if st.Set == nil {
		v.Failure = "no policy bundle was ever received"
		v.Resolve(request.Refuse(http.StatusServiceUnavailable, "no_bundle", "no policies are loaded yet"), nil)
		return v
	}
	if st.MaxStale > 0 && j.Bundles.SinceContact(in.At) > st.MaxStale {
		v.Failure = "the policies are older than max_stale"
		v.Resolve(request.Refuse(http.StatusServiceUnavailable, "policy_stale", "the policies are too old to decide on"), nil)
		return v
	}
	var err error
	if _, in.Decided, err = in.FindPlace(st.Set).Locate(); err != nil {
		v.Failure = err.Error()
		v.Resolve(request.BadRequest("the path is ambiguous: "+err.Error()), nil)
		return v
	}
	var cache *rego.Cache
	if st.Cache && in.Seen == nil { // bodies and counts rarely repeat
		cache = j.Cache
	}
	if in.Seen != nil {
		j.addDeclaredParams(st, in)
		in.Seen.Serves = in.Resources(st)
		in.Seen.Read(in)
		if refusal := in.Seen.Refusal; refusal != nil {
			v.Decision.Resource = st.Set.Match(in.Locator())
			v.Failure = refusal.Message
			v.Resolve(refusal, nil)
			return v
		}
		j.reserveUsage(ctx, st, in, who)
		defer func() {
			if !v.Permits() {
				in.Seen.Account.Refund(ctx)
			}
		}()
	}
	whole := in.FindPlace(st.Set).Needs().Request
	req := in.DecisionRequest(st.Settings, who, whole)
	opt := rego.Options{Place: &in.Place, Cache: cache, CacheTTL: st.CacheTTL, Now: in.At, Deadline: in.Deadline(j.Deadline), Clock: j.Now}
	v.Asked = req
	v.Decision = st.Set.Decide(ctx, &req, opt)
	if p := v.Decision.Panic(); p != nil {
		j.Panics.EvaluatorHandler(ctx, in.ID)(p)
	}
	v.Hidden = v.Decision.ReasonSecrets(&req)
	j.Count.Decision(v.Decision.Duration, v.Decision.CacheHit)
	if r := v.Decision.Resource; r != nil && (r.AuditLevel == AuditDetailed || r.AuditLevel == AuditComprehensive) {
		opt.Caught = j.Panics.EvaluatorHandler(ctx, in.ID)
		v.Asked = in.WithHead(st.Settings, req)
		v.explain(ctx, st, &v.Asked, opt)
	}
	v.takeDecision(st, idErr)
	if v.Refusal.Code == "access_denied" && !v.Decision.Stopped && in.Seen.Harmless() {
		v.Decision = rego.Decision{Effect: rego.Allow, Permit: true, Reason: "MCP: pings and notifications pass", Resource: v.Decision.Resource, Revision: v.Decision.Revision, Considered: v.Decision.Considered, Ran: v.Decision.Ran, CacheHit: v.Decision.CacheHit, Duration: v.Decision.Duration}
		v.Explanation, v.Trace = nil, nil
		v.Resolve(nil, nil)
	}
	j.outOfBudget(ctx, st, in, who, &v)
	return v
}

// reserveUsage reserves usage for a request whose controls read input.usage.
func (j *Judge) reserveUsage(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller) {
	s := in.Seen
	if !s.Refs.Usage || s.Refusal != nil || s.Counted {
		return
	}
	if s.Account == nil {
		s.Account = j.Accounts.Open(in.UsageSubject(st, who))
	}
	s.Usage = s.Account.Reserve(ctx, in.At, s.LLM)
}

// addDeclaredParams adds the parameters that the MCP server's tools declare, if the request's headers
// must match them.
func (j *Judge) addDeclaredParams(st *settings.State, in *request.Inbound) {
	if s := in.Seen; s.Refs.MCP && (len(s.Head.MCP.Params) > 0 || s.Head.MCP.Name != "") {
		s.Head.MCP.Declared = j.Tools.Declared(in.ServerKey(st))
	}
}

// PermitsTool reports whether the caller may call a tool.
func (j *Judge) PermitsTool(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, name string) bool {
	d := j.DecideTool(ctx, st, in, who, name)
	return d.Permit && d.Err == nil
}

// DecideTool decides on a call of a tool, without arguments.
func (j *Judge) DecideTool(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, name string) rego.Decision {
	seen := *in.Seen
	seen.RPC = &mcp.Message{Method: "tools/call", Tool: name, Session: in.Seen.Head.MCP.Session, Version: in.Seen.Head.MCP.Version}
	asked := *in
	asked.Seen = &seen
	q := asked.DecisionRequest(st.Settings, who, true)
	return st.Set.Decide(ctx, &q, rego.Options{Now: in.At, Deadline: j.Deadline, Clock: j.Now, Caught: j.Panics.EvaluatorHandler(ctx, in.ID)})
}
