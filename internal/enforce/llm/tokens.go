package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// tokenNames are members that may hold the prompt as numbers of tokens, which a model reads as text
// and gatehouse cannot read.
var tokenNames = map[string]bool{
	"prompt": true, "prompts": true, "input": true, "inputs": true, "context": true, "suffix": true, "input_ids": true, "inputids": true, "prompt_ids": true,
	"prompt_token_ids": true, "prompt_tokens": true, "token_ids": true, "tokens": true, "decoder_input_ids": true,
}

// vectorNames are members that hold the prompt as vectors.
var vectorNames = map[string]bool{"prompt_embeds": true, "prompt_embedding": true, "input_embeds": true, "inputs_embeds": true, "input_embeddings": true}

// deepTokenNames are the tokenNames that mean tokens at any depth: vLLM accepts them in a prompt,
// Text Generation Inference and Triton in inputs.
var deepTokenNames = map[string]bool{"input_ids": true, "inputids": true, "prompt_ids": true, "prompt_token_ids": true, "decoder_input_ids": true}

// notSearched are members in which a name such as input_ids belongs to the application: the
// arguments and schemas of tools.
var notSearched = map[string]bool{"tools": true, "functions": true, "metadata": true}

const (
	asTokens  = "a prompt that is given as tokens cannot be read"
	asVectors = "a prompt that is given as vectors cannot be read"
)

// encoded says which part of a body the model reads as numbers, or "". An endpoint for embeddings
// answers without text, and its clients send tokens.
func (s Source) encoded(body value.Value) string {
	if why := s.encodedAtTop(body); why != "" {
		return why
	}
	return encodedBelow(body, 0)
}

// conversations are members that hold the conversation, in messages, parts and turns.
var conversations = map[string]bool{
	"messages": true, "contents": true, "content": true, "prompt": true, "prompts": true, "input": true, "inputs": true, "system": true, "system_instruction": true,
	"systeminstruction": true, "instructions": true, "history": true, "chat_history": true, "conversation": true, "turns": true, "documents": true, "instances": true,
}

// appMembers are members of a message in which a name such as tokens belongs to the application:
// arguments of tools, and measurements of earlier answers.
var appMembers = map[string]bool{
	"arguments": true, "input": true, "args": true, "function": true, "function_call": true, "functioncall": true, "tool_calls": true,
	"parameters": true, "metadata": true, "logprobs": true, "usage": true, "schema": true, "input_schema": true,
}

// wordMembers are members of a message that hold its text.
var wordMembers = map[string]bool{"content": true, "text": true, "parts": true}

// encodedIn says which part of a conversation is in numbers, at any depth of a message, or "".
func encodedIn(v value.Value, depth int) (why string) {
	if depth > 8 {
		return ""
	}
	for _, e := range v.Elems() {
		if why := encodedIn(e, depth+1); why != "" {
			return why
		}
	}
	if v.Kind() != value.ObjectKind {
		return ""
	}
	v.Each(func(name string, member value.Value) bool {
		low := strings.ToLower(name)
		switch {
		case appMembers[low]:
		case vectorNames[low] && !member.IsNull():
			why = asVectors
		case (tokenNames[low] || wordMembers[low]) && numbers(member, 0):
			why = asTokens
		default:
			why = encodedIn(member, depth+1)
		}
		return why == ""
	})
	return why
}

// encodedBelow looks for names that mean tokens or vectors, and for tensors with such names, as in
// KServe's inference protocol.
func encodedBelow(v value.Value, depth int) (why string) {
	for _, e := range v.Elems() {
		if why := encodedBelow(e, depth+1); why != "" {
			return why
		}
	}
	if v.Kind() != value.ObjectKind {
		return ""
	}
	tensor, _ := v.Get("name").Str()
	if deepTokenNames[strings.ToLower(tensor)] && numbers(v.Get("data"), 0) {
		return asTokens
	}
	v.Each(func(name string, member value.Value) bool {
		low := strings.ToLower(name)
		if conversations[low] {
			if why = encodedIn(member, 0); why != "" {
				return false
			}
		}
		switch {
		case low == "messages" || depth == 0 && notSearched[low]:
		case vectorNames[low] && !member.IsNull():
			why = asVectors
		case deepTokenNames[low] && numbers(member, 0):
			why = asTokens
		default:
			why = encodedBelow(member, depth+1)
		}
		return why == ""
	})
	return why
}

func (s Source) encodedAtTop(body value.Value) (why string) {
	body.Each(func(name string, v value.Value) bool {
		low := strings.ToLower(name)
		switch {
		case vectorNames[low] && !v.IsNull():
			why = asVectors
		case tokenNames[low] && v.Kind() == value.ArrayKind && numbers(v, 0) && !(low == "input" && strings.HasSuffix(s.Path, "/embeddings")):
			why = asTokens
		}
		return why == ""
	})
	return why
}

// numbers reports whether a list or a nested list contains a number.
func numbers(v value.Value, depth int) bool {
	for _, e := range v.Elems() {
		if e.Kind() == value.NumberKind || e.Kind() == value.ArrayKind && depth < 3 && numbers(e, depth+1) {
			return true
		}
	}
	return false
}

// IsWordy reports whether s may say something: several words, or letters of a script without
// spaces. Ids, signatures and dates are not wordy.
func IsWordy(s string) bool {
	words, foreign := 0, 0
	for _, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n_-.,:;!?/+|", r) }) {
		if len(word) > 1 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'") == "" {
			words++
		}
		for _, r := range word {
			if r >= 0x370 {
				foreign++
			}
		}
	}
	return words > 2 || foreign > 3
}
