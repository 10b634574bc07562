package llm

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// tokenNames are members that may say what is asked as numbers of tokens, which a
// model reads as text and we do not.
var tokenNames = map[string]bool{
	"prompt": true, "prompts": true, "input": true, "inputs": true, "context": true, "suffix": true, "input_ids": true, "inputids": true, "prompt_ids": true,
	"prompt_token_ids": true, "prompt_tokens": true, "token_ids": true, "tokens": true, "decoder_input_ids": true,
}

// vectorNames are members that say what is asked as vectors.
var vectorNames = map[string]bool{"prompt_embeds": true, "prompt_embedding": true, "input_embeds": true, "inputs_embeds": true, "input_embeddings": true}

// encoded says what of a body is told to a model in numbers; empty: nothing. An
// endpoint for embeddings answers with no text, and clients send it tokens.
func (s Source) encoded(body value.Value) (why string) {
	body.Each(func(name string, v value.Value) bool {
		low := strings.ToLower(name)
		switch {
		case vectorNames[low] && !v.IsNull():
			why = "a prompt that is given as vectors cannot be read"
		case tokenNames[low] && v.Kind() == value.ArrayKind && numbers(v, 0) && !(low == "input" && strings.HasSuffix(s.Path, "/embeddings")):
			why = "a prompt that is given as tokens cannot be read"
		}
		return why == ""
	})
	return why
}

// numbers reports whether a list holds a number, or a list that does.
func numbers(v value.Value, depth int) bool {
	for _, e := range v.Elems() {
		if e.Kind() == value.NumberKind || e.Kind() == value.ArrayKind && depth < 3 && numbers(e, depth+1) {
			return true
		}
	}
	return false
}

// IsWordy reports a text that may say something: some words, or letters of a script
// that needs no spaces. Ids, signatures and dates are none.
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
