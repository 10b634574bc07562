package llm

import (
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Estimates for what is not text, in tokens.
const (
	perMessage = 4
	// perMedia is about the cost of a picture of medium size. The bytes of embedded media are not
	// text, and do not count.
	perMedia = 800
	// perRequest is the overhead of each request.
	perRequest = 3
)

// factors are the tokens that a family of models makes of 4 ASCII characters, in hundredths, by the
// prefix of the model's name. The tokenisers' own tables have 2 to 4 MB for each family. The
// estimate is needed only until the answer states the exact number. See docs/ai.md.
var factors = [...]struct {
	prefix string
	cents  int64
}{
	{"claude", 115}, {"gpt-3", 105}, {"mistral", 112}, {"mixtral", 112}, {"llama", 104}, {"gemma", 100}, {"gemini", 100}, {"qwen", 102}, {"deepseek", 102},
}

// estimateTokens estimates the tokens of a text with ascii ASCII characters and other further characters.
// Four ASCII characters count as one token, and any other character as one, which is too high for
// Greek or Cyrillic and about right for Chinese.
func estimateTokens(model string, ascii, other int64) int64 {
	cents := int64(100)
	// Routers write provider/model.
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	for _, f := range factors {
		if strings.HasPrefix(model, f.prefix) {
			cents = f.cents
			break
		}
	}
	return ((ascii+3)/4*cents+99)/100 + other
}

// weigher adds up the sizes of the texts of messages.
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

// words adds a text, unless within is true: then the structure around it is added as a whole.
func (w *weigher) words(s string, within bool) {
	if !within {
		w.text(s)
	}
}

// small adds a number or a boolean.
func (w *weigher) small(within bool) {
	if !within {
		w.ascii += 4 // a number is at least one token
	}
}

// structure adds a document as JSON, which is how the model sees it.
func (w *weigher) structure(v value.Value) { w.text(string(v.AppendJSON(nil))) }
