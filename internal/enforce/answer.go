package enforce

import (
	"net/http"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/llm"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// refuse answers in place of the application.
func (b *Bouncer) refuse(w http.ResponseWriter, in *inbound, decision string, no *refusal) {
	provider := b.providerOf(in)
	body := refusalBody(in, provider, decision, no)
	status := no.statusFor(in)
	h := w.Header()
	refusalHeader(h.Set, in, provider, decision, no)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	switch no.status {
	case http.StatusBadRequest, http.StatusRequestTimeout:
		// Who sends what two servers read differently is not asked for more.
		h.Set("Connection", "close")
	}
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(clientWrite))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// statusFor is the status that the client gets.
func (no *refusal) statusFor(in *inbound) int {
	if in.calls() && (no.code == "access_denied" || no.code == codeBudget || no.code == "unknown_method") {
		// A call has an answer, which is the error. By another status clients
		// of MCP take the connection for broken.
		return http.StatusOK
	}
	return no.status
}

// providerOf is the model provider whose clients ask, for the form of an error;
// "": none. A request in a model's form says it, else a resource that is a model
// endpoint, else, where no resource is known, a path that only models have.
func (b *Bouncer) providerOf(in *inbound) string {
	byPath := llm.ProviderOf(in.path, in.headers)
	if in.seen != nil && in.seen.llm != nil {
		if byPath != "" {
			return byPath
		}
		return in.seen.llm.Provider
	}
	var res *rego.Resource
	if st := b.state.Load(); st.Set != nil {
		res = st.Set.Match(in.locator())
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
func refusalBody(in *inbound, provider, decision string, no *refusal) []byte {
	if in.seen != nil && (in.seen.rpc != nil || in.seen.bad != nil) {
		return in.seen.rpcError(in, decision, no)
	}
	body := append(make([]byte, 0, 256), '{')
	named := false
	if provider != "" {
		body, named = llm.AppendRefusal(body, provider, no.status, no.code, no.message)
	} else {
		body = value.AppendString(append(body, `"error":`...), no.code)
	}
	if !named {
		body = value.AppendString(append(body, `,"message":`...), no.message)
	}
	if decision != "" {
		body = append(body, `,"decision_id":`...)
		body = value.AppendString(body, decision)
	}
	body = append(body, `,"request_id":`...)
	body = value.AppendString(body, in.id)
	return append(body, '}', '\n')
}

// refusalHeader sets the fields of a refusal that are not about the connection.
func refusalHeader(set func(name, value string), in *inbound, provider, decision string, no *refusal) {
	set("Content-Type", "application/json; charset=utf-8")
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	set(header.RequestID, in.id)
	if decision != "" {
		set(header.DecisionID, decision)
	}
	if name, text := llm.RefusalHeader(provider, no.status); name != "" {
		set(name, text)
	}
	switch no.status {
	case http.StatusUnauthorized:
		set("WWW-Authenticate", in.challenge(no))
	case http.StatusTooManyRequests:
		set("Retry-After", strconv.Itoa(int(in.retry.Seconds())))
	case http.StatusServiceUnavailable:
		set("Retry-After", "5")
	case http.StatusMethodNotAllowed:
		set("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
	}
}
