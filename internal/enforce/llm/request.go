// Package llm reads the traffic of language models as far as controls and
// budgets need it: requests in the shape of OpenAI (chat completions,
// completions, responses) and of Anthropic (messages), and the `usage` at the
// end of an answer, streamed or not. It is pure: bytes in, facts out.
package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Providers, by the shape of the request: who serves it is not known.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// Request is what a body asks a model for.
type Request struct {
	Provider string
	Model    string
	// Messages are {role, content} as sent; what a shape keeps elsewhere (a
	// system prompt, instructions, one input text) stands among them.
	Messages value.Value
	// MaxTokens bounds the answer; -1: the request does not say.
	MaxTokens int64
	// Estimated is about how many tokens the prompt has, tools included.
	Estimated int64
	Stream    bool
}

// Doc is input.llm (contract section 6).
func (r *Request) Doc() value.Value {
	members := make([]value.Member, 0, 6)
	add := func(key string, v value.Value) { members = append(members, value.Member{Key: key, Value: v}) }
	add("provider", value.String(r.Provider))
	if r.Model != "" {
		add("model", value.String(r.Model))
	}
	if r.Messages.Defined() {
		add("messages", r.Messages)
	}
	if r.MaxTokens >= 0 {
		add("max_tokens", value.Int(r.MaxTokens))
	}
	add("estimated_tokens", value.Int(r.Estimated))
	add("stream", value.Bool(r.Stream))
	return value.Object(members...)
}

// Parse reads a request's body; false: it asks no model for anything. The body
// decides, for a server may read it whatever the path says; the path and
// Anthropic's version header only tell two shapes apart that look the same.
func Parse(path, anthropicVersion string, body value.Value) (Request, bool) {
	if body.Kind() != value.ObjectKind || body.Get("jsonrpc").Defined() {
		return Request{}, false
	}
	r := Request{Provider: OpenAI, MaxTokens: -1}
	messages, prompt, input := body.Get("messages"), body.Get("prompt"), body.Get("input")
	var list []value.Value
	switch {
	case messages.Defined():
		if anthropicVersion != "" || strings.HasSuffix(path, "/messages") || body.Get("system").Defined() || body.Get("stop_sequences").Defined() {
			r.Provider = Anthropic
		}
		list = prefixed("system", body.Get("system"))
		list = append(list, conversation(messages)...)
	case prompt.Defined():
		list = append(prefixed("system", body.Get("system")), turn("user", prompt))
	case input.Defined() && body.Get("model").Defined():
		list = prefixed("system", body.Get("instructions"))
		list = append(list, conversation(input)...)
	default:
		return Request{}, false
	}
	r.Messages = value.Array(list...)
	r.Model, _ = body.Get("model").Str()
	for _, name := range [...]string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		if n, ok := body.Get(name).Int64(); ok && n > r.MaxTokens {
			r.MaxTokens = n
		}
	}
	r.Stream = body.Get("stream").True()
	r.Estimated = estimate(r.Model, &r, body)
	return r, true
}

// conversation is a list of messages: the items of an array as they are, and a
// bare text as what a user says. Items without a role (calls of tools and what
// they gave) are the tool's.
func conversation(v value.Value) []value.Value {
	if v.Kind() != value.ArrayKind {
		return []value.Value{turn("user", v)}
	}
	list := make([]value.Value, 0, v.Len())
	for _, m := range v.Elems() {
		switch {
		case m.Kind() != value.ObjectKind:
			m = turn("user", m)
		case !m.Get("role").Defined():
			m = turn("tool", m)
		}
		list = append(list, m)
	}
	return list
}

func prefixed(role string, content value.Value) []value.Value {
	if !content.Defined() || content.IsNull() {
		return nil
	}
	return []value.Value{turn(role, content)}
}

func turn(role string, content value.Value) value.Value {
	return value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "content", Value: content})
}
