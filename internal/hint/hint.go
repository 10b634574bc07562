// Package hint knows what an editor shows an author of a control: what may be
// typed next, what a word means, how an error is mended, how the text is laid
// out. It is pure: source text in, suggestions out. The language server (package
// lsp) and the editors' endpoints (package ide) are its two doors.
//
//	source, byte offset ─► Complete, Hover
//	source, issues ──────► Fixes
//	source ──────────────► Format, Symbols
//	files, byte offset ──► Definition, References, Rename, SignatureAt
//
// Places are byte offsets into the source; each door counts them as its protocol
// wants (UTF-16 units there, lines and columns of characters here: Place).
package hint

import (
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Span is a part of a source: byte offsets, End excluded.
type Span struct{ Start, End int }

// The kinds of a completion.
const (
	KindInput    = "input"
	KindData     = "data"
	KindFunction = "function"
	KindKeyword  = "keyword"
	KindRule     = "rule"
	KindTemplate = "template"
)

// Completion is something that may be typed at a place.
type Completion struct {
	// Label is what is shown and matched against what was typed.
	Label string
	// Kind is one of the Kind constants.
	Kind string
	// Detail is one line: a type or a signature. Doc is some sentences.
	Detail, Doc string
	// Insert replaces Span. Snippet, where not empty, is the same with places to
	// fill in, in the syntax of LSP snippets.
	Insert  string
	Snippet string
	Span    Span
}

// Member is a path under input that controls may refer to.
type Member struct {
	// Path begins with "input.".
	Path string
	// Type is string, number, boolean, array or object.
	Type string
	Doc  string
}

// Template is a shipped control, offered as a whole.
type Template struct{ ID, Title, Doc, Source string }

// Knowledge is what is known beyond the source and the language.
type Knowledge struct {
	// Members are paths beside those that every input has: attributes that the open
	// file refers to, attributes of stored resources.
	Members []Member
	// Data are further paths under data, such as data.resources["7"].
	Data []Member
	// Templates are offered where a file begins.
	Templates []Template
	// Libraries are the shared modules that a control may import.
	Libraries []lang.Library
}

// Line and column, 1-based; the column counts characters, as OPA does.
func lineStart(source string, line int) int {
	at := 0
	for ; line > 1; line-- {
		n := strings.IndexByte(source[at:], '\n')
		if n < 0 {
			return len(source)
		}
		at += n + 1
	}
	return at
}

// Offset is the byte offset of a line and column, both 1-based, the column in
// characters. A place beyond the text is the nearest within it.
func Offset(source string, line, column int) int {
	at := lineStart(source, line)
	for ; column > 1 && at < len(source) && source[at] != '\n'; column-- {
		_, n := utf8.DecodeRuneInString(source[at:])
		at += n
	}
	return at
}

// Place is the line and column of a byte offset, the reverse of Offset.
func Place(source string, offset int) (line, column int) {
	offset = min(max(offset, 0), len(source))
	before := source[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// inText reports whether an offset lies in a comment or a string.
func inText(source string, offset int) bool {
	for i := 0; i < offset && i < len(source); i++ {
		switch source[i] {
		case '#':
			n := strings.IndexByte(source[i:], '\n')
			if n < 0 || i+n >= offset {
				return true
			}
			i += n
		case '`':
			n := strings.IndexByte(source[i+1:], '`')
			if n < 0 || i+1+n >= offset {
				return true
			}
			i += 1 + n
		case '"':
			for i++; i < len(source) && source[i] != '"' && source[i] != '\n'; i++ {
				if source[i] == '\\' {
					i++
				}
			}
			if i >= offset {
				return true
			}
		}
	}
	return false
}

// word is the dotted path around an offset: from its first character to end,
// which is the offset itself, or the end of the word when whole is set.
func word(source string, offset int, whole bool) Span {
	offset = min(max(offset, 0), len(source))
	s := Span{offset, offset}
	for s.Start > 0 && (wordByte(source[s.Start-1]) || source[s.Start-1] == '.') {
		s.Start--
	}
	if whole {
		for s.End < len(source) && wordByte(source[s.End]) {
			s.End++
		}
	}
	return s
}

func wordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
