// Package assist computes what an editor shows the author of a control: completions, the meaning of a
// word, fixes of errors, and the formatted text. It is pure. The language server (package lsp) and
// the API for editors (package ide) use it.
//
//	source, byte offset ─► Complete, Hover
//	source, issues ──────► Fixes
//	source ──────────────► Format, Symbols
//	files, byte offset ──► Definition, References, Rename, SignatureAt
//
// Positions are byte offsets into the source. Each caller converts them to its protocol's
// units: UTF-16 code units in LSP, lines and columns of characters in the API (Place).
package assist

import (
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Span is a part of a source, as byte offsets. End is exclusive.
type Span struct{ Start, End int }

// The kinds of completions.
const (
	KindInput    = "input"
	KindData     = "data"
	KindFunction = "function"
	KindKeyword  = "keyword"
	KindRule     = "rule"
	KindTemplate = "template"
)

// Completion is a text that may be typed at an offset.
type Completion struct {
	// Label is what the editor shows and matches against the typed text.
	Label string
	// Kind is one of the Kind constants.
	Kind string
	// Detail is a type, a signature or a title, on one line. Doc is documentation in Markdown.
	Detail, Doc string
	// Insert replaces Span. Snippet, if not empty, is the same with placeholders in the
	// syntax of LSP snippets.
	Insert  string
	Snippet string
	Span    Span
}

// Member is a path under input or data that controls may read.
type Member struct {
	// Path begins with "input." or "data.".
	Path string
	// Type is string, number, boolean, array or object.
	Type string
	Doc  string
}

// Template is a complete control that is shipped with the service.
type Template struct{ ID, Title, Doc, Source string }

// Knowledge is what the caller knows in addition to the source and the language.
type Knowledge struct {
	// Members are paths under input besides the documented ones: attributes that open files
	// read, and attributes of stored resources.
	Members []Member
	// Data are more paths under data, such as data.resources["7"].
	Data []Member
	// Templates are completions for a file that is empty or has only its package.
	Templates []Template
	// Libraries are the shared modules that a control may import.
	Libraries []lang.Library
}

// lineStart returns the byte offset at which a line begins. Lines count from 1.
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

// Offset returns the byte offset of a line and column, both counted from 1. Columns are characters.
// For a position outside the text it returns the nearest offset inside.
func Offset(source string, line, column int) int {
	at := lineStart(source, line)
	for ; column > 1 && at < len(source) && source[at] != '\n'; column-- {
		_, n := utf8.DecodeRuneInString(source[at:])
		at += n
	}
	return at
}

// Place returns the line and column of a byte offset. It is the reverse of Offset.
func Place(source string, offset int) (line, column int) {
	offset = min(max(offset, 0), len(source))
	before := source[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}

// inText reports whether an offset is in a comment or a string.
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

// word returns the dotted path around an offset. It ends at the offset or, if whole is set, at the
// end of the word.
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
