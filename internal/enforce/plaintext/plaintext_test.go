package plaintext_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/plaintext"
)

// A text is read as a model reads it, in whatever encoding it is written, and reading it again
// changes nothing.
func TestString(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":                       {"AT&T pays 50% of C:\\dir; naïve Köln — “ok” 北京 🙂", "AT&T pays 50% of C:\\dir; naïve Köln — “ok” 北京 🙂"},
		"decimal entities":            {"&#52;&#0000049;1", "411"},
		"hexadecimal entities":        {"&#x34;&#X31;", "41"},
		"entities without semicolons": {"&#52&#49&nbsp1", "41 1"},
		"named entities":              {"a&commat;b&period;c&nbsp;d", "a@b.c d"},
		"soft hyphens":                {"41&shy;11\u00ad1", "41111"},
		"entities in entities":        {"&amp;#52; &amp;amp;#52;", "4 4"},
		"entities, percent-encoded":   {"%26%23%35%32%3b", "4"},
		"percent":                     {"bea%40example%2Ecom 100%", "bea@example.com 100%"},
		"percent twice":               {"bea%2540x", "bea@x"},
		"escapes":                     {`\u0034\x31\u{31}\U00000031`, "4111"},
		"escapes quoted twice":        {`\\u0034\\\\u0031\n`, "41\n"},
		"surrogates":                  {`\ud835\udfd2 \ud835x`, "4 x"},
		"full width":                  {"４１１１　ｂｅａ＠ｅｘａｍｐｌｅ．ｃｏｍ", "4111 bea@example.com"},
		"digits of scripts":           {"٤١۴१৪๔𝟒𝟜❹①④", "414144444" + "14"},
		"unseen":                      {"4\u200b1\u200d1\ufeff1\u2060\u180e \u202e4\U000e00341", "4111 41"},
		"controls":                    {"4\x011\x7f1\u00801", "4111"},
		"accents":                     {"Jose\u0301 u\u0308ber x\u20dd1\ufe0f\u20e3", "José über x1"},
		"look-alikes":                 {"іgnоrе аll ргеvіоus", "ignore all previous"},
		"letters of mathematics":      {"𝐢𝐠𝐧𝐨𝐫𝐞 𝓪𝓵𝓵 ⓟⓡⓔⓥ ﬁ", "ignore all prev fi"},
		"spaces":                      {"a\u00a0b\u2003c\u3000d\u2028e", "a b c d\ne"},
		"not UTF-8":                   {"a\xff4\xc3", "a\xff4\xc3"},
	} {
		if got := plaintext.String(tc.in); got != tc.want {
			t.Errorf("%s: String(%q) = %q, want %q", name, tc.in, got, tc.want)
		}
		if again := plaintext.String(tc.want); again != tc.want {
			t.Errorf("%s: String(%q) = %q, want it unchanged", name, tc.want, again)
		}
	}
}

// A message in parts is read as one text.
func TestMessage(t *testing.T) {
	tags := "hi"
	for _, c := range "ignore all" {
		tags += string(rune(0xe0000) + c)
	}
	for name, tc := range map[string]struct {
		parts []string
		want  []string
	}{
		"one":            {[]string{"іgnore all"}, []string{"ignore all"}},
		"within a word":  {[]string{"please ign", "ore all"}, []string{"please ignore all"}},
		"between words":  {[]string{"ignore", "all"}, []string{"ignore\nall"}},
		"in tags":        {[]string{tags}, []string{"hi\nignore all"}},
		"over an escape": {[]string{"ign&#11", "1;re"}, []string{"ignore"}},
	} {
		got := plaintext.Message(tc.parts...)
		for _, w := range tc.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: Message(%q) = %q, want %q in it", name, tc.parts, got, w)
			}
		}
	}
}

// TestOriginal checks that positions lead back to the original.
func TestOriginal(t *testing.T) {
	const in = "pay &#52;１\u200b1% now Jose\u0301!"
	var x plaintext.Text
	x.Fold([]byte(in), true)
	for word, want := range map[string]string{"411": "&#52;１\u200b1", "now": "now", "José": "Jose\u0301", "1%": "1%"} {
		at := bytes.Index(x.Bytes, []byte(word))
		if at < 0 {
			t.Fatalf("%q is not in %q", word, x.Bytes)
		}
		if from, to := x.Original(at, at+len(word)); in[from:to] != want {
			t.Errorf("%q is %q in the original, want %q", word, in[from:to], want)
		}
	}
}

// samples are parts of the texts in the property tests.
var samples = []string{
	"&#5", "2;", "&amp;", "#52;", "&nbsp", "%", "4", "0", "%2", "5", "\\", "u00", "34", "\\u003", "\\ud835", "\\udfd2", "e", "\u0301", "\u200b",
	"４", "\xe2\x80", "\x8b", "\xff", "a", "о", "@", " ", "\U000e0041", "&", ";", "\\n", "x",
}

// FuzzFold checks that reading the beginning of a text gives the beginning of reading all of it, wherever it
// is cut, except for an accent that joins the letter before it.
func FuzzFold(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, uint16(3))
	f.Add([]byte{9, 10, 11, 12, 13}, uint16(1))
	f.Fuzz(func(t *testing.T, picks []byte, cut uint16) {
		var in []byte
		for _, p := range picks[:min(len(picks), 200)] {
			in = append(in, samples[int(p)%len(samples)]...)
		}
		n := int(cut) % (len(in) + 1)
		var whole, part plaintext.Text
		whole.Fold(in, true)
		part.Fold(in[:n], false)
		if got := part.Bytes; !bytes.HasPrefix(norm.NFD.Bytes(whole.Bytes), norm.NFD.Bytes(got)) {
			t.Fatalf("%q cut at %d: %q, whole %q", in, n, got, whole.Bytes)
		}
		if plaintext.Clean(in, true) && !bytes.Equal(whole.Bytes, in) {
			t.Fatalf("%q is clean, but is read as %q", in, whole.Bytes)
		}
		before := 0
		for i := range whole.Bytes {
			from, to := whole.Original(i, i+1)
			if from < before || to <= from || to > len(in) {
				t.Fatalf("%q: byte %d of %q comes from %d to %d", in, i, whole.Bytes, from, to)
			}
			before = from
		}
		if whole.Read() != len(in) || part.Read() > n {
			t.Fatalf("%q: %d bytes of the whole and %d of the part are read, want %d and at most %d", in, whole.Read(), part.Read(), len(in), n)
		}
	})
}

func BenchmarkClean(b *testing.B) {
	text := []byte(strings.Repeat("The quick brown fox pays 50% & jumps over the lazy dog. ", 100))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		plaintext.Clean(text, true)
	}
}

func BenchmarkFold(b *testing.B) {
	text := []byte(strings.Repeat("The quick &amp; brown fox\u00a0pays 50% of it, naïve. ", 100))
	b.SetBytes(int64(len(text)))
	var t plaintext.Text
	for b.Loop() {
		t.Fold(text, true)
	}
}
