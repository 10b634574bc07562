package llm

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/spelling"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The members of a body that have a meaning.
var (
	// bodyNames are those at the top level.
	bodyNames = spelling.New(
		"model", "stream", "jsonrpc", "messages", "prompt", "input", "inputs", "contents", "content", "system", "instructions",
		"system_instruction", "systemInstruction", "preamble", "suffix", "template", "tools", "functions", "requests", "options", "params", "body",
		"generationConfig", "generation_config", "thinking", "thinkingConfig", "thinking_config", "parameters", "inferenceConfig", "reasoning",
		"textGenerationConfig", "additionalModelRequestFields", "extra_body", "sampling_params", "samplingParams", "generation_kwargs", "model_kwargs",
		"stop_sequences", "images", "image", "mask",
		"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample", "maxTokens", "maxCompletionTokens",
		"maxOutputTokens", "maxNewTokens", "maxTokenCount", "num_predict", "numPredict", "n_predict", "max_gen_len", "budget_tokens", "budgetTokens",
		"max_generation_tokens", "tokens_to_generate", "max_length", "maxLength", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget", "reasoningBudget",
		"thinking_budget", "thinkingBudget", "min_tokens", "min_new_tokens", "min_completion_tokens", "minTokens", "minNewTokens", "n", "best_of", "bestOf", "num_return_sequences", "candidate_count", "candidateCount", "num_generations",
	)
	// itemNames are those of a message, or of a part of one.
	itemNames = spelling.New(
		"role", "content", "parts", "type", "text", "image_url", "source", "data", "media_type", "input_audio", "file", "file_data", "fileData",
		"inline_data", "inlineData", "mime_type", "mimeType", "images",
	)
	// configNames are those of a settings object.
	configNames = spelling.New(
		"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample", "maxTokens", "maxCompletionTokens",
		"maxOutputTokens", "maxNewTokens", "maxTokenCount", "num_predict", "numPredict", "n_predict", "max_gen_len", "budget_tokens", "budgetTokens",
		"max_generation_tokens", "tokens_to_generate", "max_length", "maxLength", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget", "reasoningBudget",
		"thinking_budget", "thinkingBudget", "min_tokens", "min_new_tokens", "min_completion_tokens", "minTokens", "minNewTokens", "n", "best_of", "bestOf", "num_return_sequences", "candidate_count", "candidateCount", "num_generations",
		"thinking", "thinkingConfig", "thinking_config", "reasoning",
	)
)

// The meaning of a member at the top level. Members that are not listed are texts of unknown
// origin.
const (
	isOther = iota
	isSetting
	isInstruction
	isTurn
	isTools
	isBatch
)

var kinds = map[string]int{
	"model": isSetting, "stream": isSetting, "jsonrpc": isSetting,
	"options": isSetting, "generationConfig": isSetting, "generation_config": isSetting, "thinking": isSetting, "thinkingConfig": isSetting,
	"thinking_config": isSetting, "parameters": isSetting, "inferenceConfig": isSetting, "reasoning": isSetting,
	"system": isInstruction, "instructions": isInstruction, "system_instruction": isInstruction, "systemInstruction": isInstruction, "preamble": isInstruction,
	"messages": isTurn, "prompt": isTurn, "input": isTurn, "inputs": isTurn, "contents": isTurn, "content": isTurn,
	"tools": isTools, "functions": isTools, "requests": isBatch,
}

// instructing are the roles whose messages may be instructions. No other role is trusted.
var instructing = map[string]bool{"system": true, "developer": true}

// assumedAnswer is the number of tokens of one of several answers without a limit.
const assumedAnswer = 1024

// builder collects the contents of the bodies of a request.
type builder struct {
	src Source

	asks      bool // some body has the shape of a prompt
	provider  string
	model     string
	models    int
	messages  []value.Value
	texts     []value.Value
	weigh     weigher
	maxTokens int64
	bounded   bool
	choices   int64
	stream    bool
	// unreadable says why a part of it cannot be read.
	unreadable string
}

// body reads one body.
func (b *builder) body(body value.Value) *Error {
	if body.Kind() != value.ObjectKind {
		if b.src.Model {
			b.addContent("user", body)
		}
		return nil
	}
	shaped, turns := promptShape(body)
	if !shaped && !b.src.Model {
		return nil
	}
	b.asks = true
	if bad := findMisspelt("", body, bodyNames); bad != nil {
		return bad
	}
	if b.provider == "" {
		b.provider = b.src.provider()
		if body.Get("messages").Defined() && (body.Get("system").Defined() || body.Get("stop_sequences").Defined()) {
			b.provider = Anthropic
		}
	}
	if model, ok := body.Get("model").Str(); ok && model != b.model {
		b.model = model
		b.models++
	}
	b.stream = b.stream || body.Get("stream").True()
	if b.unreadable == "" {
		b.unreadable = b.src.encoded(body)
	}
	if bad := b.limits(body); bad != nil {
		return bad
	}
	// If several members hold a prompt, it is unknown which one the server reads. Then no text
	// counts as an instruction of the application.
	believed := "system"
	if turns > 1 {
		believed = "user"
	}
	return b.members(body, believed)
}

// promptShape reports whether a body asks a model, by its members in any spelling, and how many of them
// hold the prompt.
func promptShape(body value.Value) (shaped bool, turns int) {
	model, input := false, false
	body.Each(func(name string, v value.Value) bool {
		known, _ := bodyNames.Find(name)
		switch known {
		case "messages", "prompt", "contents", "inputs":
			shaped = true
		case "input":
			input = true
		case "model":
			model = true
		case "requests":
			shaped = shaped || isBatchOf(v)
		}
		// A prompt that is stored at the provider is named next to its input.
		stored := known == "prompt" && v.Get("id").Defined()
		if kinds[known] == isTurn && !v.IsNull() && !stored {
			turns++
		}
		return true
	})
	return shaped || input && model, turns
}

// members reads a body's members: first the instructions, then the prompt, then other texts, each
// in the order sent.
func (b *builder) members(body value.Value, believed string) *Error {
	var bad *Error
	for pass := isInstruction; pass <= isBatch && bad == nil; pass++ {
		body.Each(func(name string, v value.Value) bool {
			if kinds[name] != pass || v.IsNull() {
				return true
			}
			switch pass {
			case isInstruction:
				bad = b.instruction(believed, v)
			case isTurn:
				bad = b.conversation(v, believed == "user")
			case isTools:
				b.addStructure("tools", v)
			case isBatch:
				bad = b.batch(v)
			}
			return bad == nil
		})
	}
	if bad != nil {
		return bad
	}
	body.Each(func(name string, v value.Value) bool {
		if k := kinds[name]; k == isOther || k == isSetting {
			b.unknownMember(name, v, k == isSetting)
		}
		return true
	})
	return nil
}

// instruction adds a system prompt.
func (b *builder) instruction(role string, v value.Value) *Error {
	if bad := items(v, 0); bad != nil {
		return bad
	}
	b.addContent(role, v)
	return nil
}

// conversation adds a list of messages. A bare text is a message of the user. Items without a role
// (calls of tools and their results) belong to the tool. If doubted is true, no role is trusted.
func (b *builder) conversation(v value.Value, doubted bool) *Error {
	if bad := items(v, 0); bad != nil {
		return bad
	}
	if v.Kind() != value.ArrayKind {
		b.addContent("user", v)
		return nil
	}
	texts := 0
	for _, m := range v.Elems() {
		if m.Kind() != value.ObjectKind {
			texts++
		}
	}
	if texts > 0 && texts == v.Len() { // a list of prompts, or one prompt in parts
		b.addContent("user", v)
		return nil
	}
	for _, m := range v.Elems() {
		switch role, said := m.Get("role").Str(); {
		case m.Kind() != value.ObjectKind:
			b.addContent("user", m)
		case !m.Get("role").Defined():
			b.addContent("tool", m)
		case !said:
			b.addContent("user", m)
		default:
			b.message(role, m, doubted)
		}
	}
	return nil
}

// message adds a message with a role.
func (b *builder) message(role string, m value.Value, doubted bool) {
	if role == "model" { // Gemini's name for the assistant
		role = "assistant"
	}
	if doubted && (instructing[role] || role == "assistant") {
		role = "user"
	}
	members := make([]value.Member, 0, m.Len())
	m.Each(func(name string, v value.Value) bool {
		switch {
		case name == "role":
			v = value.String(role)
		case name == "parts" && !m.Get("content").Defined():
			name = "content"
		}
		members = append(members, value.Member{Key: name, Value: v})
		return true
	})
	b.add(role, value.Object(members...))
}

// addContent adds a message that is not an object of its own.
func (b *builder) addContent(role string, content value.Value) {
	b.add(role, value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "content", Value: content}))
}

func (b *builder) add(role string, m value.Value) {
	r := reader{weigh: &b.weigh}
	m = r.message(m)
	b.weigh.extra += perMessage
	b.messages = append(b.messages, m)
	if b.src.Texts {
		b.texts = append(b.texts, messageDoc(role, r.texts(false)))
	}
}

// addStructure adds a structure that the model is shown: tools and their schemas.
func (b *builder) addStructure(role string, v value.Value) {
	r := reader{weigh: &b.weigh, structure: true}
	r.walk(v, place{}, 0)
	b.weigh.structure(v)
	b.messages = append(b.messages, value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "content", Value: v}))
	if b.src.Texts {
		b.texts = append(b.texts, messageDoc(role, r.texts(true)))
	}
}

// unknownMember reads a member that is not a known part of the prompt. If it contains text, the text is
// added.
func (b *builder) unknownMember(name string, v value.Value, setting bool) {
	switch v.Kind() {
	case value.StringKind:
		if s, _ := v.Str(); name == "model" && isModelName(s) || name != "model" && isLabel(s) {
			return
		}
	case value.ArrayKind, value.ObjectKind:
	default:
		if !isLabel(name) {
			b.addContent("other", value.String(name))
		}
		return
	}
	r := reader{weigh: &b.weigh, structure: !setting}
	kept := r.walk(v, place{key: name}, 0)
	if !isLabel(name) {
		r.main = append(r.main, name)
	}
	if !setting {
		b.weigh.structure(kept)
	}
	if len(r.main) == 0 && len(r.tail) == 0 {
		return
	}
	b.messages = append(b.messages, value.Object(value.Member{Key: "role", Value: value.String("other")}, value.Member{Key: "content", Value: kept}))
	if b.src.Texts {
		b.texts = append(b.texts, messageDoc("other", r.texts(true)))
	}
}

// batch reads the requests inside a request.
func (b *builder) batch(v value.Value) *Error {
	if !isBatchOf(v) {
		b.addStructure("other", v)
		return nil
	}
	for _, one := range v.Elems() {
		inner, rest := unwrap(one)
		if bad := b.body(inner); bad != nil {
			return bad
		}
		if rest.Defined() {
			b.unknownMember("custom_id", rest, false)
		}
	}
	return nil
}

// isBatchOf reports whether v is a list of objects that each contain a request.
func isBatchOf(v value.Value) bool {
	if v.Kind() != value.ArrayKind || v.Len() == 0 {
		return false
	}
	for _, e := range v.Elems() {
		if e.Get("params").Kind() != value.ObjectKind && e.Get("body").Kind() != value.ObjectKind {
			return false
		}
	}
	return true
}

// unwrap returns the request inside an entry of a batch, and the entry's other members.
func unwrap(entry value.Value) (inner, rest value.Value) {
	for _, name := range [...]string{"params", "body"} {
		if inner = entry.Get(name); inner.Kind() == value.ObjectKind {
			var beside []value.Member
			entry.Each(func(k string, v value.Value) bool {
				if k != name {
					beside = append(beside, value.Member{Key: k, Value: v})
				}
				return true
			})
			return inner, value.Object(beside...)
		}
	}
	return entry, value.Value{}
}

// Lines reads a batch that has one request on each line. In an entry of OpenAI's form, the request
// is its body.
func Lines(src Source, entries []value.Value) (*Request, *Error) {
	bodies := make([]value.Value, 0, len(entries))
	for _, e := range entries {
		inner, rest := unwrap(e)
		bodies = append(bodies, inner)
		if rest.Defined() && rest.Len() > 0 {
			bodies = append(bodies, rest)
		}
	}
	return parseAll(src, bodies)
}

// request returns the collected request.
func (b *builder) request() *Request {
	r := &Request{Provider: b.provider, MaxTokens: -1, Choices: max(b.choices, 1), Stream: b.stream}
	if r.Provider == "" {
		r.Provider = b.src.provider()
	}
	r.Model = b.src.modelOf(b.model, b.models)
	if b.bounded {
		r.MaxTokens = b.maxTokens
	}
	r.Messages = value.Array(b.messages...)
	if b.src.Texts {
		r.Texts = value.Array(b.texts...)
	}
	r.Estimated = estimateTokens(r.Model, b.weigh.ascii, b.weigh.other) + b.weigh.extra + perRequest
	return r
}

func messageDoc(role, text string) value.Value {
	return value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "text", Value: value.String(text)})
}

// findMisspelt returns an error if a member of an object is in a spelling that some decoders read as
// one of names.
func findMisspelt(where string, v value.Value, names spelling.Names) *Error {
	var bad *Error
	v.Each(func(name string, _ value.Value) bool {
		if known, is := names.Misspelt(name); is {
			bad = &Error{where + strconv.Quote(name) + " is sent where " + strconv.Quote(known) + " is meant: member names differ in case"}
		}
		return bad == nil
	})
	return bad
}

// items checks the spelling of the members of messages and their parts.
func items(v value.Value, depth int) *Error {
	if depth > 4 {
		return nil
	}
	switch v.Kind() {
	case value.ArrayKind:
		for _, e := range v.Elems() {
			if bad := items(e, depth+1); bad != nil {
				return bad
			}
		}
	case value.ObjectKind:
		if bad := findMisspelt("in a message ", v, itemNames); bad != nil {
			return bad
		}
		for _, name := range [...]string{"content", "parts"} {
			if bad := items(v.Get(name), depth+1); bad != nil {
				return bad
			}
		}
	}
	return nil
}
