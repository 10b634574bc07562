package request

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// UseForwarded applies what a gateway reports about the request that it holds. The gateway forwards the
// raw path, so the path must have only one reading.
func (in *Inbound) UseForwarded(method, host, target string, st *settings.Settings) *Refusal {
	in.Method = method
	if refusal := allowedMethod(method); refusal != nil {
		return refusal
	}
	var ok bool
	if in.Host, ok = canonicalHost(host); !ok {
		return BadRequest("the host name is malformed")
	}
	raw, query, ok := splitTarget(target)
	if !ok || target[0] != '/' || !header.IsSafe(raw) {
		return BadRequest("the request target must be a path")
	}
	if in.Path, ok = canonicalPath(raw, st.KeepSlash); !ok {
		return BadRequest("the path is ambiguous")
	}
	if !sameSegments(raw, in.Path) {
		return BadRequest("the path must not have empty or dot segments")
	}
	in.Query = query
	if in.params, ok = readQuery(query); !ok {
		return BadRequest("the query is ambiguous")
	}
	return nil
}

// sameSegments reports whether a raw path has as many segments as its canonical form. A
// slash at the end does not count.
func sameSegments(raw, canonical string) bool {
	if canonical == "/" {
		return raw == "/"
	}
	return strings.Count(strings.TrimSuffix(raw, "/"), "/") == strings.Count(strings.TrimSuffix(canonical, "/"), "/")
}

func allowedMethod(m string) *Refusal {
	switch m {
	case "": // the gateway did not say
		return BadRequest("the method is missing")
	case "TRACE", "TRACK", "CONNECT", "PRI":
		return Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this method is not forwarded")
	}
	for i := 0; i < len(m); i++ {
		// Methods are case-sensitive, but not every application knows that: `delete` must
		// not bypass a control on DELETE.
		if m[i] >= 'a' && m[i] <= 'z' {
			return Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "methods are written in upper case")
		}
		if !header.IsPlainByte(m[i]) && m[i] != '_' {
			return BadRequest("the method is malformed")
		}
	}
	return nil
}

// splitTarget reads the origin form, and the absolute form as HTTP/1.1 requires (RFC 9112
// section 3.2.2). r.Host has the authority of the latter.
func splitTarget(target string) (path, query string, ok bool) {
	if !strings.HasPrefix(target, "/") {
		scheme, rest, found := strings.Cut(target, "://")
		if !found || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return "", "", false
		}
		i := strings.IndexAny(rest, "/?")
		switch {
		case i < 0:
			return "/", "", rest != ""
		case rest[i] == '?':
			return "/", rest[i+1:], true
		}
		target = rest[i:]
	}
	for i := range len(target) {
		if !targetBytes[target[i]] {
			return "", "", false
		}
	}
	path, query, _ = strings.Cut(target, "?")
	return path, query, true
}

// targetBytes are the bytes of a request target: those of RFC 3986 without the fragment's
// `#`. HTTP/2 also carries others, which HTTP/1.1 would read as the end of the target.
var targetBytes = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/?[]@!$&'()*+,;=%") {
		t[c] = true
	}
	return t
}()

// canonicalPath returns the canonical form of a path, in which it is forwarded.
func canonicalPath(raw string, keepSlash bool) (string, bool) {
	p, err := target.NormalisePath(raw)
	if err != nil {
		return "", false
	}
	// Encoding may make the path too long for a decision.
	if p != raw {
		if again, err := target.NormalisePath(p); err != nil || again != p {
			return "", false
		}
	}
	if keepSlash && len(p) > 1 && strings.HasSuffix(raw, "/") && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p, true
}

// canonicalHost returns the host in lower case and without a final dot, or an IPv6 address in its
// one form. A missing host (HTTP/1.0) is empty. A host that an application might read differently
// is refused: odd ports, empty labels, brackets around anything but IPv6.
func canonicalHost(h string) (string, bool) {
	if h == "" {
		return "", true
	}
	if h[0] == '[' {
		return canonicalLiteral(h)
	}
	name, port, ported := strings.Cut(h, ":")
	if ported && !isPort(port) {
		return "", false
	}
	bare := strings.TrimSuffix(name, ".")
	upper, label := false, 0
	for i := 0; i < len(bare); i++ {
		c := bare[i]
		label++
		switch {
		case c == '.':
			if label == 1 {
				return "", false
			}
			label = 0
		case c >= 'A' && c <= 'Z':
			upper = true
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
	}
	switch {
	case label == 0:
		return "", false
	case upper:
		bare = strings.ToLower(bare)
	case len(bare) == len(name):
		return h, true
	}
	if ported {
		return bare + ":" + port, true
	}
	return bare, true
}

// canonicalLiteral is canonicalHost for an IPv6 address in brackets.
func canonicalLiteral(h string) (string, bool) {
	inner, rest, closed := strings.Cut(h[1:], "]")
	addr, err := netip.ParseAddr(inner)
	if !closed || err != nil || !addr.Is6() || addr.Zone() != "" || rest != "" && (rest[0] != ':' || !isPort(rest[1:])) {
		return "", false
	}
	return "[" + addr.String() + "]" + rest, true
}

// isPort reports whether s is a port from 1 to 65535 without a leading zero.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// readQuery makes input.request.query: an object of names with the list of their values,
// in the order sent. It returns false for a query with more than one reading.
func readQuery(raw string) (value.Value, bool) {
	if raw == "" {
		return value.Value{}, true
	}
	if strings.IndexByte(raw, ';') >= 0 || strings.Count(raw, "&") >= maxQueryParams {
		return value.Value{}, false
	}
	var names []string
	values := map[string][]value.Value{}
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		name, err1 := url.QueryUnescape(k)
		val, err2 := url.QueryUnescape(v)
		if err1 != nil || err2 != nil || !utf8.ValidString(name) || !utf8.ValidString(val) {
			return value.Value{}, false
		}
		if _, seen := values[name]; !seen {
			names = append(names, name)
		}
		values[name] = append(values[name], value.String(val))
	}
	members := make([]value.Member, len(names))
	for i, n := range names {
		members[i] = value.Member{Key: n, Value: value.Array(values[n]...)}
	}
	return value.Object(members...), true
}

// maxQueryParams is the largest number of query parameters. Beyond about that number,
// parsers disagree.
const maxQueryParams = 10_000
