package enforce

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/extauthz"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// envoyPatience is how long a check may take when Envoy does not say: Envoy's
	// own default is 200ms, after which it refuses, or lets pass, by itself.
	envoyPatience = 150 * time.Millisecond
	// maxPending bounds decisions in shadow mode that go on after their answer.
	maxPending = 256
)

// The members of context_extensions that mean something to us.
const (
	extensionBouncer  = "bouncer"
	extensionResource = "resource"
)

// check answers Envoy: may the request that it holds go on? Every refusal is an
// answer, never a failure: Envoy can be told to let pass what fails. In shadow
// mode the answer is always yes, in time, with the verdict in its metadata.
func (b *Bouncer) check(ctx context.Context, c *extauthz.Check) (a *extauthz.Answer) {
	st := b.state.Load()
	in := b.requestOf(st, c)
	defer b.recoverCheck(ctx, st, &in, &a)
	if no := validateCheck(&in, c, st); no != nil {
		return b.refuseCheck(st, &in, no)
	}
	patience := envoyPatience
	if end, set := ctx.Deadline(); set {
		patience = time.Until(end) * 3 / 4 // the rest is for the way
	}
	if st.Mode == settings.Enforcing {
		in.Patience = max(patience, time.Millisecond)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return b.decideHeld(ctx, st, in, c)
	}
	if b.pending.Add(1) > maxPending {
		b.pending.Add(-1)
		b.recordSkipped(shadowJob{st: st, in: in, who: identity.Nobody()})
		return b.passCheck(st, &in, "shadow_overload")
	}
	in.Headers = in.Headers.Clone() // the decision may outlive the request
	done := make(chan *extauthz.Answer, 1)
	b.checking.Go(func() {
		defer b.pending.Add(-1)
		done <- b.decideHeld(context.WithoutCancel(ctx), st, in, c)
	})
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-done:
		return a
	case <-late.C:
		return b.passCheck(st, &in, "pending") // it is recorded when it is there
	}
}

// recoverCheck turns a panic into an answer.
func (b *Bouncer) recoverCheck(ctx context.Context, st *settings.State, in *request.Inbound, a **extauthz.Answer) {
	if p := recover(); p != nil {
		b.panicked(ctx, "a check panicked", p, in.ID)
		*a = b.refuseCheck(st, in, request.Refuse(http.StatusInternalServerError, "internal_error", "something went wrong in the bouncer"))
	}
}

// passCheck is the answer in shadow mode without a decision.
func (b *Bouncer) passCheck(st *settings.State, in *request.Inbound, code string) *extauthz.Answer {
	v := verdict{mode: st.Mode, pass: true, word: metrics.PassThrough}
	v.no.Code = code
	return b.envoyAnswer(st, in, identity.Nobody(), &v)
}

// requestOf is what is known of a request before it is looked at.
func (b *Bouncer) requestOf(st *settings.State, c *extauthz.Check) request.Inbound {
	in := request.Inbound{At: b.cfg.Now(), Method: c.Method, Headers: http.Header(c.Header), Secure: c.Scheme == "https", Peer: c.Peer}
	if c.ID != "" && len(in.Headers[header.RequestID]) == 0 && request.SaneID(c.ID) {
		in.ID = c.ID
	} else {
		in.ID = b.reader.RequestID(in.Headers, in.At)
	}
	in.Trusted = asks(st.Trusted, c.Peer)
	from := c.Source
	if !from.IsValid() {
		from = c.Peer
	}
	in.Client = st.Trusted.ClientOf(from, in.Headers).String()
	return in
}

// asks reports whether a peer may ask: a named proxy, or, while none are named,
// this host itself.
func asks(trusted identity.Proxies, peer netip.Addr) bool {
	if len(trusted) == 0 {
		return !peer.IsValid() || peer.IsLoopback()
	}
	return trusted.Trusts(peer)
}

// validateCheck is what is done before a decision: may the peer ask, and is there one
// reading of what it holds.
func validateCheck(in *request.Inbound, c *extauthz.Check, st *settings.State) *request.Refusal {
	if !in.Trusted {
		return request.Refuse(http.StatusForbidden, "untrusted_proxy", "only the proxies that the bouncer trusts may use this endpoint")
	}
	if no := in.Adopt(c.Method, c.Host, c.Target, st.Settings); no != nil {
		return no
	}
	splitMerged(in.Headers, c.Merged, st.Names)
	return checkRoute(in, c, st)
}

// decideHeld decides on a request that Envoy holds.
func (b *Bouncer) decideHeld(ctx context.Context, st *settings.State, in request.Inbound, c *extauthz.Check) (a *extauthz.Answer) {
	defer b.recoverCheck(ctx, st, &in, &a)
	who, idErr := identity.Identify(ctx, in.Headers, st.Names, st.Tokens, st.ByHeaders)
	if refs, looks := in.Needs(st); looks {
		in.Seen = shownBody(c, refs)
	}
	v := b.judge(ctx, st, &in, who, idErr)
	switch {
	case errors.Is(idErr, identity.ErrAmbiguous):
		v.resolve(request.Refuse(http.StatusBadRequest, "bad_request", "the request has two identities"), nil)
		v.mask = nil
	case v.word == metrics.Mask || v.word == metrics.ShadowMask:
		// Envoy sends the application's answer, and we never see it.
		v.resolve(request.Refuse(http.StatusForbidden, "mask_impossible", "the answer would have to be masked, which ext_authz cannot do"), nil)
		v.mask = nil
	}
	b.challengeCaller(st, &in, who, &v, false)
	if !b.record(st, &in, who, &v) {
		b.refuseUnlogged(ctx, &in, st, &v)
	}
	return b.envoyAnswer(st, &in, who, &v)
}

// refuseCheck refuses a request that there is nothing to decide on; in shadow
// mode it passes.
func (b *Bouncer) refuseCheck(st *settings.State, in *request.Inbound, no *request.Refusal) *extauthz.Answer {
	b.count.Refused.Add(1)
	v := verdict{mode: st.Mode}
	v.resolve(no, nil)
	return b.envoyAnswer(st, in, identity.Nobody(), &v)
}

// checkRoute reads what the operator wrote at Envoy's route. What is not ours to
// decide, or names what we do not know, is refused: it would be decided by the
// wrong controls.
func checkRoute(in *request.Inbound, c *extauthz.Check, st *settings.State) *request.Refusal {
	if want := c.Extensions[extensionBouncer]; want != "" && st.Bouncer != "" && want != st.Bouncer && want != st.Name {
		return request.Refuse(http.StatusForbidden, "wrong_bouncer", "the route is for another bouncer")
	}
	if text := c.Extensions[extensionResource]; text != "" && st.Set != nil {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id <= 0 || st.Set.Match(&rego.Request{ResourceID: id}) == nil {
			return request.Refuse(http.StatusForbidden, "unknown_resource", "the route names a resource that this bouncer does not stand before")
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
		names := make([]string, 0, len(c.Extensions))
		for name := range c.Extensions {
			names = append(names, name)
		}
		slices.Sort(names)
		extensions := make([]value.Member, len(names))
		for i, name := range names {
			extensions[i] = value.Member{Key: name, Value: value.String(c.Extensions[name])}
		}
		members = append(members, value.Member{Key: "extensions", Value: value.Object(extensions...)})
	}
	in.Gateway = value.Object(members...)
	return nil
}

// splitMerged undoes the joining of identity headers: two of them are none.
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

// shownBody is what controls see of a body that Envoy sent. Of one that is not
// whole nothing can be said, so that a control which asks for it cannot allow.
func shownBody(c *extauthz.Check, refs lang.Refs) *request.Inspection {
	h := http.Header(c.Header)
	s := &request.Inspection{Refs: refs, Whole: true, Head: request.HeadOf(h, int64(len(c.Body)))}
	if !request.NeedsBody(refs) {
		return s
	}
	switch {
	case c.Have == extauthz.Partial:
		s.Whole, s.Refusal = false, request.Refuse(http.StatusRequestEntityTooLarge, "body_partial", "a control needs the whole body, of which the gateway sent a part")
	case c.Have == extauthz.Unseen:
		s.Whole, s.Refusal = false, request.Refuse(http.StatusForbidden, "body_unavailable", "a control needs the body, which the gateway did not send")
	case len(c.Body) > bodies.MaxFromGateway:
		s.Whole, s.Refusal = false, request.TooLarge("gateway", bodies.MaxFromGateway)
	case len(c.Body) > 0:
		s.Body, s.Refusal = c.Body, request.Unreadable(s.Head)
	}
	return s
}

// envoyAnswer writes a verdict as Envoy takes it.
func (b *Bouncer) envoyAnswer(st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) *extauthz.Answer {
	a := &extauthz.Answer{OK: v.pass, Metadata: v.metadata(st)}
	reply := func(name, text string) { a.Reply = append(a.Reply, extauthz.Field{Name: name, Value: text}) }
	if !v.pass {
		provider := b.providerOf(in)
		a.Status, a.Text = statusFor(&v.no, in), string(refusalBody(in, provider, v.id, &v.no))
		refusalHeader(reply, in, provider, v.id, &v.no)
		reply(header.Status, v.no.Code)
		return a
	}
	if v.id != "" {
		reply(header.DecisionID, v.id)
	}
	st.IdentityFields(who, func(name, text string) { a.Set = append(a.Set, extauthz.Field{Name: name, Value: text}) })
	c := in.Credit(st, v.dec.Resource, who).KeepSession(in.Headers["Cookie"])
	for _, f := range c.Set {
		a.Set = append(a.Set, extauthz.Field{Name: f.Name, Value: f.Value})
	}
	a.Remove = unbelieved(in.Headers, st, a.Set, c.Drop)
	return a
}

// metadata is Envoy's dynamic metadata, for access logs and the filters behind.
func (v *verdict) metadata(st *settings.State) map[string]any {
	m := map[string]any{
		"decision": v.word, "mode": v.mode.String(), "status": v.no.Code, "effect": v.effect().String(),
		"revision": st.Revision, "bouncer": st.Bouncer, "environment": st.Environment,
	}
	if v.id != "" {
		m["decision_id"] = v.id
	}
	reason := v.dec.Reason
	if v.no.Status != 0 {
		reason = v.no.Message
	}
	if reason != "" {
		m["reason"] = reason
	}
	if v.dec.PolicyName != "" {
		m["policy_id"], m["policy_name"], m["policy_version"] = float64(v.dec.PolicyID), v.dec.PolicyName, float64(v.dec.PolicyVersion)
	}
	if v.dec.Resource != nil {
		m["resource_id"], m["resource_name"] = float64(v.dec.Resource.ID), v.dec.Resource.Name
	}
	return m
}

// envoysOwn are forwarding facts that Envoy itself keeps honest; of the fields
// that an application believes, they alone stay as they are.
var envoysOwn = map[string]bool{
	"X-Forwarded-For": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Forwarded-Host": true, "X-Forwarded-Client-Cert": true,
	"X-Envoy-External-Address": true, "X-Envoy-Original-Path": true, header.RequestID: true,
}

// unbelieved are the fields that Envoy is to remove: those that only we may
// set, in whatever spelling, and have not set.
func unbelieved(h http.Header, st *settings.State, set []extauthz.Field, drop []string) []string {
	out, names := []string{}, st.Names
	gone := func(name string) {
		if !slices.ContainsFunc(set, func(f extauthz.Field) bool { return f.Name == name }) {
			out = append(out, strings.ToLower(name))
		}
	}
	for _, name := range []string{names.User, names.Email, names.Groups} {
		gone(name)
	}
	for _, name := range drop {
		gone(name)
	}
	for name := range h {
		folded, odd := header.Fold(name)
		switch {
		case name == names.User, name == names.Email, name == names.Groups, envoysOwn[name], slices.Contains(drop, name), st.PassToken && name == names.Token:
		case names.IsReserved(folded), odd && header.IsFraming(folded), odd && slices.Contains(drop, folded):
			gone(name)
		}
	}
	slices.Sort(out)
	return out
}
