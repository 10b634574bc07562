package db

import (
	"strconv"
	"strings"
)

// positional writes $1, $2 ... as ? where they stand in order, each once. To
// SQLite $1 is a name, and the driver looks every name up by walking a list:
// with the thousands of parameters of a multi-row INSERT that walk costs ten
// times the insert. Any other text is left as it is.
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
