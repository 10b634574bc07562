package llm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The other providers whose clients expect an error form of their own.
const (
	Gemini  = "gemini"
	Ollama  = "ollama"
	Bedrock = "bedrock"
)

// dialects maps the names of providers in gateways and resources to the error form that their
// clients read. Providers that are not listed use OpenAI's.
var dialects = map[string]string{
	"anthropic": Anthropic, "claude": Anthropic,
	"gemini": Gemini, "google": Gemini, "vertex": Gemini, "vertexai": Gemini, "vertex_ai": Gemini, "google_vertex": Gemini, "google_ai": Gemini,
	"ollama":  Ollama,
	"bedrock": Bedrock, "aws": Bedrock, "aws_bedrock": Bedrock, "amazon_bedrock": Bedrock,
}

// Dialect returns the error form for the name of a provider, as in a resource's ai_provider.
func Dialect(name string) string {
	if d := dialects[strings.ToLower(strings.TrimSpace(name))]; d != "" {
		return d
	}
	return OpenAI
}

// ProviderOf returns the provider of an API by a canonical path and the request's header fields, or
// "". It compares the ends of paths, because gateways add prefixes.
func ProviderOf(path string, h map[string][]string) string {
	switch {
	case ends(path, ":generateContent", ":streamGenerateContent", ":countTokens", ":embedContent", ":batchEmbedContents", ":predict"), len(h["X-Goog-Api-Key"]) > 0:
		return Gemini
	case strings.HasPrefix(path, "/v1beta/openai/"):
		return OpenAI
	case strings.HasPrefix(path, "/v1beta/"), strings.HasPrefix(path, "/v1alpha/"):
		return Gemini
	case len(h["Anthropic-Version"]) > 0, ends(path, "/v1/messages", "/v1/complete", "/v1/messages/count_tokens"), strings.Contains(path, "/v1/messages/batches"):
		return Anthropic
	case strings.HasPrefix(path, "/model/") && ends(path, "/invoke", "/invoke-with-response-stream", "/converse", "/converse-stream"):
		return Bedrock
	case ends(path, "/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/tags", "/api/show", "/api/pull", "/api/ps"):
		return Ollama
	case ends(path, "/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/models", "/v1/moderations", "/v1/images/generations",
		"/v1/images/edits", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"),
		strings.HasPrefix(path, "/openai/"), strings.HasPrefix(path, "/v1/responses/"), strings.HasPrefix(path, "/v1/models/"):
		return OpenAI
	}
	return ""
}

func ends(path string, with ...string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasSuffix(path, w) })
}

// AppendRefusal appends the members by which clients of a provider recognise a refusal. code is the
// code of gatehouse. The caller adds the members that all forms have, message and ids, unless named
// reports that the form has a member `message` of its own.
func AppendRefusal(dst []byte, provider string, status int, code, message string) (out []byte, named bool) {
	text := func(before, s string) { dst = value.AppendString(append(dst, before...), s) }
	switch provider {
	case Anthropic:
		text(`"type":"error","error":{"type":`, anthropicType(status))
		text(`,"message":`, message)
		text(`,"code":`, code)
		dst = append(dst, '}')
	case Gemini:
		dst = strconv.AppendInt(append(dst, `"error":{"code":`...), int64(status), 10)
		text(`,"message":`, message)
		text(`,"status":`, googleStatus(status))
		text(`,"details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"gatehouse","reason":`, strings.ToUpper(code))
		dst = append(dst, `}]}`...)
	case Ollama: // a plain text
		text(`"error":`, message)
		text(`,"code":`, code)
	case Bedrock:
		text(`"message":`, message)
		text(`,"error":`, code)
		return dst, true
	default:
		text(`"error":{"message":`, message)
		text(`,"type":`, openAIType(status))
		text(`,"param":null,"code":`, code)
		dst = append(dst, '}')
	}
	return dst, false
}

// RefusalHeader returns the field by which a provider's clients recognise the kind of an error. The
// name is empty if there is none.
func RefusalHeader(provider string, status int) (name, text string) {
	if provider != Bedrock {
		return "", ""
	}
	switch {
	case status == 401 || status == 403:
		return "X-Amzn-Errortype", "AccessDeniedException"
	case status == 429:
		return "X-Amzn-Errortype", "ThrottlingException"
	case status == 503:
		return "X-Amzn-Errortype", "ServiceUnavailableException"
	case status >= 500:
		return "X-Amzn-Errortype", "InternalServerException"
	}
	return "X-Amzn-Errortype", "ValidationException"
}

// types are the error types of OpenAI and Anthropic for an HTTP status.
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
	case status == 404:
		return "not_found_error"
	case status == 413:
		return "request_too_large"
	case status == 504:
		return "timeout_error"
	case status >= 500:
		return "api_error"
	}
	return "invalid_request_error"
}

// googleStatus returns the code of google.rpc for an HTTP status.
func googleStatus(status int) string {
	switch status {
	case 401:
		return "UNAUTHENTICATED"
	case 403:
		return "PERMISSION_DENIED"
	case 404:
		return "NOT_FOUND"
	case 429:
		return "RESOURCE_EXHAUSTED"
	case 502, 503:
		return "UNAVAILABLE"
	case 504:
		return "DEADLINE_EXCEEDED"
	case 500:
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}
