package llm

import (
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Costs of what is not text, in tokens.
const (
	perMessage = 4
	// perMedia is about a picture of middling size; the bytes of one that is
	// sent along are not text and do not count.
	perMedia = 800
	// perRequest is what frames the whole.
	perRequest = 3
)

// factors are how many tokens a family of models makes of 4 ASCII characters,
// in hundredths, by how the model's name begins. A tokenizer's own tables are
// 2 to 4 MB a family and tell what the settling after the answer tells exactly;
// a budget needs the estimate only until then. See docs/ai.md.
var factors = [...]struct {
	prefix string
	cents  int64
}{
	{"claude", 115}, {"gpt-3", 105}, {"mistral", 112}, {"mixtral", 112}, {"llama", 104}, {"gemma", 100}, {"gemini", 100}, {"qwen", 102}, {"deepseek", 102},
}

// Tokens is about how many tokens a text of ascii ASCII characters and other
// further ones has: four characters of ASCII are a token, any other character
// is one of its own, which is high for Greek or Cyrillic and fair for Chinese.
func Tokens(model string, ascii, other int64) int64 {
	cents := int64(100)
	// provider/model, as routers write it, is the model.
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	for _, f := range factors {
		if strings.HasPrefix(model, f.prefix) {
			cents = f.cents
			break
		}
	}
	return ((ascii+3)/4*cents+99)/100 + other
}

// weigher adds up the texts of messages.
type weigher struct{ ascii, other, extra int64 }

func (w *weigher) text(s string) {
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			w.ascii++
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		w.other++
		i += n
	}
}

// words adds a text, but where the structure that holds it is added as a whole.
func (w *weigher) words(s string, within bool) {
	if !within {
		w.text(s)
	}
}

// small adds a number or a truth value.
func (w *weigher) small(within bool) {
	if !within {
		w.ascii += 4 // a number is a token at least
	}
}

// structure adds a document as the JSON that the model is shown.
func (w *weigher) structure(v value.Value) { w.text(string(v.AppendJSON(nil))) }
