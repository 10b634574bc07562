package mask

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
)

// headerPrefix is the prefix of a mask path that names a header field instead of a member of the body:
// header:Set-Cookie, request:header:Cookie.
const headerPrefix = "header:"

// framing are fields that determine how a message is read or where it goes. Changing them would
// change the message.
var framing = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Range": true, "Content-Type": true, "Host": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// headerRule masks one field.
type headerRule struct{ name, strategy string }

func (r *Rules) addHeader(name, strategy string) error {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case name == "" || !allBytes([]byte(name), isNameByte):
		return fmt.Errorf("%q is not a header field name", name)
	case framing[canonical]:
		return fmt.Errorf("the header field %s controls how the message is read and cannot be masked", canonical)
	}
	for i := range r.headers {
		if r.headers[i].name == canonical {
			if isStricter(strategy, r.headers[i].strategy) {
				r.headers[i].strategy = strategy
			}
			return nil
		}
	}
	r.headers = append(r.headers, headerRule{canonical, strategy})
	return nil
}

// Head masks the fields of a head or of its trailers: remove drops a field, other strategies
// replace each of its values.
func (r *Rules) Head(h map[string][]string) {
	for _, rule := range r.headers {
		values, ok := h[rule.name]
		switch {
		case !ok:
			continue
		case rule.strategy == masking.Remove:
			delete(h, rule.name)
			continue
		}
		hidden := make([]string, len(values))
		for i, v := range values {
			hidden[i] = string(r.appendReplacement(nil, []byte(v), rule.strategy))
		}
		h[rule.name] = hidden
	}
}

// HeadOnly reports whether all of these masks name fields of an answer's head, so that its body
// passes unchanged.
func HeadOnly(list []masking.MaskRule) bool {
	for _, m := range list {
		if !strings.HasPrefix(m.Path, headerPrefix) {
			return false
		}
	}
	return true
}

// isNameByte reports whether c may occur in a field name (RFC 9110 section 5.6.2).
func isNameByte(c byte) bool {
	return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
