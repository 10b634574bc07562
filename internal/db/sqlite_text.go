package db

import (
	"strconv"
	"strings"
)

// positional replaces $1, $2, ... by ? if each occurs once and in order. Otherwise it returns the
// text unchanged. SQLite takes $1 for a name, and the driver searches a list for each name: for a
// multi-row INSERT with thousands of parameters, that costs ten times as much as the insert.
func positional(text string) string {
	if !strings.Contains(text, "$1") {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	next, from := 1, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return text
			}
			i += end + 1
		case c == '-' && strings.HasPrefix(text[i:], "--"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i - 1
			}
			i += end
		case c == '?':
			return text
		case c == '$':
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			if text[i+1:end] != strconv.Itoa(next) {
				return text
			}
			b.WriteString(text[from:i])
			b.WriteByte('?')
			next++
			from, i = end, end-1
		}
	}
	b.WriteString(text[from:])
	return b.String()
}
