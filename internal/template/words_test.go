package template

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

const wordsControl = "package x\n\n# Words: mild\n\n# What they are worth.\n# Words: worth\n\n# Words: some\n\nallow if input.x in mild\n"

// The lists become literals of the control, each at its marker, with their comments.
func TestWords(t *testing.T) {
	const words = `# About the file.

[list mild]
# first
a b
"c "
<d>

[letters worth]
v: x y
: z ""
#: q
:: w
[set some]
é
`
	got, err := withWords(fstest.MapFS{"X/words.txt": {Data: []byte(words)}}, "X", wordsControl)
	errtest.Must(t, err)
	const want = "package x\n\nmild := [\n\t# first\n\t\"a b\", \"c \", \"<d>\",\n]\n\n# What they are worth.\nworth := {\n\t" +
		"\"x\": \"v\", \"y\": \"v\", \"z\": \"\", \"\": \"\", \"q\": \"#\", \"w\": \":\",\n}\n\nsome := {\n\t\"é\",\n}\n\nallow if input.x in mild\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Long lists are broken into lines, and contain each word once.
func TestWordsBreakLines(t *testing.T) {
	var words strings.Builder
	words.WriteString("[list many]\n")
	for i := range 500 {
		words.WriteString("word" + strings.Repeat("x", i%30) + string(rune('a'+i%26)) + string(rune('a'+i/26)) + "\n")
	}
	got, err := withWords(fstest.MapFS{"X/words.txt": {Data: []byte(words.String())}}, "X", "package x\n\n# Words: many\n")
	errtest.Must(t, err)
	for line := range strings.Lines(got) {
		if len(line) > maxWordsLine+3 {
			t.Errorf("a line has %d bytes, want at most %d: %s", len(line), maxWordsLine+3, line)
		}
	}
	mod, err := ast.ParseModuleWithOpts("x.rego", got, ast.ParserOptions{RegoVersion: ast.RegoV1})
	errtest.Must(t, err)
	if list, ok := mod.Rules[0].Head.Value.Value.(*ast.Array); !ok || list.Len() != 500 {
		t.Errorf("the list is %v, want 500 words", mod.Rules[0].Head.Value)
	}
}

// Loading the catalogue reports errors in the lists.
func TestWordsRefused(t *testing.T) {
	const fine = "[list mild]\na\n[letters worth]\nv: x\n[set some]\nb\n"
	for want, words := range map[string]string{
		`no list "mild"`:                 strings.Replace(fine, "mild", "wild", 1),
		`does not name`:                  fine + "[list more]\nz\n",
		`twice`:                          fine + "b\n",
		`before the first section`:       "a\n" + fine,
		`the section "more" is unknown`:  fine + "[heap more]\n",
		`or occurs twice`:                fine + "[list mild]\n",
		`not a letter followed by words`: strings.Replace(fine, "v: x", "v", 1),
		`put it in quotation marks`:      fine + "b \n",
		`is not a string`:                fine + "\"b\n",
		`"x" is in the list "wo`:         strings.Replace(fine, "v: x", "v: x\nw: x", 1),
	} {
		_, err := withWords(fstest.MapFS{"X/words.txt": {Data: []byte(words)}}, "X", wordsControl)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("withWords: %v, want %q", err, want)
		}
	}
	if _, err := withWords(fstest.MapFS{}, "X", wordsControl); err == nil {
		t.Error("a control without its lists: no error")
	}
}

// The shipped control contains its lists, and no markers.
func TestShippedWords(t *testing.T) {
	c, err := Load()
	errtest.Must(t, err)
	found := 0
	for _, id := range c.IDs() {
		tpl, _ := c.Get(id)
		if strings.Contains(tpl.Source(), wordsMarker) {
			t.Errorf("%s has a marker of a list, want the list", id)
		}
		found += strings.Count(tpl.Source(), "\nlexicon := {\n")
	}
	if found != 1 {
		t.Errorf("%d controls have a lexicon, want 1", found)
	}
}
