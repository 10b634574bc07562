// Package llm reads the traffic of language models as far as controls and
// budgets need it: requests in the shape of OpenAI (chat completions,
// completions, responses), Anthropic (messages), Gemini, Ollama and others, and
// the `usage` at the end of an answer, streamed or not. What a model is told may
// stand anywhere in a body, so that all of it is read. It is pure: bytes in,
// facts out.
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

// Source is what is known of a request beside its body.
type Source struct {
	Path string
	// AnthropicVersion is the header that clients of Anthropic send.
	AnthropicVersion string
	// Model: a model or an agent is asked, so that any body is a prompt. Elsewhere
	// only a body in the shape of one is.
	Model bool
	// Texts: the texts of each message are wanted as a model reads them.
	Texts bool
	// Beside are the texts that stand beside the body, in the query.
	Beside []value.Member
}

// Provider is the provider as far as the head tells it.
func (s Source) Provider() string {
	if s.AnthropicVersion != "" || strings.HasSuffix(s.Path, "/messages") || strings.Contains(s.Path, "/messages/") {
		return Anthropic
	}
	return OpenAI
}

// Request is what a body asks a model for.
type Request struct {
	Provider string
	// Model is the model's name; empty: none is named, or several are.
	Model string
	// Messages are {role, content}: those that were sent, and as further ones all
	// else that a model may be told, with the role of who says it: system, user,
	// tools (what tools are said to do) or other. Media are cut to their beginning.
	Messages value.Value
	// Texts are {role, text} for each message: what it says, in plain letters.
	Texts value.Value
	// MaxTokens bounds the answers together; -1: the request does not say.
	MaxTokens int64
	// Choices is how many answers are asked for.
	Choices int64
	// Estimated is about how many tokens the prompt has, tools included.
	Estimated int64
	Stream    bool
	// Unreadable says why the prompt cannot be read; empty: it was read.
	Unreadable string
}

// Media adds n pictures or documents that were sent beside what was read.
func (r *Request) Media(n int) { r.Estimated += int64(n) * perMedia }

// Error says why a body has no one meaning.
type Error struct{ Message string }

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unreadable is a request whose prompt cannot be read.
func Unreadable(src Source, why string) *Request {
	return &Request{Provider: src.Provider(), MaxTokens: -1, Choices: 1, Unreadable: why}
}

// Doc is input.llm. Of a request that cannot be read it holds provider,
// unreadable (true) and reason alone.
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

// Parse reads a request's body; nil: it asks no model for anything. The body
// decides, for a server may read it whatever the path says; the path and
// Anthropic's version header only tell two shapes apart that look the same.
func Parse(src Source, body value.Value) (*Request, *Error) {
	return ParseAll(src, []value.Value{body})
}

// ParseAll reads several bodies that are sent as one: a batch. They make one
// request, of which the tokens add up.
func ParseAll(src Source, bodies []value.Value) (*Request, *Error) {
	b := builder{src: src}
	for _, body := range bodies {
		if err := b.body(body); err != nil {
			return nil, err
		}
	}
	if !b.asks && !src.Model {
		return nil, nil
	}
	for _, m := range src.Beside {
		b.other(m.Key, m.Value, false)
	}
	if b.unreadable != "" {
		return Unreadable(src, b.unreadable), nil
	}
	return b.request(), nil
}

// Plain makes a request of texts that come in no shape of a provider.
func Plain(src Source, texts ...value.Member) (*Request, *Error) {
	src.Model = true
	return Parse(src, value.Object(texts...))
}
