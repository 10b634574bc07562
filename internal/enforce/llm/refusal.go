package llm

import "github.com/gatehouse-dev/gatehouse/internal/rego/value"

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

// types are the words that both providers have for an HTTP status.
var types = map[int]string{401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

func openAIType(status int) string {
	switch word := types[status]; {
	case word != "":
		return word
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

func anthropicType(status int) string {
	switch word := types[status]; {
	case word != "":
		return word
	case status == 413:
		return "request_too_large"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}
