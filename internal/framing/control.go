package framing

import (
	"strconv"
	"strings"
)

// Consistent reports whether the control data of a request have one reading: its host, its
// target, its header and the length of its body, as net/http has them. HTTP/2 lets a client
// send a Host field beside another :authority, a :path that is an address, and a
// Content-Length that is not that of the body (RFC 9113, sections 8.1.1 and 8.3.1);
// receivers further on would choose for themselves. What HTTP/1.1 could say twice,
// ServerConn has refused.
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
