// Package llm reads the traffic of language models as far as controls and budgets need it: requests
// in the format of OpenAI (chat completions, completions, responses), Anthropic (messages), Gemini,
// Ollama and others, and the `usage` at the end of an answer, streamed or not. Text for a model may
// be anywhere in a body, so the package reads all of it. It does no I/O.
package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Providers, by the format of the request. Another provider may serve it.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
)

// Source is what is known of a request besides its body.
type Source struct {
	Path string
	// AnthropicVersion is the header that Anthropic's clients send.
	AnthropicVersion string
	// Model means that the request goes to a model or an agent, so that any body is a prompt.
	// Otherwise only a body in the format of one is.
	Model bool
	// Texts asks for the texts of each message, as a model reads them.
	Texts bool
	// Query are the texts outside the body, in the query.
	Query []value.Member
}

// provider returns the provider, as far as the head identifies it.
func (s Source) provider() string {
	if s.AnthropicVersion != "" || strings.HasSuffix(s.Path, "/messages") || strings.Contains(s.Path, "/messages/") {
		return Anthropic
	}
	return OpenAI
}

// Request is what a body asks of a model.
type Request struct {
	Provider string
	// Model is the model's name. It is empty if the request names none or several.
	Model string
	// Messages are {role, content}: those that were sent, and anything else that the model may
	// read, under the role of its author: system, user, tools (what tools are said to do) or
	// other. Media are cut to their beginning.
	Messages value.Value
	// Texts are {role, text} for each message: its text in plain letters.
	Texts value.Value
	// MaxTokens limits the answers together; -1 if the request does not say.
	MaxTokens int64
	// Choices is the number of answers to generate.
	Choices int64
	// Estimated is an estimate of the tokens of the prompt, including tools.
	Estimated int64
	Stream    bool
	// Unreadable says why the prompt cannot be read, or is empty.
	Unreadable string
}

// Media adds n pictures or documents that were sent outside of what was read.
func (r *Request) Media(n int) { r.Estimated += int64(n) * perMedia }

// Error says why a body is ambiguous.
type Error struct{ Message string }

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unreadable returns a request whose prompt cannot be read.
func Unreadable(src Source, why string) *Request {
	return &Request{Provider: src.provider(), MaxTokens: -1, Choices: 1, Unreadable: why}
}

// Doc returns input.llm. For a request that cannot be read, it contains only provider, unreadable
// (true) and reason.
func (r *Request) Doc() value.Value {
	members := make([]value.Member, 0, 8)
	add := func(key string, v value.Value) { members = append(members, value.Member{Key: key, Value: v}) }
	add("provider", value.String(r.Provider))
	if r.Unreadable != "" {
		add("unreadable", value.Bool(true))
		add("reason", value.String(r.Unreadable))
		return value.Object(members...)
	}
	if r.Model != "" {
		add("model", value.String(r.Model))
	}
	if r.Messages.Defined() {
		add("messages", r.Messages)
	}
	if r.Texts.Defined() {
		add("texts", r.Texts)
	}
	if r.MaxTokens >= 0 {
		add("max_tokens", value.Int(r.MaxTokens))
	}
	if r.Choices > 1 {
		add("choices", value.Int(r.Choices))
	}
	add("estimated_tokens", value.Int(r.Estimated))
	add("stream", value.Bool(r.Stream))
	return value.Object(members...)
}

// Parse reads a request body. It returns nil if the request does not ask a model. The body decides,
// because a server may read it whatever the path says. The path and Anthropic's version header only
// distinguish two formats that look the same.
func Parse(src Source, body value.Value) (*Request, *Error) {
	return parseAll(src, []value.Value{body})
}

// parseAll reads several bodies that are sent together, as a batch. They make one request, with the
// sum of their tokens.
func parseAll(src Source, bodies []value.Value) (*Request, *Error) {
	b := builder{src: src}
	for _, body := range bodies {
		if err := b.body(body); err != nil {
			return nil, err
		}
	}
	if !b.asks && !src.Model {
		return nil, nil
	}
	for _, m := range src.Query {
		b.unknownMember(m.Key, m.Value, false)
	}
	if b.unreadable != "" {
		return Unreadable(src, b.unreadable), nil
	}
	return b.request(), nil
}

// Plain returns a request for texts that are not in the format of a provider.
func Plain(src Source, texts ...value.Member) (*Request, *Error) {
	src.Model = true
	return Parse(src, value.Object(texts...))
}
