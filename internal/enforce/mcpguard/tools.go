// Package mcpguard protects MCP servers. It binds sessions to the users who opened them,
// removes tools that the caller may not call from lists, and reports when a server changes
// the description of a tool.
package mcpguard

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/record"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

// toolsDeadline is the longest time for the decisions on one list of tools. Tools
// without a decision by then are removed.
const toolsDeadline = 2 * time.Second

// Guard binds MCP sessions to users and filters lists of tools. All fields except Sessions
// are required.
type Guard struct {
	Judge    *judge.Judge
	Recorder *record.Recorder
	Tools    *session.Tools
	Sessions session.Sessions
	IDs      *ids.Source
	Panics   *panics.Reporter
	Count    *metrics.Counters
	Log      *slog.Logger
	Now      func() time.Time
	Held     *atomic.Int64 // bytes of all bodies that are in memory in shadow mode
}

// Filter sets in v how an answer that lists tools is filtered: the answer to tools/list, or a
// resumed stream, which may contain such an answer. In shadow mode it does nothing.
func (g *Guard) Filter(r *http.Request, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) {
	s := in.Seen
	if s == nil || !s.Refs.MCP || v.Mode != settings.Enforcing {
		return
	}
	resumed := s.RPC == nil && g.resumes(r, st, in)
	if !resumed && (s.RPC == nil || s.RPC.Method != "tools/list") {
		return
	}
	ctx := r.Context()
	end := g.Now().Add(toolsDeadline)
	known := map[string]bool{}
	v.EventsOnly = resumed && len(v.Mask) == 0
	if resumed {
		v.Mask = session.UniteMasks(v.Mask, g.resumedMasks(ctx, st, in, who))
	}
	v.KeepTool = func(name string) bool {
		keep, seen := known[name]
		if !seen {
			keep = g.Now().Before(end) && g.Judge.PermitsTool(ctx, st, in, who, name)
			known[name] = keep
		}
		return keep
	}
	v.ToolsListed = func(tools []mcp.Tool) { g.noteTools(ctx, st, in, who, v, tools) }
}

// noteTools stores the list of a server's tools. It reports changed descriptions in the log,
// in a counter, and as an event of the decision log.
func (g *Guard) noteTools(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict, tools []mcp.Tool) {
	changed := g.Tools.Note(in.ServerKey(st), tools)
	if len(changed) == 0 {
		return
	}
	g.Count.ToolsChanged.Add(uint64(len(changed)))
	g.Log.WarnContext(ctx, "an MCP server changed the descriptions of its tools", "host", in.Host, "path", in.Path, "tools", changed)
	told := *v
	told.ID = g.IDs.Next(g.Now())
	told.ChangedTools = changed
	told.Decision.Reason = "The MCP server changed the descriptions of its tools: " + strings.Join(changed, ", ")
	g.Recorder.Record(st, in, who, &told)
}
