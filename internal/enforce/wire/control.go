package wire

import (
	"net/http"
	"strconv"
	"strings"
)

// Consistent reports whether the control data of a request have one reading. HTTP/2
// lets a client send a Host field beside another :authority, a :path that is an
// address, and a Content-Length that is not that of the body (RFC 9113, sections
// 8.1.1 and 8.3.1); receivers further on would choose for themselves. What
// HTTP/1.1 could say twice, its server has refused.
func Consistent(r *http.Request) bool {
	if r.ProtoMajor < 2 {
		return true
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return false
	}
	if !strings.HasPrefix(r.RequestURI, "/") {
		return false
	}
	lengths := r.Header["Content-Length"]
	if len(lengths) == 0 {
		return true
	}
	n, err := strconv.ParseInt(lengths[0], 10, 64)
	return err == nil && len(lengths) == 1 && lengths[0][0] != '+' && n == max(r.ContentLength, 0)
}
