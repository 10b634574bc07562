package enforce

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// toolsDeadline bounds the decisions on one list of tools. Those that are not
	// decided by then are left out.
	toolsDeadline = 2 * time.Second
)

// unfit is why no control is asked about a message of MCP; nil: one is.
func (s *inspection) unfit(host string) *refusal {
	switch {
	case s.bad != nil:
		return &refusal{http.StatusBadRequest, "mcp_invalid", s.bad.Message}
	case s.head.origin != "" && !ownOrigin(s.head.origin, host):
		// A page of another site has the browser speak for its user (DNS rebinding).
		return &refusal{http.StatusForbidden, "foreign_origin", "the request comes from a page of another origin"}
	case !s.rpc.Known():
		return &refusal{http.StatusForbidden, "unknown_method", "the MCP method is not known"}
	}
	return nil
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	name, ok := canonicalHost(u.Host)
	return ok && name == host
}

// harmless reports a ping or a notification to an MCP server: those pass. That
// the message says so is not enough: another application, which a second reading of
// the path may name, does not read it so.
func (s *inspection) harmless() bool {
	return s != nil && s.rpc != nil && s.rpc.Harmless() && s.serves.onlyMCP
}

// calls reports whether the request is a call of MCP, which has an answer.
func (in *inbound) calls() bool {
	return in.seen != nil && in.seen.rpc != nil && in.seen.rpc.ID != ""
}

// rpcError is a refusal as a JSON-RPC error, with the message's id.
func (s *inspection) rpcError(in *inbound, decision string, no *refusal) []byte {
	code, id := mcp.CodeDenied, ""
	switch {
	case s.bad != nil:
		code, id = s.bad.Code, s.bad.ID
	case no.status >= 500:
		code = mcp.CodeUnavailable
	}
	if s.rpc != nil {
		id = s.rpc.ID
	}
	out := append(make([]byte, 0, 256), `{"jsonrpc":"2.0",`...)
	if id != "" {
		out = append(append(append(out, `"id":`...), id...), ',')
	}
	out = strconv.AppendInt(append(out, `"error":{"code":`...), int64(code), 10)
	out = value.AppendString(append(out, `,"message":`...), no.message)
	out = value.AppendString(append(out, `,"data":{"error":`...), no.code)
	if decision != "" {
		out = value.AppendString(append(out, `,"decision_id":`...), decision)
	}
	out = value.AppendString(append(out, `,"request_id":`...), in.id)
	return append(out, "}}}\n"...)
}

// watchTools has the answer filtered that lists tools: to tools/list, and a
// stream that is taken up again, in which such an answer may come.
func (b *Bouncer) watchTools(r *http.Request, st *settings.State, in *inbound, who *identity.Caller, v *verdict) {
	s := in.seen
	if s == nil || !s.refs.MCP || v.mode != settings.Enforcing {
		return
	}
	resumed := s.rpc == nil && b.resumes(r, st, in)
	if !resumed && (s.rpc == nil || s.rpc.Method != "tools/list") {
		return
	}
	ctx := r.Context()
	end := b.cfg.Now().Add(toolsDeadline)
	known := map[string]bool{}
	v.eventsOnly = resumed && len(v.mask) == 0
	if resumed {
		v.mask = session.UniteMasks(v.mask, b.resumedMasks(ctx, st, in, who))
	}
	v.keep = func(name string) bool {
		keep, seen := known[name]
		if !seen {
			keep = b.cfg.Now().Before(end) && b.permitsTool(ctx, st, in, who, name)
			known[name] = keep
		}
		return keep
	}
	v.listed = func(tools []mcp.Tool) { b.noteTools(ctx, st, in, who, v, tools) }
}

// noteTools remembers what a server lists, and reports what it says otherwise
// than before: in the log, in a counter, and as a decision of its own.
func (b *Bouncer) noteTools(ctx context.Context, st *settings.State, in *inbound, who *identity.Caller, v *verdict, tools []mcp.Tool) {
	changed := b.tools.Note(serverKey(st, in), tools)
	if len(changed) == 0 {
		return
	}
	b.count.ToolsChanged.Add(uint64(len(changed)))
	b.log.WarnContext(ctx, "an MCP server changed the descriptions of its tools", "host", in.host, "path", in.path, "tools", changed)
	told := *v
	told.id = b.ids.Next(b.cfg.Now())
	told.changed = changed
	told.dec.Reason = "The MCP server changed what it says of its tools: " + strings.Join(changed, ", ")
	b.record(st, in, who, &told)
}

// serverKey names an MCP server: the resource, and the path that is asked for.
func serverKey(st *settings.State, in *inbound) string { return resourceKey(st, in) + " " + in.path }

// schemas gives a request of MCP what its server's tools declare, where its
// headers are to be held against that.
func (b *Bouncer) schemas(st *settings.State, in *inbound) {
	if s := in.seen; s.refs.MCP && (len(s.head.mcp.Params) > 0 || s.head.mcp.Name != "") {
		s.head.mcp.Declared = b.tools.Declared(serverKey(st, in))
	}
}

// permitsTool reports whether a tool may be called.
func (b *Bouncer) permitsTool(ctx context.Context, st *settings.State, in *inbound, who *identity.Caller, name string) bool {
	d := b.decideTool(ctx, st, in, who, name)
	return d.Permit && d.Err == nil
}
