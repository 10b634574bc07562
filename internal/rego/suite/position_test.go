package suite

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// TestPositions: every error and warning about any text stands at a character of
// it, or right behind the last one of a line, and says its thing once.
func TestPositions(t *testing.T) {
	sources := []string{
		"", " ", "\n", "package", "package p", "package p\nallow if input.", "package p\n\nallow if {\n input.\n}\n", "package p\r\nallow if input.\r\n",
		"package p\nx := \"abc", "package p\ndefault allow := false\ndefault allow := true", "package p\nallow if input.user.id == \"\u00e9\u4e16\" &",
		"package system\nallow := true", "package p\nallow := x\nallow := 1", "package p\nallow if http.send({})", "package p\nimport data.lib.nowhere\nallow := true",
		"package lib.x\nallow := true", strings.Repeat("\n", 20_005), "package p\nallow if " + strings.Repeat("(", 500), "package p\n" + strings.Repeat("x := [1,2]\n", 3),
		"package p\nallow if { a }\ndeny contains b\nmask contains \"x\" if { some c; c == 1; d }\n# \U0001F512\nreason := input.",
	}
	r := rand.New(rand.NewPCG(9, 3))
	valid := "package orders\n\nimport data.lib.text\n\ndefault allow := false\n\nallow if {\n\tinput.user.id == \"ad\u00e9\"\n\tsome r in input.user.roles\n\tr == \"x\"\n}\n\ndeny contains msg if {\n\tmsg := sprintf(\"%s\", [input.x])\n}\n"
	inserts := []string{"input.", "\"", "`", "{", "}", "(", ")", "[", "\n", "\r\n", ":=", "==", "if", "\u4e16", "http.send({})", "data.x", "import ", "default ", "some ", "\t", "#", "not "}
	for range 500 {
		text := valid
		for range 1 + r.IntN(3) {
			at := r.IntN(len(text) + 1)
			switch r.IntN(3) {
			case 0:
				text = text[:at] + inserts[r.IntN(len(inserts))] + text[at:]
			case 1:
				text = text[:at]
			default:
				text = text[:at] + text[min(len(text), at+1+r.IntN(6)):]
			}
		}
		sources = append(sources, text)
	}
	lib := lang.Library{ID: 1, Name: "text", Source: "package lib.text\n\nup(s) := upper(s)\n"}
	refused := 0
	for _, source := range sources {
		issues := lang.Check(source, lib)
		_, more := lang.Attributes(source)
		for _, tests := range CheckModules([]Module{{Path: "a.rego", Content: source}, {Path: "a_test.rego", Content: source}}) {
			more = append(more, tests.Issue)
		}
		if len(issues) > 0 {
			refused++
		}
		inside(t, source, append(issues, more...))
		for i := 1; i < len(issues); i++ {
			if a, b := issues[i-1], issues[i]; a.Line == b.Line && (a.Message == b.Message || a.Column == b.Column && a.Rule == b.Rule && a.Rule == "rego_parse_error") {
				t.Errorf("%q: %+v says what %+v says", source, b, a)
			}
		}
	}
	if refused < len(sources)/2 {
		t.Errorf("only %d of %d sources have errors", refused, len(sources))
	}
}

// inside checks the places of issues.
func inside(t *testing.T, source string, issues []lang.Issue) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(source, "\n"), "\n")
	for _, is := range issues {
		if is.Line < 1 || is.Line > len(lines) || is.Column < 1 || is.Column > utf8.RuneCountInString(strings.TrimSuffix(lines[max(0, min(is.Line, len(lines))-1)], "\r"))+1 {
			t.Errorf("%q: %d:%d is not inside: %s", source, is.Line, is.Column, is.Message)
		}
	}
}
