// Package gateway answers proxies that ask before they forward: nginx, Traefik and Caddy
// by forward-auth, Envoy by ext_authz over gRPC or HTTP.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/extauthz"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/record"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/refuse"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/shadow"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// defaultCheckTime is how long a check may take when Envoy sends no deadline. Envoy's
	// own default is 200ms; after that it refuses or passes the request by itself.
	defaultCheckTime = 150 * time.Millisecond
	// maxPending limits the shadow decisions that are running.
	maxPending = 256
)

// The members of context_extensions that the bouncer reads.
const (
	extensionBouncer  = "bouncer"
	extensionResource = "resource"
)

// Gateway answers nginx, Traefik and Caddy by forward-auth, and Envoy by ext_authz. All
// fields with capitals but TraceCheck are required.
type Gateway struct {
	State    *atomic.Pointer[settings.State]
	Reader   *request.Reader
	Judge    *judge.Judge
	Recorder *record.Recorder
	Refusals *refuse.Writer
	Shadow   *shadow.Decider
	Panics   *panics.Reporter
	Count    *metrics.Counters
	Log      *slog.Logger
	Now      func() time.Time
	// TraceCheck starts a span for a check over gRPC. call is the metadata of the call, checked the
	// request that Envoy asks about. end takes the HTTP status of the answer. If TraceCheck is nil,
	// nothing is traced.
	TraceCheck func(ctx context.Context, call map[string][]string, checked *http.Request) (_ context.Context, end func(status int))
	pending    atomic.Int64   // shadow decisions for Envoy that are running
	checking   sync.WaitGroup // of those decisions
}

// Wait waits for decisions in shadow mode that take longer than their answers.
func (g *Gateway) Wait() { g.checking.Wait() }

// checkCall answers a check, with a span if tracing is on.
func (g *Gateway) checkCall(ctx context.Context, c *extauthz.Check) *extauthz.Answer {
	if g.TraceCheck == nil {
		return g.check(ctx, c)
	}
	path, _, _ := strings.Cut(c.Target, "?")
	ctx, end := g.TraceCheck(ctx, extauthz.Metadata(ctx), &http.Request{Method: c.Method, Host: c.Host, URL: &url.URL{Path: path}, Header: http.Header(c.Header)})
	a := g.check(ctx, c)
	if a.OK {
		end(http.StatusOK)
	} else {
		end(a.Status)
	}
	return a
}

// check decides whether Envoy may forward a request. Every refusal is an answer, never an
// error, because Envoy can be configured to let requests pass on errors. In shadow mode the
// answer always allows the request, within the deadline, with the verdict in its metadata.
func (g *Gateway) check(ctx context.Context, c *extauthz.Check) (a *extauthz.Answer) {
	st := g.State.Load()
	in := g.requestOf(st, c)
	defer g.recoverCheck(ctx, st, &in, &a)
	if refusal := validateCheck(&in, c, st); refusal != nil {
		return g.refuseCheck(st, &in, refusal)
	}
	patience := defaultCheckTime
	if end, set := ctx.Deadline(); set {
		patience = time.Until(end) * 3 / 4 // the rest is for the network
	}
	if st.Mode == settings.Enforcing {
		in.MaxWait = max(patience, time.Millisecond)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return g.decideCheck(ctx, st, in, c)
	}
	if g.pending.Add(1) > maxPending {
		g.pending.Add(-1)
		g.Shadow.RecordSkipped(shadow.Job{State: st, Inbound: in, Caller: identity.Anonymous()})
		return g.passCheck(st, &in, "shadow_overload")
	}
	in.Headers = in.Headers.Clone() // the decision may outlive the request
	done := make(chan *extauthz.Answer, 1)
	g.checking.Go(func() {
		defer g.pending.Add(-1)
		done <- g.decideCheck(context.WithoutCancel(ctx), st, in, c)
	})
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-done:
		return a
	case <-late.C:
		return g.passCheck(st, &in, "pending") // it is recorded once it is decided
	}
}

// recoverCheck recovers a panic of a check, and refuses the request.
func (g *Gateway) recoverCheck(ctx context.Context, st *settings.State, in *request.Inbound, a **extauthz.Answer) {
	if p := recover(); p != nil {
		g.Panics.Report(ctx, "a check panicked", p, in.ID)
		*a = g.refuseCheck(st, in, request.Refuse(http.StatusInternalServerError, "internal_error", "something went wrong in the bouncer"))
	}
}

// passCheck returns the answer of shadow mode if there is no decision yet.
func (g *Gateway) passCheck(st *settings.State, in *request.Inbound, code string) *extauthz.Answer {
	v := judge.Verdict{Mode: st.Mode, Pass: true, Outcome: metrics.PassThrough}
	v.Refusal.Code = code
	return g.envoyAnswer(st, in, identity.Anonymous(), &v)
}

// requestOf returns the request of a check, before it is validated.
func (g *Gateway) requestOf(st *settings.State, c *extauthz.Check) request.Inbound {
	in := request.Inbound{At: g.Now(), Method: c.Method, Headers: http.Header(c.Header), Secure: c.Scheme == "https", Peer: c.Peer}
	if c.ID != "" && len(in.Headers[header.RequestID]) == 0 && request.IsValidID(c.ID) {
		in.ID = c.ID
	} else {
		in.ID = g.Reader.RequestID(in.Headers, in.At)
	}
	in.Trusted = mayAsk(st.Trusted, c.Peer)
	from := c.Source
	if !from.IsValid() {
		from = c.Peer
	}
	in.Client = st.Trusted.ClientOf(from, in.Headers).String()
	return in
}

// mayAsk reports whether a peer may ask: a trusted proxy or, if none is configured, this host.
func mayAsk(trusted identity.Proxies, peer netip.Addr) bool {
	if len(trusted) == 0 {
		return !peer.IsValid() || peer.IsLoopback()
	}
	return trusted.Trusts(peer)
}

// validateCheck checks that the peer may ask, and that its request has only one reading.
func validateCheck(in *request.Inbound, c *extauthz.Check, st *settings.State) *request.Refusal {
	if !in.Trusted {
		return request.Refuse(http.StatusForbidden, "untrusted_proxy", "only the proxies that the bouncer trusts may use this endpoint")
	}
	if refusal := in.UseForwarded(c.Method, c.Host, c.Target, st.Settings); refusal != nil {
		return refusal
	}
	splitMerged(in.Headers, c.Merged, st.Names)
	return checkRoute(in, c, st)
}

// decideCheck decides on a request that Envoy holds.
func (g *Gateway) decideCheck(ctx context.Context, st *settings.State, in request.Inbound, c *extauthz.Check) (a *extauthz.Answer) {
	defer g.recoverCheck(ctx, st, &in, &a)
	who, idErr := identity.Identify(ctx, in.Headers, st.Names, st.Tokens, st.ByHeaders)
	if refs, looks := in.Needs(st); looks {
		in.Seen = inspectBody(c, refs)
	}
	v := g.Judge.Decide(ctx, st, &in, who, idErr)
	switch {
	case errors.Is(idErr, identity.ErrAmbiguous):
		v.Resolve(request.Refuse(http.StatusBadRequest, "bad_request", "the request has two identities"), nil)
		v.Mask = nil
	case v.Outcome == metrics.Mask || v.Outcome == metrics.ShadowMask:
		// Envoy sends the application's answer, and the bouncer never sees it.
		v.Resolve(request.Refuse(http.StatusForbidden, "mask_impossible", "the answer would have to be masked, which ext_authz cannot do"), nil)
		v.Mask = nil
	}
	v.ChallengeCaller(st, &in, who, false)
	g.Recorder.Commit(ctx, st, &in, who, &v)
	return g.envoyAnswer(st, &in, who, &v)
}

// refuseCheck refuses a request without a decision. In shadow mode it passes.
func (g *Gateway) refuseCheck(st *settings.State, in *request.Inbound, refusal *request.Refusal) *extauthz.Answer {
	g.Count.Refused.Add(1)
	v := judge.Verdict{Mode: st.Mode}
	v.Resolve(refusal, nil)
	return g.envoyAnswer(st, in, identity.Anonymous(), &v)
}

// checkRoute reads the context_extensions of Envoy's route. A route for another bouncer, or with an
// unknown resource, is refused, because the wrong controls would decide.
func checkRoute(in *request.Inbound, c *extauthz.Check, st *settings.State) *request.Refusal {
	if want := c.Extensions[extensionBouncer]; want != "" && st.Bouncer != "" && want != st.Bouncer && want != st.Name {
		return request.Refuse(http.StatusForbidden, "wrong_bouncer", "the route is for another bouncer")
	}
	if text := c.Extensions[extensionResource]; text != "" && st.Set != nil {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id <= 0 || st.Set.Match(&rego.Request{ResourceID: id}) == nil {
			return request.Refuse(http.StatusForbidden, "unknown_resource", "the route names a resource that this bouncer does not protect")
		}
		in.Resource = id
	}
	if c.Principal == "" && c.SNI == "" && len(c.Extensions) == 0 {
		return nil
	}
	members := make([]value.Member, 0, 3)
	for _, m := range []struct{ name, text string }{{"principal", c.Principal}, {"sni", c.SNI}} {
		if m.text != "" {
			members = append(members, value.Member{Key: m.name, Value: value.String(m.text)})
		}
	}
	if len(c.Extensions) > 0 {
		names := slices.Sorted(maps.Keys(c.Extensions))
		extensions := make([]value.Member, len(names))
		for i, name := range names {
			extensions[i] = value.Member{Key: name, Value: value.String(c.Extensions[name])}
		}
		members = append(members, value.Member{Key: "extensions", Value: value.Object(extensions...)})
	}
	in.Gateway = value.Object(members...)
	return nil
}

// splitMerged splits identity headers that Envoy joined, so that a second one is noticed.
func splitMerged(h http.Header, merged bool, names header.Names) {
	if !merged {
		return
	}
	for _, name := range []string{names.User, names.Email} {
		if lines := h[name]; len(lines) == 1 && strings.Contains(lines[0], ",") {
			h[name] = strings.Split(lines[0], ",")
		}
	}
}

// inspectBody returns the body that the controls see. If a control needs a body that is incomplete,
// the request is refused.
func inspectBody(c *extauthz.Check, refs lang.Refs) *request.Inspection {
	h := http.Header(c.Header)
	s := &request.Inspection{Refs: refs, Whole: true, Head: request.HeadOf(h, int64(len(c.Body)))}
	if !request.NeedsBody(refs) {
		return s
	}
	switch {
	case c.Have == extauthz.Partial:
		s.Whole, s.Refusal = false, request.Refuse(http.StatusRequestEntityTooLarge, "body_partial", "a control needs the whole body, and the gateway sent only a part of it")
	case c.Have == extauthz.Unseen:
		s.Whole, s.Refusal = false, request.Refuse(http.StatusForbidden, "body_unavailable", "a control needs the body, and the gateway did not send it")
	case len(c.Body) > bodies.MaxFromGateway:
		s.Whole, s.Refusal = false, request.TooLarge("gateway", bodies.MaxFromGateway)
	case len(c.Body) > 0:
		s.Body, s.Refusal = c.Body, request.Unreadable(s.Head)
	}
	return s
}

// envoyAnswer turns a verdict into an answer to Envoy.
func (g *Gateway) envoyAnswer(st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) *extauthz.Answer {
	a := &extauthz.Answer{OK: v.Pass, Metadata: metadata(v, st)}
	reply := func(name, text string) { a.Reply = append(a.Reply, extauthz.Field{Name: name, Value: text}) }
	if !v.Pass {
		provider := g.Refusals.ProviderOf(in)
		a.Status, a.Text = refuse.StatusFor(&v.Refusal, in), string(refuse.Body(in, provider, v.ID, &v.Refusal))
		refuse.Header(reply, in, provider, v.ID, &v.Refusal)
		reply(header.Status, v.Refusal.Code)
		return a
	}
	if v.ID != "" {
		reply(header.DecisionID, v.ID)
	}
	st.IdentityFields(who, func(name, text string) { a.Set = append(a.Set, extauthz.Field{Name: name, Value: text}) })
	c := in.HeaderChanges(st, v.Decision.Resource, who).KeepSession(in.Headers["Cookie"])
	for _, f := range c.Set {
		a.Set = append(a.Set, extauthz.Field{Name: f.Name, Value: f.Value})
	}
	a.Remove = untrustedHeaders(in.Headers, st, a.Set, c.Drop)
	return a
}

// metadata returns Envoy's dynamic metadata, for access logs and later filters.
func metadata(v *judge.Verdict, st *settings.State) map[string]any {
	m := map[string]any{
		"decision": v.Outcome, "mode": v.Mode.String(), "status": v.Refusal.Code, "effect": v.Effect().String(),
		"revision": st.Revision, "bouncer": st.Bouncer, "environment": st.Environment,
	}
	if v.ID != "" {
		m["decision_id"] = v.ID
	}
	reason := v.Decision.Reason
	if v.Refusal.Status != 0 {
		reason = v.Refusal.Message
	}
	if reason != "" {
		m["reason"] = reason
	}
	if v.Decision.PolicyName != "" {
		m["policy_id"], m["policy_name"], m["policy_version"] = float64(v.Decision.PolicyID), v.Decision.PolicyName, float64(v.Decision.PolicyVersion)
	}
	if v.Decision.Resource != nil {
		m["resource_id"], m["resource_name"] = float64(v.Decision.Resource.ID), v.Decision.Resource.Name
	}
	return m
}

// SetByEnvoy are the forwarding fields that Envoy itself sets. Only these are not removed.
var SetByEnvoy = map[string]bool{
	"X-Forwarded-For": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Forwarded-Host": true, "X-Forwarded-Client-Cert": true,
	"X-Envoy-External-Address": true, "X-Envoy-Original-Path": true, header.RequestID: true,
}

// untrustedHeaders returns the fields that Envoy must remove: those that only the bouncer may set,
// in any spelling, and that it has not set.
func untrustedHeaders(h http.Header, st *settings.State, set []extauthz.Field, drop []string) []string {
	out, names := []string{}, st.Names
	remove := func(name string) {
		if !slices.ContainsFunc(set, func(f extauthz.Field) bool { return f.Name == name }) {
			out = append(out, strings.ToLower(name))
		}
	}
	for _, name := range []string{names.User, names.Email, names.Groups} {
		remove(name)
	}
	for _, name := range drop {
		remove(name)
	}
	for name := range h {
		folded, odd := header.Fold(name)
		switch {
		case name == names.User, name == names.Email, name == names.Groups, SetByEnvoy[name], slices.Contains(drop, name), st.PassToken && name == names.Token:
		case names.IsReserved(folded), odd && header.IsFraming(folded), odd && slices.Contains(drop, folded):
			remove(name)
		}
	}
	slices.Sort(out)
	return out
}
