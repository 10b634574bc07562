// Package hint knows what an editor shows the author of a control: what may be typed
// next, what a word means, how an error is fixed, how the text is formatted. It is pure:
// source text in, suggestions out. The language server (package lsp) and the editors'
// endpoints (package ide) use it.
//
//	source, byte offset ─► Complete, Hover
//	source, issues ──────► Fixes
//	source ──────────────► Format, Symbols
//	files, byte offset ──► Definition, References, Rename, SignatureAt
//
// Positions are byte offsets into the source. Each caller converts them to its protocol's
// units: UTF-16 code units in LSP, lines and columns of characters in the API (Place).
package hint

import (
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Span is a part of a source: byte offsets, End excluded.
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

// Completion is something that may be typed at a place.
type Completion struct {
	// Label is what the editor shows and matches against the typed text.
	Label string
	// Kind is one of the Kind constants.
	Kind string
	// Detail is one line, a type or a signature. Doc is a few sentences.
	Detail, Doc string
	// Insert replaces Span. Snippet, if not empty, is the same with placeholders in the
	// syntax of LSP snippets.
	Insert  string
	Snippet string
	Span    Span
}

// Member is a path under input that controls may read.
type Member struct {
	// Path begins with "input.".
	Path string
	// Type is string, number, boolean, array or object.
	Type string
	Doc  string
}

// Template is a complete control that is shipped with the service.
type Template struct{ ID, Title, Doc, Source string }

// Knowledge is what is known beyond the source and the language.
type Knowledge struct {
	// Members are paths beyond those that every input has: attributes that open files
	// read, and attributes of stored resources.
	Members []Member
	// Data are more paths under data, such as data.resources["7"].
	Data []Member
	// Templates are offered at the start of a file.
	Templates []Template
	// Libraries are the shared modules that a control may import.
	Libraries []lang.Library
}

// lineStart is the byte offset at which a line begins; lines count from 1.
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

// Offset is the byte offset of a line and a column of characters, both counted from 1. A
// position outside the text becomes the nearest one inside.
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

// word is the dotted path around an offset. It ends at the offset, or at the end of the
// word if whole is set.
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
