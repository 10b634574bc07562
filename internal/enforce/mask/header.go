package mask

import (
	"fmt"
	"net/textproto"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Header begins a mask path that names a field of the head and not a member of
// the body: header:Set-Cookie, request:header:Cookie.
const Header = "header:"

// framing are fields that say how a message is to be read, or where it goes: a
// message without them, or with others, is another message.
var framing = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Range": true, "Content-Type": true, "Host": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Connection": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// headerRule hides one field.
type headerRule struct{ name, strategy string }

func (r *Rules) addHeader(name, strategy string) error {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case name == "" || !onlyOf([]byte(name), isNameByte):
		return fmt.Errorf("%q is not a header field name", name)
	case framing[canonical]:
		return fmt.Errorf("the header field %s controls how the message is read and cannot be masked", canonical)
	}
	for i := range r.headers {
		if r.headers[i].name == canonical {
			if stricter(strategy, r.headers[i].strategy) {
				r.headers[i].strategy = strategy
			}
			return nil
		}
	}
	r.headers = append(r.headers, headerRule{canonical, strategy})
	return nil
}

// Head hides fields of a head, or of its trailers, by the masks that name them:
// remove drops a field, other strategies replace each of its values.
func (r *Rules) Head(h map[string][]string) {
	for _, rule := range r.headers {
		values, ok := h[rule.name]
		switch {
		case !ok:
			continue
		case rule.strategy == lang.StrategyRemove:
			delete(h, rule.name)
			continue
		}
		hidden := make([]string, len(values))
		for i, v := range values {
			hidden[i] = string(r.hidden(nil, []byte(v), rule.strategy))
		}
		h[rule.name] = hidden
	}
}

// HeadOnly reports whether every one of these masks names a field of an answer's
// head, so that its body passes as it is.
func HeadOnly(list []rego.MaskRule) bool {
	for _, m := range list {
		if !strings.HasPrefix(m.Path, Header) {
			return false
		}
	}
	return true
}

// isNameByte reports what the name of a field is made of (RFC 9110 section 5.6.2).
func isNameByte(c byte) bool {
	return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
