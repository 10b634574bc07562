package enforce

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

const (
	// toolsDeadline bounds the decisions on one list of tools. Those that are not
	// decided by then are left out.
	toolsDeadline = 2 * time.Second
	// maxTools bounds the tools whose descriptions are remembered.
	maxTools = 50_000
	// maxServers bounds the servers whose tools' parameters are remembered, and
	// maxDeclared the tools of each, with at most 4 KiB for each.
	maxServers  = 256
	maxDeclared = 256
	// maxToolName bounds the names that are remembered there, in bytes.
	maxToolName = 256
	// toolsName is the file that keeps them.
	toolsName = "mcp-tools.json"
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
func (b *Bouncer) watchTools(r *http.Request, st *state, in *inbound, who *identity.Caller, v *verdict) {
	s := in.seen
	if s == nil || !s.refs.MCP || v.mode != enforcing {
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
		v.mask = union(v.mask, b.resumedMasks(ctx, st, in, who))
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
func (b *Bouncer) noteTools(ctx context.Context, st *state, in *inbound, who *identity.Caller, v *verdict, tools []mcp.Tool) {
	changed := b.tools.note(serverKey(st, in), tools)
	if len(changed) == 0 {
		return
	}
	b.count.toolsChanged.Add(uint64(len(changed)))
	b.log.WarnContext(ctx, "an MCP server changed what it says of its tools", "host", in.host, "path", in.path, "tools", changed)
	told := *v
	told.id = b.ids.next(b.cfg.Now())
	told.changed = changed
	told.dec.Reason = "The MCP server changed what it says of its tools: " + strings.Join(changed, ", ")
	b.record(st, in, who, &told)
}

// serverKey names an MCP server: the resource, and the path that is asked for.
func serverKey(st *state, in *inbound) string { return resourceKey(st, in) + " " + in.path }

// schemas gives a request of MCP what its server's tools declare, where its
// headers are to be held against that.
func (b *Bouncer) schemas(st *state, in *inbound) {
	if s := in.seen; s.refs.MCP && (len(s.head.mcp.Params) > 0 || s.head.mcp.Name != "") {
		s.head.mcp.Declared = b.tools.declared(serverKey(st, in))
	}
}

// permitsTool reports whether a tool may be called.
func (b *Bouncer) permitsTool(ctx context.Context, st *state, in *inbound, who *identity.Caller, name string) bool {
	d := b.decideTool(ctx, st, in, who, name)
	return d.Permit && d.Err == nil
}

// toolbook remembers what servers say of their tools: one whose description
// changes after it was approved is not the tool that was approved.
type toolbook struct {
	path string

	mu   sync.Mutex
	seen map[string]string // server and tool, to digest
	// listed are the tools by server, as far as somebody asked for them.
	listed map[string][]string
	// params are the declared parameters by server and tool. A server's map is
	// replaced and never changed, so that who has it needs no lock.
	params map[string]map[string][]mcp.Param
}

// openTools reads what was remembered; a file that cannot be read is as none.
func openTools(dir string) *toolbook {
	t := &toolbook{path: filepath.Join(dir, toolsName), seen: map[string]string{}, params: map[string]map[string][]mcp.Param{}}
	if data, err := os.ReadFile(t.path); err == nil {
		if json.Unmarshal(data, &t.seen) != nil || t.seen == nil {
			t.seen = map[string]string{}
		}
	}
	return t
}

// note remembers a list of tools, and gives those that are not what they were.
func (t *toolbook) note(server string, tools []mcp.Tool) (changed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learn(server, tools)
	write := false
	for _, tool := range tools {
		key := toolKey(server, tool.Name)
		before, known := t.seen[key]
		switch {
		case known && before == tool.Digest, !known && len(t.seen) >= maxTools, len(key) > 1024:
			continue
		case known && !slices.Contains(changed, tool.Name):
			changed = append(changed, tool.Name)
		}
		t.seen[key] = tool.Digest
		delete(t.listed, server)
		write = true
	}
	if !write {
		return nil
	}
	if data, err := json.Marshal(t.seen); err == nil {
		// Should it fail, a change is reported once more after a restart, or not: the log has it.
		if os.WriteFile(t.path+".new", data, 0o600) == nil {
			_ = os.Rename(t.path+".new", t.path)
		}
	}
	return changed
}

// learn remembers which arguments a server's tools have repeated in headers. A
// list may come in pages: what is not in this one stays.
func (t *toolbook) learn(server string, tools []mcp.Tool) {
	known := t.params[server]
	if !slices.ContainsFunc(tools, func(tool mcp.Tool) bool {
		return !slices.EqualFunc(known[tool.Name], tool.Params, mcp.Param.Equal)
	}) {
		return
	}
	next := maps.Clone(known)
	if next == nil {
		next = map[string][]mcp.Param{}
	}
	for _, tool := range tools {
		delete(next, tool.Name)
		if len(tool.Params) > 0 && len(tool.Name) <= maxToolName && len(next) < maxDeclared {
			next[strings.Clone(tool.Name)] = tool.Params
		}
	}
	if _, is := t.params[server]; !is && len(t.params) >= maxServers {
		for other := range t.params { // any: its list comes again
			delete(t.params, other)
			break
		}
	}
	t.params[server] = next
	if len(next) == 0 {
		delete(t.params, server)
	}
}

// toolKey names a tool of a server; the length tells where the server's name ends.
func toolKey(server, tool string) string {
	return strconv.Itoa(len(server)) + " " + server + " " + tool
}

// names are the tools that a server has listed; not to be changed.
func (t *toolbook) names(server string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names, ok := t.listed[server]
	if ok {
		return names
	}
	for key := range t.seen {
		if name, ok := strings.CutPrefix(key, toolKey(server, "")); ok && len(names) < maxDeclared {
			names = append(names, name)
		}
	}
	if t.listed == nil || len(t.listed) >= maxServers {
		t.listed = map[string][]string{}
	}
	t.listed[server] = names
	return names
}

// declared are the parameters that a server's tools declare; not to be changed.
func (t *toolbook) declared(server string) map[string][]mcp.Param {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.params[server]
}
