package llm

import (
	"math"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// reach is what a limit on tokens applies to. It determines the meaning of zero and negative
// numbers.
type reach uint8

const (
	// ofAnswer limits the whole answer. Servers take -1, -2 and 0 as no limit.
	ofAnswer reach = iota + 1
	// ofPart limits the reasoning, or is the minimum length. Zero and negative numbers turn it off
	// or leave it to the model, within the limit of the answer.
	ofPart
)

// bounds are the members that limit an answer, in tokens.
var bounds = map[string]reach{
	"max_tokens": ofAnswer, "max_completion_tokens": ofAnswer, "max_output_tokens": ofAnswer, "max_new_tokens": ofAnswer, "max_tokens_to_sample": ofAnswer,
	"maxTokens": ofAnswer, "maxCompletionTokens": ofAnswer, "maxOutputTokens": ofAnswer, "maxNewTokens": ofAnswer, "maxTokenCount": ofAnswer,
	"num_predict": ofAnswer, "numPredict": ofAnswer, "n_predict": ofAnswer, "max_gen_len": ofAnswer, "max_generation_tokens": ofAnswer, "tokens_to_generate": ofAnswer,
	"max_length": ofAnswer, "maxLength": ofAnswer, "max_reasoning_tokens": ofPart, "max_thinking_tokens": ofPart, "reasoning_budget": ofPart, "reasoningBudget": ofPart,
	"budget_tokens": ofPart, "budgetTokens": ofPart, "thinking_budget": ofPart, "thinkingBudget": ofPart,
	"min_tokens": ofPart, "min_new_tokens": ofPart, "min_completion_tokens": ofPart, "minTokens": ofPart, "minNewTokens": ofPart,
}

// unbounded is the number of tokens that an answer without a limit counts for. No model generates
// more.
const unbounded = 1 << 20

// tokens returns what a limit of n counts for, or -1 for nothing.
func (r reach) tokens(n int64) int64 {
	switch {
	case n > 0:
		return n
	case r == ofAnswer:
		return unbounded
	}
	return -1
}

// counts are the members that say how many answers to generate.
var counts = map[string]bool{
	"n": true, "best_of": true, "bestOf": true, "num_return_sequences": true, "candidate_count": true, "candidateCount": true, "num_generations": true,
}

// settings are the members whose objects hold limits and counts, at the top level and nested in
// each other.
var settings = map[string]bool{
	"options": true, "generationConfig": true, "generation_config": true, "thinking": true, "thinkingConfig": true, "thinking_config": true,
	"parameters": true, "inferenceConfig": true, "reasoning": true, "textGenerationConfig": true, "additionalModelRequestFields": true, "extra_body": true,
	"sampling_params": true, "samplingParams": true, "generation_kwargs": true, "model_kwargs": true,
}

// maxBound prevents overflows when limits are multiplied.
const maxBound = 1 << 40

// limits computes what a body asks for: the greatest limit for each of the answers.
func (b *builder) limits(body value.Value) *Error {
	l := limit{bound: -1, choices: 1}
	if bad := l.read("", body, 0); bad != nil {
		return bad
	}
	if l.bound < 0 && l.choices > 1 && !strings.Contains(b.src.Path, "/images/") { // images have no tokens
		l.bound = assumedAnswer
	}
	// Each of several prompts has its own answers.
	if v := body.Get("prompt"); v.Kind() == value.ArrayKind && v.Len() > 1 && v.Index(0).Kind() == value.StringKind {
		l.choices *= int64(v.Len())
	}
	b.choices = min(b.choices+l.choices, maxBound)
	if l.bound >= 0 {
		b.bounded = true
		b.maxTokens = min(b.maxTokens+min(l.bound, maxBound/max(l.choices, 1))*l.choices, maxBound)
	}
	return nil
}

type limit struct{ bound, choices int64 }

func (l *limit) read(where string, v value.Value, depth int) *Error {
	var bad *Error
	if depth > 0 {
		if bad = findMisspelt(where, v, configNames); bad != nil {
			return bad
		}
	}
	v.Each(func(name string, m value.Value) bool {
		switch {
		case m.IsNull():
		case bounds[name] != 0:
			var n int64
			if n, bad = integerOf(where+name, m); bad == nil {
				l.bound = max(l.bound, bounds[name].tokens(n))
			}
		case counts[name]:
			var n int64
			if n, bad = integerOf(where+name, m); bad == nil && n < 1 {
				bad = &Error{where + name + " must be at least 1"}
			}
			l.choices = max(l.choices, min(n, maxBound))
		case settings[name] && m.Kind() == value.ObjectKind && depth < 4:
			bad = l.read(where+name+".", m, depth+1)
		case depth > 0 || kinds[name] == isOther || kinds[name] == isBatch && !isBatchOf(m):
			if n := hiddenNumber(name, m, 0); n >= 0 {
				l.bound = max(l.bound, n)
			}
		}
		return bad == nil
	})
	return bad
}

// hiddenNumber returns the greatest limit in an object of unknown purpose, times the number of answers
// next to it, or the sum for a list. It returns -1 if there is none. It refuses nothing, because
// the number may mean something else.
func hiddenNumber(name string, v value.Value, depth int) int64 {
	low := strings.ToLower(name)
	if depth > 8 || strings.Contains(low, "schema") || strings.Contains(low, "format") || low == "metadata" || low == "function" {
		return -1
	}
	bound := int64(-1)
	switch v.Kind() {
	case value.ArrayKind:
		for _, e := range v.Elems() {
			if n := hiddenNumber("", e, depth+1); n >= 0 {
				bound = min(max(bound, 0)+n, maxBound)
			}
		}
	case value.ObjectKind:
		choices := int64(1)
		v.Each(func(name string, m value.Value) bool {
			switch {
			case bounds[name] != 0 && name != "maxLength":
				if n, ok := number(m); ok {
					bound = max(bound, bounds[name].tokens(n))
				}
			case counts[name]:
				n, _ := number(m)
				choices = max(choices, n)
			case kinds[name] != isTools:
				bound = max(bound, hiddenNumber(name, m, depth+1))
			}
			return true
		})
		if bound > 0 {
			bound = min(bound, maxBound/choices) * choices
		}
	}
	return bound
}

// number returns an integer, also one written as text. ok is false if v is not an integer.
func number(v value.Value) (n int64, ok bool) {
	if n, bad := integerOf("", v); bad == nil {
		return min(n, maxBound), true
	}
	if s, is := v.Str(); is {
		if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 62); err == nil {
			return min(n, maxBound), true
		}
	}
	return 0, false
}

// integerOf returns an integer; 10.0 is one.
func integerOf(name string, v value.Value) (int64, *Error) {
	if v.Kind() == value.NumberKind {
		if n, ok := v.Int64(); ok {
			return n, nil
		}
		if f, ok := v.Float64(); ok && f == math.Trunc(f) && math.Abs(f) < 1<<62 {
			return int64(f), nil
		}
	}
	text := string(v.AppendJSON(nil))
	return 0, &Error{name + " must be a whole number, and is " + strconv.Quote(text[:min(len(text), 40)])}
}
