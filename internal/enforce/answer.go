package enforce

import (
	"net/http"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcp"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// refuse answers in place of the application.
func (b *Bouncer) refuse(w http.ResponseWriter, in *request.Inbound, decision string, no *request.Refusal) {
	provider := b.providerOf(in)
	body := refusalBody(in, provider, decision, no)
	status := statusFor(no, in)
	h := w.Header()
	refusalHeader(h.Set, in, provider, decision, no)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	switch no.Status {
	case http.StatusBadRequest, http.StatusRequestTimeout:
		// Who sends what two servers read differently is not asked for more.
		h.Set("Connection", "close")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(clientWrite))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// statusFor is the status that the client gets.
func statusFor(no *request.Refusal, in *request.Inbound) int {
	if in.Calls() && (no.Code == "access_denied" || no.Code == codeBudget || no.Code == "unknown_method") {
		// A call has an answer, which is the error. By another status clients
		// of MCP take the connection for broken.
		return http.StatusOK
	}
	return no.Status
}

// providerOf is the model provider whose clients ask, for the form of an error;
// "": none. A request in a model's form says it, else a resource that is a model
// endpoint, else, where no resource is known, a path that only models have.
func (b *Bouncer) providerOf(in *request.Inbound) string {
	byPath := llm.ProviderOf(in.Path, in.Headers)
	if in.Seen != nil && in.Seen.LLM != nil {
		if byPath != "" {
			return byPath
		}
		return in.Seen.LLM.Provider
	}
	var res *rego.Resource
	if st := b.state.Load(); st.Set != nil {
		res = st.Set.Match(in.Locator())
	}
	switch {
	case res != nil && servesModels(res):
		if byPath != "" {
			return byPath
		}
	case byPath == llm.Ollama: // other applications have such paths, too
		return ""
	default:
		return byPath
	}
	name, _ := res.Doc.Get("ai_provider").Str()
	return llm.Dialect(name)
}

// servesModels reports a resource that is registered as a model endpoint.
func servesModels(res *rego.Resource) bool {
	kind, _ := res.Doc.Get("resource_kind").Str()
	return kind == "llm_endpoint" || kind == "" && (res.Type == "llm" || res.Type == "llm_endpoint")
}

// refusalBody is JSON {error, message, decision_id?, request_id}. To who speaks
// MCP or to a model it is that protocol's error.
func refusalBody(in *request.Inbound, provider, decision string, no *request.Refusal) []byte {
	if in.Seen != nil && (in.Seen.RPC != nil || in.Seen.MCPError != nil) {
		return rpcError(in.Seen, in, decision, no)
	}
	body := append(make([]byte, 0, 256), '{')
	named := false
	if provider != "" {
		body, named = llm.AppendRefusal(body, provider, no.Status, no.Code, no.Message)
	} else {
		body = value.AppendString(append(body, `"error":`...), no.Code)
	}
	if !named {
		body = value.AppendString(append(body, `,"message":`...), no.Message)
	}
	if decision != "" {
		body = append(body, `,"decision_id":`...)
		body = value.AppendString(body, decision)
	}
	body = append(body, `,"request_id":`...)
	body = value.AppendString(body, in.ID)
	return append(body, '}', '\n')
}

// refusalHeader sets the fields of a refusal that are not about the connection.
func refusalHeader(set func(name, value string), in *request.Inbound, provider, decision string, no *request.Refusal) {
	set("Content-Type", "application/json; charset=utf-8")
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	set(header.RequestID, in.ID)
	if decision != "" {
		set(header.DecisionID, decision)
	}
	if name, text := llm.RefusalHeader(provider, no.Status); name != "" {
		set(name, text)
	}
	switch no.Status {
	case http.StatusUnauthorized:
		set("WWW-Authenticate", challenge(in, no))
	case http.StatusTooManyRequests:
		set("Retry-After", strconv.Itoa(int(in.RetryAfter.Seconds())))
	case http.StatusServiceUnavailable:
		set("Retry-After", "5")
	case http.StatusMethodNotAllowed:
		set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
}

// rpcError is a refusal as a JSON-RPC error, with the message's id.
func rpcError(s *request.Inspection, in *request.Inbound, decision string, no *request.Refusal) []byte {
	code, id := mcp.CodeDenied, ""
	switch {
	case s.MCPError != nil:
		code, id = s.MCPError.Code, s.MCPError.ID
	case no.Status >= 500:
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
	out = value.AppendString(append(out, `,"message":`...), no.Message)
	out = value.AppendString(append(out, `,"data":{"error":`...), no.Code)
	if decision != "" {
		out = value.AppendString(append(out, `,"decision_id":`...), decision)
	}
	out = value.AppendString(append(out, `,"request_id":`...), in.ID)
	return append(out, "}}}\n"...)
}
