package enforce

import (
	"context"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

var errSession = request.Refuse(http.StatusNotFound, "session_unknown", "the session is not known, or was opened by somebody else")

// sessionKey names the session of a request; empty: it is in none.
func sessionKey(in *request.Inbound, id string) string {
	if id == "" {
		return ""
	}
	return in.Host + "\x00" + id
}

// enterSession gives the application its own id for the session that a request is
// in, and refuses one that another user opened. An id that no bouncer gave out belongs
// to whom this one sees it from first. In shadow mode nobody is refused.
func (b *Bouncer) enterSession(r *http.Request, in *request.Inbound, st *settings.State, who *identity.Caller) *request.Refusal {
	lines := r.Header[session.Header]
	if len(lines) == 0 {
		return nil
	}
	enforces := st.Mode == settings.Enforcing
	if len(lines) > 1 {
		if enforces {
			return request.BadRequest("the request names two sessions")
		}
		return nil
	}
	id := lines[0]
	if session.IsSealed(id) && st.SessionSeal != nil {
		raw, ok := st.SessionSeal.Open(id, who.ID)
		switch {
		case ok:
			r.Header[session.Header] = []string{raw}
			in.Session = sessionKey(in, raw)
			return nil
		case enforces:
			return errSession
		}
		return nil
	}
	in.Session = sessionKey(in, id)
	if enforces && !b.sessions.Claim(in.Session, who.ID) {
		return errSession
	}
	return nil
}

// openSession binds the session that an answer opens to the user who asked.
func (b *Bouncer) openSession(in *request.Inbound, st *settings.State, who *identity.Caller, h http.Header) {
	lines := h[session.Header]
	if len(lines) == 0 || st.Mode != settings.Enforcing {
		return
	}
	bound := make([]string, len(lines))
	for i, id := range lines {
		bound[i] = id
		if st.SessionSeal != nil && id != "" {
			bound[i] = st.SessionSeal.Seal(id, who.ID)
		} else {
			b.sessions.Claim(sessionKey(in, id), who.ID)
		}
	}
	h[session.Header] = bound
}

// resumedMasks are the masks that the answers may have which come over a stream
// that is taken up again: those that answers of the session had here, and those that
// calls of the server's tools have.
func (b *Bouncer) resumedMasks(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller) []rego.MaskRule {
	masks := b.sessions.Masks(in.Session)
	end := b.cfg.Now().Add(toolsDeadline)
	for _, name := range b.tools.Names(serverKey(st, in)) {
		if !b.cfg.Now().Before(end) {
			break
		}
		if d := b.decideTool(ctx, st, in, who, name); d.Permit && d.Err == nil {
			answer, _ := mask.Split(d.Mask)
			masks = session.UniteMasks(masks, answer)
		}
	}
	return masks
}

// decideTool decides on a call of a tool, without arguments.
func (b *Bouncer) decideTool(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller, name string) rego.Decision {
	seen := *in.Seen
	seen.RPC = &mcp.Message{Method: "tools/call", Tool: name, Session: in.Seen.Head.MCP.Session, Version: in.Seen.Head.MCP.Version}
	asked := *in
	asked.Seen = &seen
	q := asked.Question(st.Settings, who)
	return st.Set.Decide(ctx, &q, rego.Options{Now: in.At, Deadline: b.cfg.DecisionDeadline, Clock: b.cfg.Now, Caught: b.caught(ctx, in.ID)})
}

// resumes reports whether a request may take up a stream of an MCP server, in which
// answers to other requests come. What it says that it accepts binds no server.
func (b *Bouncer) resumes(r *http.Request, st *settings.State, in *request.Inbound) bool {
	return in.Method == http.MethodGet && (in.Seen.Head.MCP.Session != "" || r.Header.Get("Last-Event-Id") != "" || in.Serving(st).MCP ||
		strings.Contains(strings.Join(r.Header["Accept"], ","), "event-stream") || len(b.tools.Names(serverKey(st, in))) > 0)
}
