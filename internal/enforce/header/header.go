// Package header knows which header fields pass a bouncer: which of a client's reach
// the application, which of an answer reach the client, and which only the bouncer
// sets. Names are compared in the way of the laxest receiver.
package header

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Names of header fields that the bouncer itself speaks.
const (
	RequestID  = "X-Request-Id"
	Decision   = "X-Decision"
	DecisionID = "X-Decision-Id"
	Status     = "X-Gatehouse-Status"
	Reason     = "X-Gatehouse-Reason"
)

// Names are the identity headers, in canonical form: read from trusted
// proxies, and set to exactly one value on what goes upstream.
type Names struct {
	User, Email, Groups string
	// Token is where the caller's token stands, when that is not Authorization.
	Token string
}

// DefaultNames are the names that oauth2-proxy made common.
func DefaultNames() Names {
	return Names{User: "X-Auth-Request-User", Email: "X-Auth-Request-Email", Groups: "X-Auth-Request-Groups"}
}

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

	Decision: true, DecisionID: true, RequestID: true,
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
	Status, Reason,
}

// Reserved lists, in canonical form and in order, the header fields that an application
// behind a bouncer may believe: no client's value of them passes.
// A gateway that asks by forward-auth must remove them itself. The list holds
// what is known of families that go by prefix.
func Reserved() []string {
	names := slices.Concat(slices.Collect(maps.Keys(reservedNames)), familyMembers)
	slices.Sort(names)
	return slices.Compact(names)
}

// OfAnswers lists, in canonical form and in order, the header fields by which a
// bouncer speaks to clients. No application's value of them reaches a client. A
// gateway that asks by forward-auth must remove them from answers itself.
func OfAnswers() []string {
	return []string{Decision, DecisionID, Reason, Status}
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

// IsHopByHop reports whether a canonical name is a field of one connection.
func IsHopByHop(name string) bool { return hopByHop[name] }

// IsFraming reports whether a canonical name says how a message is to be read or who
// sends it.
func IsFraming(name string) bool { return framingFields[name] }

// IsReserved reports whether only the bouncer sets the field of this canonical name.
func (n Names) IsReserved(name string) bool {
	if name == n.User || name == n.Email || name == n.Groups || name == n.Token || reservedNames[name] {
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

// Fold is the canonical name that a lax receiver could read name as: every
// byte that is no letter, digit or hyphen becomes a hyphen. odd is set when the
// name was not plain already.
func Fold(name string) (folded string, odd bool) {
	for i := 0; i < len(name); i++ {
		if !IsPlainByte(name[i]) {
			odd = true
			break
		}
	}
	if !odd {
		return name, false
	}
	b := []byte(name)
	for i, c := range b {
		if !IsPlainByte(c) {
			b[i] = '-'
		}
	}
	return textproto.CanonicalMIMEHeaderKey(string(b)), true
}

// IsPlainByte reports a letter, a digit or a hyphen.
func IsPlainByte(c byte) bool {
	return c == '-' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// forwards reports whether the client's field may go upstream as it is.
func (n Names) forwards(name string, named []string) bool {
	folded, odd := Fold(name)
	if n.IsReserved(folded) || hopByHop[folded] {
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

// ConnectionNames are the fields that Connection asks to drop, canonical. A
// name that is ours or that frames the message is an attack on what the
// application sees (CVE-2024-45410): ok is false then.
func (n Names) ConnectionNames(h http.Header) (named []string, ok bool) {
	for _, v := range h["Connection"] {
		if v == "keep-alive" || v == "close" {
			continue
		}
		for part := range strings.SplitSeq(v, ",") {
			part = textproto.TrimString(part)
			if part == "" {
				continue
			}
			name, _ := Fold(textproto.CanonicalMIMEHeaderKey(part))
			if n.IsReserved(name) || framingFields[name] {
				return nil, false
			}
			named = append(named, name)
		}
	}
	return named, true
}

// WantsTrailers reports whether the client takes trailers (gRPC needs it).
func WantsTrailers(h http.Header) bool {
	for _, v := range h["Te"] {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(part), "trailers") {
				return true
			}
		}
	}
	return false
}

// Field is one header field that we set.
type Field struct{ Name, Value string }

// Outgoing is the header that goes upstream: the client's fields that may pass,
// without a copy, and ours.
type Outgoing struct {
	Names     Names
	Client    http.Header
	Named     []string // fields that the client's Connection drops
	Ours      []Field
	Unencoded bool   // the answer will be read: no encodings
	Token     string // the token's header, where it goes on
	Masked    bool   // the answer will be rewritten: no encodings, no parts, no validators
}

// Apply drops and sets fields, our own included: a rule that strips an identity header
// strips ours as well.
func (o *Outgoing) Apply(c Changes) {
	if len(c.Drop) == 0 {
		return
	}
	if len(o.Named) == 0 {
		o.Named = c.Drop
	} else {
		o.Named = slices.Concat(o.Named, c.Drop)
	}
	o.Ours = slices.DeleteFunc(o.Ours, func(f Field) bool { return slices.Contains(c.Drop, f.Name) })
	o.Ours = append(o.Ours, c.Set...)
}

// maskDrops are the request fields that would bring an answer which cannot be
// masked: a part of it, an encoded one, or a 304 onto an older clear copy.
var maskDrops = map[string]bool{
	"Accept-Encoding": true, "Range": true, "If-Range": true, "If-None-Match": true, "If-Modified-Since": true, "A-Im": true, "Want-Digest": true,
}

// passes reports the caller's token that is asked to go on.
func (o *Outgoing) passes(name string) bool {
	return o.Token != "" && name == o.Token
}

// Each calls fn for every field line, ours last.
func (o *Outgoing) Each(fn func(name, value string)) {
	for name, values := range o.Client {
		if (!o.Names.forwards(name, o.Named) && !o.passes(name)) || name == "Expect" || name == "Content-Length" {
			continue
		}
		if o.Masked && maskDrops[name] || o.Unencoded && name == "Accept-Encoding" {
			continue
		}
		for _, v := range values {
			if name == "Cookie" {
				if v = WithoutSession(v); v == "" {
					continue
				}
			}
			fn(name, v)
		}
	}
	for _, f := range o.Ours {
		fn(f.Name, f.Value)
	}
}

// Map is the same as a map, for the standard transport.
func (o *Outgoing) Map() http.Header {
	h := make(http.Header, len(o.Client)+len(o.Ours)+1)
	o.Each(func(name, value string) { h[name] = append(h[name], value) })
	if _, set := h["User-Agent"]; !set {
		h["User-Agent"] = nil // the client sent none: the transport must not add its own
	}
	return h
}

// IsBouncers reports a field of an answer that only we set: an application does not
// speak for the bouncer to its client. name is canonical.
func IsBouncers(name string) bool {
	if len(name) < len(Decision) || name[0] != 'X' {
		return false
	}
	folded, _ := Fold(name)
	return folded == Decision || strings.HasPrefix(folded, Decision+"-") || strings.HasPrefix(folded, "X-Gatehouse-")
}

// CopyAnswer puts an answer's end-to-end fields into dst, but for those that are ours.
func CopyAnswer(dst, src http.Header) {
	var named []string
	for _, v := range src["Connection"] {
		for part := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(part)))
		}
	}
next:
	for name, values := range src {
		if hopByHop[name] || IsBouncers(name) {
			continue
		}
		for _, n := range named {
			if n == name {
				continue next
			}
		}
		if name == "Set-Cookie" && slices.ContainsFunc(values, isSession) {
			values = slices.DeleteFunc(slices.Clone(values), isSession)
			if len(values) == 0 {
				continue
			}
		}
		dst[name] = values
	}
}

// IsSafe reports whether s may be a header value: no control characters.
func IsSafe(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// Changes are what becomes of a request's header: the client's fields that go, and
// those that we set.
type Changes struct {
	Drop []string
	Set  []Field
}
