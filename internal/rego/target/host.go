package target

import (
	"net/netip"
	"strings"
)

// maxHostName is the longest host name (RFC 1035 section 2.3.4).
const maxHostName = 253

// HostName returns the name in a Host field in lower case, without its port and final dot. A host
// name consists of labels of letters, digits, hyphens and underscores, joined by dots. ok is false
// for anything else, for localhost, and for IP addresses in any notation.
func HostName(host string) (name string, ok bool) {
	name, port, found := strings.Cut(host, ":")
	if found && !digits(port) {
		return "", false
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "" || len(name) > maxHostName || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return "", false
	}
	last := ""
	for last = range strings.SplitSeq(name, ".") {
		if !hostLabel(last) {
			return "", false
		}
	}
	// Resolvers read 127.1 and 0x7f.1 as addresses, so the last label of a name must not be a
	// number (RFC 1123 section 2.1).
	if digits(last) || strings.HasPrefix(last, "0x") {
		return "", false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "", false
	}
	return name, true
}

func hostLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
