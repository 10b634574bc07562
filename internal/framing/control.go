package framing

import (
	"strconv"
	"strings"
)

// Consistent reports whether the control data of a request have only one reading: host, target,
// header and body length, as net/http provides them. HTTP/2 lets a client send a Host field that
// differs from :authority, an absolute URL as :path, and a Content-Length that is not the length of
// the body (RFC 9113 sections 8.1.1 and 8.3.1). Receivers would disagree on which one counts. For
// HTTP/1.1, ServerConn checks this.
func Consistent(major int, host, target string, header map[string][]string, length int64) bool {
	if major < 2 {
		return true
	}
	if hosts := header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], host) {
		return false
	}
	if !strings.HasPrefix(target, "/") {
		return false
	}
	lengths := header["Content-Length"]
	if len(lengths) == 0 {
		return true
	}
	n, err := strconv.ParseInt(lengths[0], 10, 64)
	return err == nil && len(lengths) == 1 && lengths[0][0] != '+' && n == max(length, 0)
}
