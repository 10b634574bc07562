package llm

import (
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/spelling"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// The members of a body that are told apart.
var (
	// bodyNames are all of them at the top.
	bodyNames = spelling.Known(
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
	// itemNames are those of a message, or a part of one.
	itemNames = spelling.Known(
		"role", "content", "parts", "type", "text", "image_url", "source", "data", "media_type", "input_audio", "file", "file_data", "fileData",
		"inline_data", "inlineData", "mime_type", "mimeType", "images",
	)
	// configNames are those of an object of settings.
	configNames = spelling.Known(
		"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample", "maxTokens", "maxCompletionTokens",
		"maxOutputTokens", "maxNewTokens", "maxTokenCount", "num_predict", "numPredict", "n_predict", "max_gen_len", "budget_tokens", "budgetTokens",
		"max_generation_tokens", "tokens_to_generate", "max_length", "maxLength", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget", "reasoningBudget",
		"thinking_budget", "thinkingBudget", "min_tokens", "min_new_tokens", "min_completion_tokens", "minTokens", "minNewTokens", "n", "best_of", "bestOf", "num_return_sequences", "candidate_count", "candidateCount", "num_generations",
		"thinking", "thinkingConfig", "thinking_config", "reasoning",
	)
)

// What a member at the top is. Those that are not listed are texts of nobody's.
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

// roles that a message may have by itself; any other is that of nobody who is believed.
var instructing = map[string]bool{"system": true, "developer": true}

// assumedAnswer is the tokens of one of several answers of which no bound is said.
const assumedAnswer = 1024

// builder gathers what the bodies of a request say.
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
	// unreadable says why some of it cannot be read.
	unreadable string
}

// body reads one body.
func (b *builder) body(body value.Value) *Error {
	if body.Kind() != value.ObjectKind {
		if b.src.Model {
			b.turn("user", body)
		}
		return nil
	}
	shaped, turns := shape(body)
	if !shaped && !b.src.Model {
		return nil
	}
	b.asks = true
	if bad := misspelt("", body, bodyNames); bad != nil {
		return bad
	}
	if b.provider == "" {
		b.provider = b.src.Provider()
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
	// Where several members say what is asked, nobody knows which one is read: then
	// nothing is an instruction of who built the request.
	believed := "system"
	if turns > 1 {
		believed = "user"
	}
	return b.members(body, believed)
}

// shape reports whether a body asks a model, by its members in any spelling, and
// how many of them say what is asked.
func shape(body value.Value) (shaped bool, turns int) {
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
		// A prompt that is stored with the provider is named beside the input that it takes.
		stored := known == "prompt" && v.Get("id").Defined()
		if kinds[known] == isTurn && !v.IsNull() && !stored {
			turns++
		}
		return true
	})
	return shaped || input && model, turns
}

// members reads a body's members: instructions first, then what is asked, then
// what else may be told, each in the order sent.
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
			b.other(name, v, k == isSetting)
		}
		return true
	})
	return nil
}

// instruction is a system prompt.
func (b *builder) instruction(role string, v value.Value) *Error {
	if bad := items(v, 0); bad != nil {
		return bad
	}
	b.turn(role, v)
	return nil
}

// conversation is a list of messages: the items of an array as they are, and a
// bare text as what a user says. Items without a role (calls of tools and what
// they gave) are the tool's. With `doubted` no role is believed.
func (b *builder) conversation(v value.Value, doubted bool) *Error {
	if bad := items(v, 0); bad != nil {
		return bad
	}
	if v.Kind() != value.ArrayKind {
		b.turn("user", v)
		return nil
	}
	texts := 0
	for _, m := range v.Elems() {
		if m.Kind() != value.ObjectKind {
			texts++
		}
	}
	if texts > 0 && texts == v.Len() { // a list of prompts, or one in parts
		b.turn("user", v)
		return nil
	}
	for _, m := range v.Elems() {
		switch role, said := m.Get("role").Str(); {
		case m.Kind() != value.ObjectKind:
			b.turn("user", m)
		case !m.Get("role").Defined():
			b.turn("tool", m)
		case !said:
			b.turn("user", m)
		default:
			b.message(role, m, doubted)
		}
	}
	return nil
}

// message is one that has a role.
func (b *builder) message(role string, m value.Value, doubted bool) {
	if role == "model" { // Gemini's name for it
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

// turn is a message that has no form of its own.
func (b *builder) turn(role string, content value.Value) {
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

// addStructure is what the model is told as a structure: tools and their schemas.
func (b *builder) addStructure(role string, v value.Value) {
	r := reader{weigh: &b.weigh, structure: true}
	r.walk(v, place{}, 0)
	b.weigh.structure(v)
	b.messages = append(b.messages, value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "content", Value: v}))
	if b.src.Texts {
		b.texts = append(b.texts, messageDoc(role, r.texts(true)))
	}
}

// other is a member that is no part of what is asked, as far as we know: if it
// has a text, it is one.
func (b *builder) other(name string, v value.Value, setting bool) {
	switch v.Kind() {
	case value.StringKind:
		if s, _ := v.Str(); name == "model" && isModelName(s) || name != "model" && isLabel(s) {
			return
		}
	case value.ArrayKind, value.ObjectKind:
	default:
		if !isLabel(name) {
			b.turn("other", value.String(name))
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

// batch reads requests within a request.
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
			b.other("custom_id", rest, false)
		}
	}
	return nil
}

// isBatchOf reports a list of objects with a request in each.
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

// unwrap takes the request out of an entry of a batch; rest is what stands beside it.
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

// Lines reads the requests of a batch that comes as lines: what stands in an
// entry of OpenAI's form is its body.
func Lines(src Source, entries []value.Value) (*Request, *Error) {
	bodies := make([]value.Value, 0, len(entries))
	for _, e := range entries {
		inner, rest := unwrap(e)
		bodies = append(bodies, inner)
		if rest.Defined() && rest.Len() > 0 {
			bodies = append(bodies, rest)
		}
	}
	return ParseAll(src, bodies)
}

// request is what was gathered.
func (b *builder) request() *Request {
	r := &Request{Provider: b.provider, MaxTokens: -1, Choices: max(b.choices, 1), Stream: b.stream}
	if r.Provider == "" {
		r.Provider = b.src.Provider()
	}
	r.Model = b.src.modelOf(b.model, b.models)
	if b.bounded {
		r.MaxTokens = b.maxTokens
	}
	r.Messages = value.Array(b.messages...)
	if b.src.Texts {
		r.Texts = value.Array(b.texts...)
	}
	r.Estimated = Tokens(r.Model, b.weigh.ascii, b.weigh.other) + b.weigh.extra + perRequest
	return r
}

func messageDoc(role, text string) value.Value {
	return value.Object(value.Member{Key: "role", Value: value.String(role)}, value.Member{Key: "text", Value: value.String(text)})
}

// misspelt holds the members of an object to their one spelling.
func misspelt(where string, v value.Value, names spelling.Names) *Error {
	var bad *Error
	v.Each(func(name string, _ value.Value) bool {
		if known, is := names.Misspelt(name); is {
			bad = &Error{where + strconv.Quote(name) + " stands where " + strconv.Quote(known) + " is meant: member names differ in case"}
		}
		return bad == nil
	})
	return bad
}

// items holds messages and their parts to the spelling of the members that are read.
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
		if bad := misspelt("in a message ", v, itemNames); bad != nil {
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
