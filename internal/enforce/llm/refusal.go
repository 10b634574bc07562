package llm

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// AppendError appends the members of a refusal that clients of the request's
// provider read: OpenAI's `"error":{message, type, param, code}`, Anthropic's
// `"type":"error","error":{type, message}`. code is ours.
func (r *Request) AppendError(dst []byte, status int, code, message string) []byte {
	if r.Provider == Anthropic {
		dst = append(dst, `"type":"error","error":{"type":"`...)
		dst = append(dst, anthropicType(status)...)
		dst = value.AppendString(append(dst, `","message":`...), message)
		dst = value.AppendString(append(dst, `,"code":`...), code)
		return append(dst, '}')
	}
	dst = value.AppendString(append(dst, `"error":{"message":`...), message)
	dst = append(dst, `,"type":"`...)
	dst = append(dst, openAIType(status)...)
	dst = value.AppendString(append(dst, `","param":null,"code":`...), code)
	return append(dst, '}')
}

func openAIType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

func anthropicType(status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}
