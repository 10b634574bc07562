// Package truncate shortens texts without splitting a character.
package truncate

import "strings"

// Text returns s if it has at most n bytes. Otherwise it returns the characters that are complete within
// its first n bytes, and then mark, which says that something is missing.
func Text(s string, n int, mark string) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + mark
}
