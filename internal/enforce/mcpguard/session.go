package mcpguard

import (
	"context"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

var errSession = request.Refuse(http.StatusNotFound, "session_unknown", "the session is unknown, or belongs to another user")

// sessionKey returns the key of a request's session; empty if it has none.
func sessionKey(in *request.Inbound, id string) string {
	if id == "" {
		return ""
	}
	return in.Host + "\x00" + id
}

// Enter replaces a sealed session id in the request with the server's own id, and refuses a session
// that another user opened. An id that is not sealed belongs to the first user that this bouncer
// sees with it. Shadow mode refuses nobody.
func (g *Guard) Enter(r *http.Request, in *request.Inbound, st *settings.State, who *identity.Caller) *request.Refusal {
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
	if enforces && !g.Sessions.Claim(in.Session, who.ID) {
		return errSession
	}
	return nil
}

// Open binds a session that the answer opens to the user who sent the request.
func (g *Guard) Open(in *request.Inbound, st *settings.State, who *identity.Caller, h http.Header) {
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
			g.Sessions.Claim(sessionKey(in, id), who.ID)
		}
	}
	h[session.Header] = bound
}

// resumedMasks returns the masks for a resumed stream, which may carry answers to earlier requests:
// the masks of earlier answers in this session, and those of calls of the server's tools.
func (g *Guard) resumedMasks(ctx context.Context, st *settings.State, in *request.Inbound, who *identity.Caller) []masking.MaskRule {
	masks := g.Sessions.Masks(in.Session)
	end := g.Now().Add(toolsDeadline)
	for _, name := range g.Tools.Names(in.ServerKey(st)) {
		if !g.Now().Before(end) {
			break
		}
		if d := g.Judge.DecideTool(ctx, st, in, who, name); d.Permit && d.Err == nil {
			answer, _ := mask.Split(d.Mask)
			masks = session.UniteMasks(masks, answer)
		}
	}
	return masks
}

// resumes reports whether a request may resume a stream of an MCP server, which carries
// answers to other requests. The request's Accept does not bind the server.
func (g *Guard) resumes(r *http.Request, st *settings.State, in *request.Inbound) bool {
	return in.Method == http.MethodGet && (in.Seen.Head.MCP.Session != "" || r.Header.Get("Last-Event-Id") != "" || in.Resources(st).MCP ||
		strings.Contains(strings.Join(r.Header["Accept"], ","), "event-stream") || len(g.Tools.Names(in.ServerKey(st))) > 0)
}
