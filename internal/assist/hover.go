package assist

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Hover returns the documentation of the word at an offset, in Markdown, and the position of the
// word. ok is false if there is no documentation.
func Hover(source string, offset int, k Knowledge) (text string, span Span, ok bool) {
	offset = min(max(offset, 0), len(source))
	if inText(source, offset) {
		return "", Span{}, false
	}
	span = word(source, offset, true)
	name := source[span.Start:span.End]
	if name == "" {
		return "", Span{}, false
	}
	if b, found := builtinNamed(name); found {
		return "```rego\n" + b.signature + "\n```\n\n" + b.doc, span, true
	}
	for _, list := range [][]Member{documented(), dataMembers, k.Members, k.Data} {
		for _, m := range list {
			if m.Path == name {
				return "`" + m.Path + "` (" + m.Type + ")\n\n" + m.Doc, span, true
			}
		}
	}
	for _, w := range keywords {
		if w.word == name {
			return w.doc, span, true
		}
	}
	if why := lang.Refusal(name); why != "" {
		return "`" + name + "` is not offered: " + why, span, true
	}
	if doc := headComment(source, name); doc != "" {
		return doc, span, true
	}
	return "", Span{}, false
}

// headComment returns the comment above the first rule with this name.
func headComment(source, name string) string {
	var comment []string
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\r\n")
		if rest, is := strings.CutPrefix(line, "#"); is {
			comment = append(comment, strings.TrimSpace(rest))
			continue
		}
		head := strings.TrimPrefix(line, "default ")
		if rest, is := strings.CutPrefix(head, name); is && (rest == "" || !wordByte(rest[0])) {
			return strings.Join(comment, "\n")
		}
		comment = nil
	}
	return ""
}
