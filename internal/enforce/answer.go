package enforce

import (
	"net/http"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// refuse answers in place of the application.
func (b *Bouncer) refuse(w http.ResponseWriter, in *inbound, decision string, no *refusal) {
	body := refusalBody(in, decision, no)
	status := no.statusFor(in)
	h := w.Header()
	refusalHeader(h.Set, in, decision, no)
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

// refusalBody is JSON {error, message, decision_id?, request_id}. To who speaks
// MCP or to a model it is that protocol's error.
func refusalBody(in *inbound, decision string, no *refusal) []byte {
	if in.seen != nil && (in.seen.rpc != nil || in.seen.bad != nil) {
		return in.seen.rpcError(in, decision, no)
	}
	body := make([]byte, 0, 256)
	body = append(body, '{')
	if in.seen != nil && in.seen.llm != nil {
		body = in.seen.llm.AppendError(body, no.status, no.code, no.message)
	} else {
		body = value.AppendString(append(body, `"error":`...), no.code)
	}
	body = append(body, `,"message":`...)
	body = value.AppendString(body, no.message)
	if decision != "" {
		body = append(body, `,"decision_id":`...)
		body = value.AppendString(body, decision)
	}
	body = append(body, `,"request_id":`...)
	body = value.AppendString(body, in.id)
	return append(body, '}', '\n')
}

// refusalHeader sets the fields of a refusal that are not about the connection.
func refusalHeader(set func(name, value string), in *inbound, decision string, no *refusal) {
	set("Content-Type", "application/json; charset=utf-8")
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	set(headerRequestID, in.id)
	if decision != "" {
		set(headerDecisionID, decision)
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
