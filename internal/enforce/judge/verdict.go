package judge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/explain"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
)

// Verdict says what happens to a request.
type Verdict struct {
	ID   string // of the decision
	Mode settings.Mode
	// Pass is whether the request goes to the application.
	Pass bool
	// Refusal is the answer in place of the application's. In shadow mode it is what
	// enforce mode would have answered. Its code is `ok` when nothing is refused.
	Refusal request.Refusal
	Outcome string
	// Asked is the request that was decided on. Recording clears it.
	Asked    rego.Request
	Decision rego.Decision
	// Mask says how the answer must be rewritten. It is empty in shadow mode.
	Mask []masking.MaskRule
	// KeepTool reports whether a list may contain a tool; nil: the list is not filtered.
	// ToolsListed receives all tools of the server.
	KeepTool    func(name string) bool
	ToolsListed func([]mcp.Tool)
	// TapAnswer reads the answer without changing it; nil: it is not needed.
	TapAnswer func(ans *upstream.Answer) (done func())
	// EventsOnly is set when only a stream of events is filtered.
	EventsOnly bool
	// ChangedTools are the tools whose descriptions the server changed.
	ChangedTools []string
	// Explanation and Trace explain the decision, as JSON, at the audit levels that keep
	// them.
	Explanation, Trace []byte
	// Hidden holds the secrets that texts in the log must not show.
	Hidden redact.Secrets
	// Failure says why there was no proper decision. The event records it as an error.
	Failure string
}

// Permits reports whether the controls or the default action grant access, in any mode.
func (v *Verdict) Permits() bool {
	return v.Outcome == metrics.Permit || v.Outcome == metrics.Mask || v.Outcome == metrics.PassThrough || v.Outcome == metrics.ShadowMask
}

// Effect returns the effect of the controls. It is DENY where they granted a request that was then
// refused for another reason, such as a bad token or an answer that cannot be masked here.
func (v *Verdict) Effect() rego.Effect {
	if !v.Permits() && v.Decision.Effect.Permits() {
		return rego.Deny
	}
	return v.Decision.Effect
}

// NamesControl reports whether the result names the control that decided. If access was granted and
// then refused for another reason, it names the control only if it masks.
func (v *Verdict) NamesControl() bool {
	return v.Decision.PolicyName != "" && (v.Effect() == v.Decision.Effect || v.Decision.Effect == rego.Mask)
}

// explain keeps the explanation of a decision. The server redacts values at secret paths when
// it receives the log. Texts that repeat such values are removed here, because a mask may keep
// the values themselves out of the log, so that the server does not know them.
func (v *Verdict) explain(ctx context.Context, st *settings.State, req *rego.Request, opt rego.Options) {
	v.Hidden = v.Decision.InputSecrets(req)
	var why []reason.Explanation
	if v.Decision.Resource.AuditLevel == AuditComprehensive {
		var steps []reason.Step
		if steps, why = explain.TraceDecision(ctx, st.Set, req, opt, v.Decision); len(steps) > 0 {
			v.Trace = document(steps, v.Hidden)
		}
	} else {
		why = explain.Decision(ctx, st.Set, req, opt, v.Decision)
	}
	if len(why) > 0 {
		v.Explanation = document(why, v.Hidden)
	}
}

// maxExplained bounds the explanation in an event, in bytes.
const maxExplained = 128 << 10

func document(list any, hidden redact.Secrets) []byte {
	text, err := json.Marshal(list)
	if err != nil || len(text) > maxExplained {
		return nil
	}
	return hidden.Document(text)
}

// takeDecision turns a decision into a verdict.
func (v *Verdict) takeDecision(st *settings.State, idErr error) {
	d := &v.Decision
	switch {
	case d.Stopped: // also where no control is in scope
		v.Resolve(request.Refuse(http.StatusForbidden, "access_denied", d.CallerReason()), nil)
	case d.Considered == 0 && d.Err == nil:
		if st.DenyByDefault {
			v.Resolve(request.Refuse(http.StatusForbidden, "access_denied", "no control covers this request, and the default is to deny"), nil)
			return
		}
		v.Outcome, v.Pass, v.Refusal.Code = metrics.PassThrough, true, "ok"
	case d.Err != nil:
		v.Failure = d.Err.Error()
		v.Resolve(request.Refuse(http.StatusServiceUnavailable, "evaluation_error", "the request could not be decided"), nil)
	case errors.Is(idErr, identity.ErrUnavailable):
		v.Failure = idErr.Error()
		v.Resolve(request.Refuse(http.StatusServiceUnavailable, "identity_unavailable", "the caller's token cannot be checked now"), nil)
	case idErr != nil:
		v.Resolve(request.Refuse(http.StatusUnauthorized, "invalid_token", "the bearer token is not valid"), nil)
	case d.Effect == rego.Mask:
		v.Resolve(nil, d.Mask)
	case d.Effect == rego.Allow:
		v.Resolve(nil, nil)
	default:
		refusal := request.Refuse(http.StatusForbidden, "access_denied", d.CallerReason())
		if hint, ok := d.AccessHint(&v.Asked); ok {
			refusal.Access = string(hint.AppendJSON(nil))
		}
		v.Resolve(refusal, nil)
	}
}

// Resolve applies the mode: shadow mode passes what enforce mode would refuse or mask.
func (v *Verdict) Resolve(refusal *request.Refusal, mask []masking.MaskRule) {
	v.Refusal.Code = "ok"
	switch {
	case refusal != nil:
		v.Refusal, v.Pass, v.Outcome = *refusal, false, metrics.Deny
		if v.Mode == settings.Shadowing {
			v.Pass, v.Outcome = true, metrics.ShadowDeny
		}
	case len(mask) > 0:
		v.Pass, v.Outcome, v.Mask = true, metrics.Mask, mask
		if v.Mode == settings.Shadowing {
			v.Outcome, v.Mask = metrics.ShadowMask, nil
		}
	default:
		v.Pass, v.Outcome = true, metrics.Permit
	}
}

// RefuseUnlogged refuses a request whose decision could not be logged, if the log is required.
// Shadow mode refuses nothing.
func (v *Verdict) RefuseUnlogged(ctx context.Context, in *request.Inbound, st *settings.State) {
	if !st.LogRequired || v.Mode == settings.Shadowing || !v.Pass {
		return
	}
	in.Seen.UsageAccount().Refund(ctx)
	v.Resolve(request.Refuse(http.StatusServiceUnavailable, "audit_unavailable", "the decision cannot be logged, and this bouncer lets only logged requests pass"), nil)
	v.Mask = nil
}

// ChallengeCaller answers 401 in place of 403 if a token could help: the caller has
// none, keys are configured, and the decision depends on who asks. MCP clients start to
// authorize at a 401 that names the metadata, so they get one at every denial. inPath
// says that the bouncer serves the metadata itself; behind a gateway it does not.
func (v *Verdict) ChallengeCaller(st *settings.State, in *request.Inbound, who *identity.Caller, inPath bool) {
	if st.Tokens == nil || v.Pass {
		return
	}
	if inPath {
		in.MetadataURL = in.Scheme() + "://" + in.Host + MetadataPath
		if in.Path != "/" && !strings.ContainsAny(in.Path, `"\`) {
			in.MetadataURL += in.Path
		}
	}
	if v.Refusal.Code == "access_denied" && !who.IsKnown() && (in.Seen != nil && (in.Seen.RPC != nil || in.Seen.Serves.MCP) || request.ServesMCP(v.Decision.Resource) || v.readsUser()) {
		v.Refusal = *request.Refuse(http.StatusUnauthorized, CodeNoToken, v.Refusal.Message)
	}
}

// readsUser reports whether the control that denied reads the caller's identity. If no control
// denied or allowed, any control that ran counts.
func (v *Verdict) readsUser() bool {
	for _, c := range v.Decision.Ran {
		if v.Decision.PolicyName != "" && c.Meta().ID != v.Decision.PolicyID {
			continue
		}
		for _, path := range c.Refs().Input {
			if len(path) == 0 || path[0] == "user" || path[0] == "subject" {
				return true
			}
		}
	}
	return false
}

// MetadataPath is the prefix of the path of a protected resource's metadata, which lists its token
// issuers (RFC 9728 section 3). The path of the resource follows it.
const MetadataPath = "/.well-known/oauth-protected-resource"

// CodeNoToken is the error code of a request that was refused without a token.
const CodeNoToken = "authentication_required"

// The audit levels of a resource that change what an event holds.
const (
	AuditNone          = "none"
	AuditDetailed      = "detailed"
	AuditComprehensive = "comprehensive"
)
