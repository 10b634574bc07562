// Package refuse answers in place of the application, in the form that the client reads:
// plain JSON, a JSON-RPC error, or the error of a model provider.
package refuse

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Writer answers in place of the application.
type Writer struct {
	State *atomic.Pointer[settings.State]
	Now   func() time.Time
}

// Write writes a refusal. decision is the id of the decision; empty: there was none.
func (rw *Writer) Write(w http.ResponseWriter, in *request.Inbound, decision string, refusal *request.Refusal) {
	provider := rw.ProviderOf(in)
	body := Body(in, provider, decision, refusal)
	status := StatusFor(refusal, in)
	h := w.Header()
	Header(h.Set, in, provider, decision, refusal)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusRequestTimeout:
		// If two servers could read the client's request differently, its connection is closed.
		h.Set("Connection", "close")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(rw.Now().Add(bodies.ClientWriteTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// StatusFor returns the HTTP status that the client gets.
func StatusFor(refusal *request.Refusal, in *request.Inbound) int {
	if in.IsMCPCall() && (refusal.Code == "access_denied" || refusal.Code == judge.CodeBudget || refusal.Code == "unknown_method") {
		// The answer to a call carries the error. MCP clients take any other status for a
		// broken connection.
		return http.StatusOK
	}
	return refusal.Status
}

// ProviderOf returns the model provider whose error format the client expects; "": none. The form
// of the request comes first, then the resource if it is a model endpoint, and where no resource
// matches, a path that only models have.
func (rw *Writer) ProviderOf(in *request.Inbound) string {
	byPath := llm.ProviderOf(in.Path, in.Headers)
	if in.Seen != nil && in.Seen.LLM != nil {
		return cmp.Or(byPath, in.Seen.LLM.Provider)
	}
	var res *target.Resource
	if st := rw.State.Load(); st.Set != nil {
		res = st.Set.Match(in.Locator())
	}
	switch {
	case request.KindOf(res) == "llm_endpoint":
		if byPath != "" {
			return byPath
		}
	case byPath == llm.Ollama: // other applications have such paths too
		return ""
	default:
		return byPath
	}
	name, _ := res.Doc.Get("ai_provider").Str()
	return llm.Dialect(name)
}

// Body returns JSON {error, message, decision_id?, request_id, request_access?}. MCP clients and
// clients of models get the error format of their protocol.
func Body(in *request.Inbound, provider, decision string, refusal *request.Refusal) []byte {
	if in.Seen != nil && (in.Seen.RPC != nil || in.Seen.MCPError != nil) {
		return rpcError(in.Seen, in, decision, refusal)
	}
	body := append(make([]byte, 0, 256), '{')
	named := false
	if provider != "" {
		body, named = llm.AppendRefusal(body, provider, refusal.Status, refusal.Code, refusal.Message)
	} else {
		body = value.AppendString(append(body, `"error":`...), refusal.Code)
	}
	if !named {
		body = value.AppendString(append(body, `,"message":`...), refusal.Message)
	}
	if decision != "" {
		body = append(body, `,"decision_id":`...)
		body = value.AppendString(body, decision)
	}
	body = append(body, `,"request_id":`...)
	body = value.AppendString(body, in.ID)
	return append(appendAccess(body, refusal), '}', '\n')
}

// Header sets the header fields of a refusal, apart from those about the connection.
func Header(set func(name, value string), in *request.Inbound, provider, decision string, refusal *request.Refusal) {
	set("Content-Type", "application/json; charset=utf-8")
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	set(header.RequestID, in.ID)
	if decision != "" {
		set(header.DecisionID, decision)
	}
	if name, text := llm.RefusalHeader(provider, refusal.Status); name != "" {
		set(name, text)
	}
	switch refusal.Status {
	case http.StatusUnauthorized:
		set("WWW-Authenticate", challenge(in, refusal))
	case http.StatusTooManyRequests:
		set("Retry-After", strconv.Itoa(int(in.RetryAfter.Seconds())))
	case http.StatusServiceUnavailable:
		set("Retry-After", "5")
	case http.StatusMethodNotAllowed:
		set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
}

// rpcError returns a refusal as a JSON-RPC error with the id of the message.
func rpcError(s *request.Inspection, in *request.Inbound, decision string, refusal *request.Refusal) []byte {
	code, id := mcp.CodeDenied, ""
	switch {
	case s.MCPError != nil:
		code, id = s.MCPError.Code, s.MCPError.ID
	case refusal.Status >= 500:
		code = mcp.CodeUnavailable
	}
	if s.RPC != nil {
		id = s.RPC.ID
	}
	out := append(make([]byte, 0, 256), `{"jsonrpc":"2.0",`...)
	if id != "" {
		out = append(append(append(out, `"id":`...), id...), ',')
	}
	out = strconv.AppendInt(append(out, `"error":{"code":`...), int64(code), 10)
	out = value.AppendString(append(out, `,"message":`...), refusal.Message)
	out = value.AppendString(append(out, `,"data":{"error":`...), refusal.Code)
	if decision != "" {
		out = value.AppendString(append(out, `,"decision_id":`...), decision)
	}
	out = value.AppendString(append(out, `,"request_id":`...), in.ID)
	return append(appendAccess(out, refusal), "}}}\n"...)
}

// appendAccess appends what may be requested after a denial.
func appendAccess(dst []byte, refusal *request.Refusal) []byte {
	if refusal.Access == "" {
		return dst
	}
	return append(append(dst, `,"request_access":`...), refusal.Access...)
}

// challenge returns the value of WWW-Authenticate (RFC 6750 section 3, RFC 9728 section 5.1).
func challenge(in *request.Inbound, refusal *request.Refusal) string {
	var with []string
	if refusal.Code != judge.CodeNoToken {
		with = append(with, `error="invalid_token"`)
	}
	if in.MetadataURL != "" {
		with = append(with, `resource_metadata="`+in.MetadataURL+`"`)
	}
	if len(with) == 0 {
		with = append(with, `realm="gatehouse"`) // RFC 6750 wants at least one parameter
	}
	return "Bearer " + strings.Join(with, ", ")
}
