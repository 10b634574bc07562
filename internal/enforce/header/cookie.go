package header

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// withoutSession returns a Cookie header without the session cookie of the console. Browsers send a
// cookie to every port of its host. If a bouncer and the console share a host, the application
// behind the bouncer would receive console sessions. Cookies with the same name that do not look
// like a session stay.
func withoutSession(line string) string {
	if !strings.Contains(line, scope.SessionCookie) {
		return line
	}
	pairs := strings.Split(line, ";")
	kept := slices.DeleteFunc(slices.Clone(pairs), isSession)
	if len(kept) == len(pairs) {
		return line
	}
	return strings.TrimSpace(strings.Join(kept, ";"))
}

// KeepSession returns c, changed so that no line of Cookie carries a session of the console.
func (c Changes) KeepSession(lines []string) Changes {
	left, had := make([]string, 0, len(lines)), false
	for _, line := range lines {
		rest := withoutSession(line)
		had = had || rest != line
		if rest != "" {
			left = append(left, rest)
		}
	}
	switch {
	case !had || slices.Contains(c.Drop, "Cookie"):
	case len(left) == 0:
		c.Drop = append(slices.Clone(c.Drop), "Cookie")
	default:
		c.Set = append(slices.Clone(c.Set), Field{"Cookie", strings.Join(left, "; ")})
	}
	return c
}

// isSession reports whether a pair of Cookie, or a whole Set-Cookie, belongs to a session of the
// console.
func isSession(text string) bool {
	pair, _, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(pair, "=")
	if name = strings.TrimSpace(name); name != scope.SessionCookie && name != scope.SecureSessionCookie {
		return false
	}
	_, ok := scope.SessionTenant(strings.Trim(strings.TrimSpace(value), `"`))
	return ok
}
