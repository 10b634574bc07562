package enforce

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

const (
	// toolsDeadline bounds the decisions on one list of tools. Those that are not
	// decided by then are left out.
	toolsDeadline = 2 * time.Second
)

// watchTools has the answer filtered that lists tools: to tools/list, and a
// stream that is taken up again, in which such an answer may come.
func (b *Bouncer) watchTools(r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) {
	s := in.Seen
	if s == nil || !s.Refs.MCP || v.mode != settings.Enforcing {
		return
	}
	resumed := s.RPC == nil && b.resumes(r, st, in)
	if !resumed && (s.RPC == nil || s.RPC.Method != "tools/list") {
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
func (b *Bouncer) noteTools(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict, tools []mcp.Tool) {
	changed := b.tools.Note(serverKey(st, in), tools)
	if len(changed) == 0 {
		return
	}
	b.count.ToolsChanged.Add(uint64(len(changed)))
	b.log.WarnContext(ctx, "an MCP server changed the descriptions of its tools", "host", in.Host, "path", in.Path, "tools", changed)
	told := *v
	told.id = b.ids.Next(b.cfg.Now())
	told.changed = changed
	told.dec.Reason = "The MCP server changed what it says of its tools: " + strings.Join(changed, ", ")
	b.record(st, in, who, &told)
}

// serverKey names an MCP server: the resource, and the path that is asked for.
func serverKey(st *settings.State, in *request.Inbound) string {
	return in.ResourceKey(st) + " " + in.Path
}

// schemas gives a request of MCP what its server's tools declare, where its
// headers are to be held against that.
func (b *Bouncer) schemas(st *settings.State, in *request.Inbound) {
	if s := in.Seen; s.Refs.MCP && (len(s.Head.MCP.Params) > 0 || s.Head.MCP.Name != "") {
		s.Head.MCP.Declared = b.tools.Declared(serverKey(st, in))
	}
}

// permitsTool reports whether a tool may be called.
func (b *Bouncer) permitsTool(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, name string) bool {
	d := b.decideTool(ctx, st, in, who, name)
	return d.Permit && d.Err == nil
}
