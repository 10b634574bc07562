package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf16"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

// ForwardAuth answers nginx's auth_request, Traefik's ForwardAuth and Caddy's
// forward_auth. It answers only 200, 401 or 403, because nginx turns anything else into
// 500. X-Gatehouse-Status has the exact reason. The query of the request is ignored.
func (g *Gateway) ForwardAuth(w http.ResponseWriter, r *http.Request, outer *request.Inbound, st *settings.State) {
	in, refusal := g.original(r, outer, st)
	if refusal != nil {
		g.Count.Refused.Add(1)
		g.authAnswer(w, outer, st, nil, &judge.Verdict{Outcome: metrics.Deny, Refusal: *refusal})
		return
	}
	who, idErr := identity.Identify(r.Context(), r.Header, st.Names, st.Tokens, st.ByHeaders)
	if refs, looks := in.Needs(st); looks {
		in.Seen = &request.Inspection{Refs: refs, Whole: true}
		if request.NeedsBody(refs) && (in.Method == http.MethodPost || in.Method == http.MethodPut || in.Method == http.MethodPatch) {
			in.Seen.Refusal = request.Refuse(http.StatusForbidden, "body_unavailable", "a control needs the body, and forward-auth does not see it")
		}
	}
	v := g.Judge.Decide(r.Context(), st, &in, who, idErr)
	switch {
	case len(v.Mask) > 0:
		// The bouncer never sees the application's answer.
		v.Resolve(request.Refuse(http.StatusForbidden, "mask_impossible", "the answer would have to be masked, which forward-auth cannot do"), nil)
		v.Mask = nil
	case errors.Is(idErr, identity.ErrAmbiguous) && v.Mode == settings.Enforcing:
		v.Resolve(request.Refuse(http.StatusForbidden, "bad_request", "the request has two identities"), nil)
	}
	v.ChallengeCaller(st, &in, who, false)
	g.Recorder.Commit(r.Context(), st, &in, who, &v)
	g.authAnswer(w, &in, st, who, &v)
}

// authAnswer answers 200, 401 or 403.
func (g *Gateway) authAnswer(w http.ResponseWriter, in *request.Inbound, st *settings.State, who *identity.Caller, v *judge.Verdict) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set(header.RequestID, in.ID)
	h.Set(header.Decision, v.Outcome)
	h.Set(header.Status, v.Refusal.Code)
	if v.ID != "" {
		h.Set(header.DecisionID, v.ID)
	}
	if v.Pass {
		st.IdentityFields(who, h.Set)
		h.Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
		return
	}
	h.Set(header.Reason, ReasonText(v.Refusal.Message))
	refusal := v.Refusal
	if refusal.Status != http.StatusUnauthorized {
		refusal.Status = http.StatusForbidden
	}
	g.Refusals.Write(w, in, v.ID, &refusal)
}

// original returns the request that the proxy asks about.
func (g *Gateway) original(r *http.Request, outer *request.Inbound, st *settings.State) (request.Inbound, *request.Refusal) {
	deny := func(code, message string) (request.Inbound, *request.Refusal) {
		return request.Inbound{}, request.Refuse(http.StatusForbidden, code, message)
	}
	if !outer.Trusted {
		return deny("untrusted_proxy", "only the proxies that the bouncer trusts may use this endpoint")
	}
	method, ok1 := sameValue(r.Header, "X-Forwarded-Method", "X-Original-Method")
	host, ok2 := sameValue(r.Header, "X-Forwarded-Host", "X-Original-Host")
	target, ok3 := sameValue(r.Header, "X-Forwarded-Uri", "X-Original-Uri")
	if full := r.Header["X-Original-Url"]; len(full) > 0 && ok3 { // ingress-nginx sends the whole URL
		authority, rest, ok := splitURL(full[0])
		if !ok {
			return deny("bad_request", "X-Original-URL is not a whole URL")
		}
		if len(full) > 1 || host != "" && !strings.EqualFold(host, authority) || target != "" && target != rest {
			return deny("bad_request", "the proxy's headers contradict each other")
		}
		target, host = rest, authority
	}
	if !ok1 || !ok2 || !ok3 {
		return deny("bad_request", "the proxy's headers contradict each other")
	}
	if method == "" || target == "" || host == "" {
		return deny("bad_request", "the method, host and target of the request are required: X-Forwarded-Method|-Host|-Uri or X-Original-Method|-Host|-URI")
	}
	in := *outer
	if refusal := in.UseForwarded(method, host, target, st.Settings); refusal != nil {
		return deny(refusal.Code, refusal.Message)
	}
	return in, nil
}

// splitURL divides a whole URL into its host with port and its target, both as they are written:
// url.Parse decodes the escapes of a host, and such a host must be refused.
func splitURL(whole string) (host, target string, ok bool) {
	u, err := url.Parse(whole)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "", "", false
	}
	_, rest, _ := strings.Cut(whole, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return rest[:end], rest[end:], true
}

// sameValue returns the value of two headers with the same meaning. It returns false if they
// differ.
func sameValue(h http.Header, a, b string) (string, bool) {
	one := func(name string) (string, bool) {
		lines := h[name]
		if len(lines) > 1 {
			return "", false
		}
		if len(lines) == 0 {
			return "", true
		}
		return strings.TrimSpace(lines[0]), true
	}
	va, oka := one(a)
	vb, okb := one(b)
	if !oka || !okb || va != "" && vb != "" && va != vb {
		return "", false
	}
	return cmp.Or(va, vb), true
}

// MaxReason bounds the reason in a header, in bytes.
const MaxReason = 1 << 10

// ReasonText returns the reason of a refusal as the content of a JSON string, in ASCII and
// without the quotes. nginx does not forward the bouncer's answer; it inserts this text into
// its own.
func ReasonText(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > MaxReason {
			b.WriteString("...")
			break
		}
		switch {
		case r >= ' ' && r < 0x7f && !strings.ContainsRune(`"\<>&'$`, r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
