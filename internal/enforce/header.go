package enforce

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Names of header fields that the bouncer itself speaks.
const (
	headerRequestID  = "X-Request-Id"
	headerDecision   = "X-Decision"
	headerDecisionID = "X-Decision-Id"
	headerStatus     = "X-Gatehouse-Status"
	headerReason     = "X-Gatehouse-Reason"
)

// headerNames are the identity headers, in canonical form: read from trusted
// proxies, and set to exactly one value on what goes upstream.
type headerNames struct {
	user, email, groups string
	// token is where the caller's token stands, when that is not Authorization.
	token string
}

// oauth2Proxy are the names that oauth2-proxy made common.
var oauth2Proxy = headerNames{user: "X-Auth-Request-User", email: "X-Auth-Request-Email", groups: "X-Auth-Request-Groups"}

// reservedNames are fields whose value upstream is ours or nothing, because
// applications and their frameworks believe them. Whole families go by prefix,
// see reservedPrefixes.
var reservedNames = map[string]bool{
	// Where a request comes from: servers, CDNs, and what logs and rate limits read.
	"Forwarded": true, "X-Forwarded": true, "Forwarded-For": true, "X-Forward-For": true, "X-Real-Ip": true,
	"True-Client-Ip": true, "X-True-Client-Ip": true, "Client-Ip": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"Cf-Connecting-Ip": true, "Cf-Connecting-Ipv6": true, "Cf-Pseudo-Ipv4": true, "Fastly-Client-Ip": true, "Fly-Client-Ip": true,
	"Do-Connecting-Ip": true, "X-Originating-Ip": true, "X-Azure-Clientip": true, "X-Azure-Socketip": true,
	"X-Appengine-User-Ip": true, "Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true, "X-Proxyuser-Ip": true,
	"X-Custom-Ip-Authorization": true, "X-Envoy-External-Address": true, "Remote-Addr": true, "Remote-Host": true,
	// Which method is meant: Rack, Symfony, ASP.NET, Express and others.
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true, "X-Method": true,
	"X-Override-Method": true, "X-Request-Method": true,
	// Which path: IIS, Symfony, Zend, Envoy, and what WSGI servers take for a mount point.
	"X-Rewrite-Url": true, "X-Rewrite-Uri": true, "X-Override-Url": true, "X-Override-Uri": true, "X-Request-Uri": true,
	"X-Request-Url": true, "X-Proxy-Url": true, "X-Http-Destinationurl": true, "X-Waws-Unencoded-Url": true,
	"X-Envoy-Original-Path": true, "X-Script-Name": true, "Script-Name": true, "Path-Info": true,
	"X-Http-Path-Override": true,
	// Which file to serve (Rack), and which checks to leave out (Next.js).
	"X-Accel-Mapping": true, "X-Sendfile-Type": true, "X-Middleware-Subrequest": true,
	// Which host and scheme.
	"X-Host": true, "X-Http-Host-Override": true, "X-Backend-Host": true, "X-Scheme": true, "X-Url-Scheme": true,
	"Front-End-Https": true, "X-Arr-Ssl": true, "X-Arr-Log-Id": true,
	// Who asks: what proxies that sign people in say to what stands behind them.
	"Remote-User": true, "Remote-Name": true, "Remote-Email": true, "Remote-Groups": true,
	// HTTP_PROXY of a CGI program, which sends its own requests there.
	"Proxy": true,

	headerDecision: true, headerDecisionID: true, headerRequestID: true,
}

// reservedPrefixes are the families, all of which begin with X: forwarding facts,
// overrides of what was asked for, identities, and our own.
var reservedPrefixes = []string{
	"X-Forwarded-", "X-Original-", "X-Auth-Request-", "X-Remote-", "X-Authenticated-", "X-Webauth-", "X-Gatehouse-",
}

// familyMembers are the members of reservedPrefixes that are in use.
var familyMembers = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-By",
	"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Url", "X-Forwarded-Path", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-Protocol",
	"X-Forwarded-Ssl", "X-Forwarded-Proxy", "X-Forwarded-Client-Cert", "X-Forwarded-Tls-Client-Cert", "X-Forwarded-Tls-Client-Cert-Info",
	"X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups", "X-Forwarded-Roles", "X-Forwarded-Preferred-Username", "X-Forwarded-Access-Token",
	"X-Forwarded-Id-Token",
	"X-Original-Url", "X-Original-Uri", "X-Original-Path", "X-Original-Host", "X-Original-Method", "X-Original-Scheme", "X-Original-Proto",
	"X-Original-For", "X-Original-Forwarded-For", "X-Original-Remote-Addr", "X-Original-User",
	"X-Auth-Request-User", "X-Auth-Request-Email", "X-Auth-Request-Groups", "X-Auth-Request-Roles", "X-Auth-Request-Preferred-Username",
	"X-Auth-Request-Access-Token", "X-Auth-Request-Redirect",
	"X-Remote-User", "X-Remote-Name", "X-Remote-Email", "X-Remote-Group", "X-Remote-Groups", "X-Remote-Ip", "X-Remote-Addr",
	"X-Authenticated-User", "X-Authenticated-Userid", "X-Authenticated-Email", "X-Authenticated-Groups",
	"X-Webauth-User", "X-Webauth-Email", "X-Webauth-Groups",
	headerStatus, headerReason,
}

// ReservedHeaders names, in canonical form and in order, the header fields that
// an application behind a bouncer may believe: no client's value of theirs passes.
// A gateway that asks by forward-auth must remove them itself. The list holds
// what is known of families that go by prefix.
func ReservedHeaders() []string {
	names := slices.Concat(slices.Collect(maps.Keys(reservedNames)), familyMembers)
	slices.Sort(names)
	return slices.Compact(names)
}

// AnswerHeaders names, in canonical form and in order, the header fields by which a
// bouncer speaks to clients. No application's value of theirs reaches a client. A
// gateway that asks by forward-auth must remove them from answers itself.
func AnswerHeaders() []string {
	return []string{headerDecision, headerDecisionID, headerReason, headerStatus}
}

// hopByHop are the fields of one connection (RFC 9110 section 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Http2-Settings": true,
}

// framingFields are fields that say how a message is to be read or who sends it. They
// may not be named in Connection, and an odd spelling of them is dropped: a CGI
// gateway reads Content_Length as Content-Length.
var framingFields = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Authorization": true,
	"Cookie": true, "Range": true, "Accept-Encoding": true, "Expect": true, "Origin": true, "Referer": true,
}

// reserved reports whether the canonical name is ours to set.
func (n headerNames) reserved(name string) bool {
	if name == n.user || name == n.email || name == n.groups || name == n.token || reservedNames[name] {
		return true
	}
	if len(name) < 9 || name[0] != 'X' {
		return false
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// foldName is the canonical name that a lax receiver could read name as: every
// byte that is no letter, digit or hyphen becomes a hyphen. odd is set when the
// name was not plain already.
func foldName(name string) (folded string, odd bool) {
	for i := 0; i < len(name); i++ {
		if !plainNameByte(name[i]) {
			odd = true
			break
		}
	}
	if !odd {
		return name, false
	}
	b := []byte(name)
	for i, c := range b {
		if !plainNameByte(c) {
			b[i] = '-'
		}
	}
	return textproto.CanonicalMIMEHeaderKey(string(b)), true
}

func plainNameByte(c byte) bool {
	return c == '-' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// forwards reports whether the client's field may go upstream as it is.
func (n headerNames) forwards(name string, named []string) bool {
	folded, odd := foldName(name)
	if n.reserved(folded) || hopByHop[folded] {
		return false
	}
	// Of MCP's fields the plain spelling was looked at, and holds our own session id.
	if odd && (framingFields[folded] || strings.HasPrefix(folded, "Mcp-")) {
		return false
	}
	for _, c := range named {
		if c == folded {
			return false
		}
	}
	return true
}

// connectionNames are the fields that Connection asks to drop, canonical. A
// name that is ours or that frames the message is an attack on what the
// application sees (CVE-2024-45410): ok is false then.
func (n headerNames) connectionNames(h http.Header) (named []string, ok bool) {
	for _, v := range h["Connection"] {
		if v == "keep-alive" || v == "close" {
			continue
		}
		for part := range strings.SplitSeq(v, ",") {
			part = textproto.TrimString(part)
			if part == "" {
				continue
			}
			name, _ := foldName(textproto.CanonicalMIMEHeaderKey(part))
			if n.reserved(name) || framingFields[name] {
				return nil, false
			}
			named = append(named, name)
		}
	}
	return named, true
}

// wantsTrailers reports whether the client takes trailers (gRPC needs it).
func wantsTrailers(h http.Header) bool {
	for _, v := range h["Te"] {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(part), "trailers") {
				return true
			}
		}
	}
	return false
}

// field is one header field that we set.
type field struct{ name, value string }

// outgoing is the header that goes upstream: the client's fields that may pass,
// without a copy, and ours.
type outgoing struct {
	names  headerNames
	client http.Header
	named  []string // fields that the client's Connection drops
	ours   []field
	plain  bool   // the answer will be read: no encodings
	token  string // the token's header, where it goes on
	masked bool   // the answer will be rewritten: no encodings, no parts, no validators
}

// credit applies what becomes of the header, our own fields included: who takes
// identities away from a provider takes ours away.
func (o *outgoing) credit(c changes) {
	if len(c.drop) == 0 {
		return
	}
	if len(o.named) == 0 {
		o.named = c.drop
	} else {
		o.named = slices.Concat(o.named, c.drop)
	}
	o.ours = slices.DeleteFunc(o.ours, func(f field) bool { return slices.Contains(c.drop, f.name) })
	o.ours = append(o.ours, c.set...)
}

// maskDrops are the request fields that would bring an answer which cannot be
// masked: a part of it, an encoded one, or a 304 onto an older clear copy.
var maskDrops = map[string]bool{
	"Accept-Encoding": true, "Range": true, "If-Range": true, "If-None-Match": true, "If-Modified-Since": true, "A-Im": true, "Want-Digest": true,
}

// passes reports the caller's token that is asked to go on.
func (o *outgoing) passes(name string) bool {
	return o.token != "" && name == o.token
}

// each calls fn for every field line, ours last.
func (o *outgoing) each(fn func(name, value string)) {
	for name, values := range o.client {
		if (!o.names.forwards(name, o.named) && !o.passes(name)) || name == "Expect" || name == "Content-Length" {
			continue
		}
		if o.masked && maskDrops[name] || o.plain && name == "Accept-Encoding" {
			continue
		}
		for _, v := range values {
			fn(name, v)
		}
	}
	for _, f := range o.ours {
		fn(f.name, f.value)
	}
}

// header is the same as a map, for the standard transport.
func (o *outgoing) header() http.Header {
	h := make(http.Header, len(o.client)+len(o.ours)+1)
	o.each(func(name, value string) { h[name] = append(h[name], value) })
	if _, set := h["User-Agent"]; !set {
		h["User-Agent"] = nil // the client sent none: the transport must not add its own
	}
	return h
}

// claimsUs reports a field of an answer that only we set: an application does not
// speak for the bouncer to its client. name is canonical.
func claimsUs(name string) bool {
	if len(name) < len(headerDecision) || name[0] != 'X' {
		return false
	}
	folded, _ := foldName(name)
	return folded == headerDecision || strings.HasPrefix(folded, headerDecision+"-") || strings.HasPrefix(folded, "X-Gatehouse-")
}

// copyAnswer puts an answer's end-to-end fields into dst, but for those that are ours.
func copyAnswer(dst, src http.Header) {
	var named []string
	for _, v := range src["Connection"] {
		for part := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(part)))
		}
	}
next:
	for name, values := range src {
		if hopByHop[name] || claimsUs(name) {
			continue
		}
		for _, n := range named {
			if n == name {
				continue next
			}
		}
		dst[name] = values
	}
}
