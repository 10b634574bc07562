package assist

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Fix is a change that fixes one issue.
type Fix struct {
	// Title is the text that the editor shows. Issue is the issue that the change fixes.
	Title string
	Issue lang.Issue
	// Span is the text that Text replaces.
	Span Span
	Text string
}

// Fixes returns the known fixes for issues of a source, in the order of the issues. An
// issue without a safe fix gets none.
func Fixes(source string, issues []lang.Issue) []Fix {
	var out []Fix
	for _, is := range issues {
		at := Offset(source, is.Line, is.Column)
		if is.Line == 0 {
			at = 0
		}
		f, ok := fix(source, at, is)
		if ok {
			f.Issue = is
			out = append(out, f)
		}
	}
	return out
}

func fix(source string, at int, is lang.Issue) (Fix, bool) {
	switch {
	case is.Message == "package expected" || is.Message == "the source has no package":
		return Fix{Title: "Begin with a package", Text: "package policy\n\n"}, true
	case is.Message == "`if` keyword is required before rule body":
		return beforeBody(source, at)
	case is.Rule == "style/no-whitespace-comment" && at < len(source) && source[at] == '#':
		return Fix{Title: "Put a space after #", Span: Span{at + 1, at + 1}, Text: " "}, true
	case is.Rule == "idiomatic/non-raw-regex-pattern":
		return rawPattern(source, at)
	case is.Rule == "style/use-assignment-operator":
		return assign(source, at)
	case is.Rule == "style/prefer-snake-case":
		return snake(source, at)
	}
	if name, ok := strings.CutPrefix(is.Message, "undefined function "); ok {
		return nearest(source, at, name)
	}
	return Fix{}, false
}

// beforeBody inserts `if` before the brace of a rule's body. It also replaces the brackets of a
// partial set with `contains`.
func beforeBody(source string, at int) (Fix, bool) {
	line := rest(source, at)
	brace := strings.IndexByte(line, '{')
	if brace < 1 || strings.Contains(line[:brace], " if ") {
		return Fix{}, false
	}
	head := strings.TrimRight(line[:brace], " \t")
	name, in, set := strings.Cut(head, "[")
	if set && strings.HasSuffix(in, "]") && !strings.ContainsAny(in[:len(in)-1], "[]") {
		return Fix{
			Title: "Write the rule with contains and if", Span: Span{at, at + brace},
			Text: strings.TrimSpace(name) + " contains " + in[:len(in)-1] + " if ",
		}, true
	}
	return Fix{Title: "Put if before the body", Span: Span{at + len(head), at + brace}, Text: " if "}, true
}

// rest returns the text from an offset to the end of its line.
func rest(source string, at int) string {
	line, _, _ := strings.Cut(source[at:], "\n")
	return line
}

// rawPattern rewrites a quoted pattern as a raw string, in backquotes.
func rawPattern(source string, at int) (Fix, bool) {
	quoted, err := strconv.QuotedPrefix(rest(source, at))
	if err != nil || quoted[0] != '"' {
		return Fix{}, false
	}
	text, err := strconv.Unquote(quoted)
	if err != nil || strings.ContainsAny(text, "`\n\r") {
		return Fix{}, false
	}
	return Fix{Title: "Write the pattern as a raw string", Span: Span{at, at + len(quoted)}, Text: "`" + text + "`"}, true
}

// assign replaces the = of a rule's head with :=.
func assign(source string, at int) (Fix, bool) {
	line := rest(source, at)
	i := strings.Index(line, " = ")
	if i < 0 || strings.ContainsAny(line[:i], "=\"`{") {
		return Fix{}, false
	}
	return Fix{Title: "Assign with :=", Span: Span{at + i + 1, at + i + 2}, Text: ":="}, true
}

// snake renames the word at an offset to snake case. There is no fix if the word also occurs
// elsewhere, because the author must check those places.
func snake(source string, at int) (Fix, bool) {
	s := Span{at, at}
	for s.End < len(source) && wordByte(source[s.End]) {
		s.End++
	}
	name := source[s.Start:s.End]
	if name == "" || strings.Count(source, name) != 1 {
		return Fix{}, false
	}
	var b strings.Builder
	for i, c := range []byte(name) {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return Fix{Title: "Rename to " + b.String(), Span: s, Text: b.String()}, true
}

// nearest replaces an unknown function with the built-in function whose name is most similar.
func nearest(source string, at int, name string) (Fix, bool) {
	if len(name) > 60 || !strings.HasPrefix(source[at:], name) {
		return Fix{}, false
	}
	known := make([]string, 0, len(builtins()))
	for _, b := range builtins() {
		known = append(known, b.name)
	}
	best := fault.Nearest(name, known)
	if best == "" {
		return Fix{}, false
	}
	return Fix{Title: "Call " + best, Span: Span{at, at + len(name)}, Text: best}, true
}
