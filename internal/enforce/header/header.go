// Package header decides which header fields pass a bouncer: which of a client's fields reach the
// application, which of an answer's fields reach the client, and which only the bouncer sets. It
// compares names as the most lenient receiver does.
package header

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Header fields of the bouncer's own.
const (
	RequestID  = "X-Request-Id"
	Decision   = "X-Decision"
	DecisionID = "X-Decision-Id"
	Status     = "X-Gatehouse-Status"
	Reason     = "X-Gatehouse-Reason"
)

// Names are the names of the identity headers, in canonical form. The bouncer reads them from
// trusted proxies, and sends exactly one value of each to the application.
type Names struct {
	User, Email, Groups string
	// Token is the header of the caller's token, if that is not Authorization.
	Token string
}

// DefaultNames returns the names that oauth2-proxy introduced and others adopted.
func DefaultNames() Names {
	return Names{User: "X-Auth-Request-User", Email: "X-Auth-Request-Email", Groups: "X-Auth-Request-Groups"}
}

// reservedNames are fields that only the bouncer may send to the application, because applications
// and their frameworks trust them. reservedPrefixes lists whole families of them.
var reservedNames = map[string]bool{
	// The origin of a request, as read by servers, CDNs, logs and rate limits.
	"Forwarded": true, "X-Forwarded": true, "Forwarded-For": true, "X-Forward-For": true, "X-Real-Ip": true,
	"True-Client-Ip": true, "X-True-Client-Ip": true, "Client-Ip": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"Cf-Connecting-Ip": true, "Cf-Connecting-Ipv6": true, "Cf-Pseudo-Ipv4": true, "Fastly-Client-Ip": true, "Fly-Client-Ip": true,
	"Do-Connecting-Ip": true, "X-Originating-Ip": true, "X-Azure-Clientip": true, "X-Azure-Socketip": true,
	"X-Appengine-User-Ip": true, "Proxy-Client-Ip": true, "Wl-Proxy-Client-Ip": true, "X-Proxyuser-Ip": true,
	"X-Custom-Ip-Authorization": true, "X-Envoy-External-Address": true, "Remote-Addr": true, "Remote-Host": true,
	// The method: Rack, Symfony, ASP.NET, Express and others.
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true, "X-Method": true,
	"X-Override-Method": true, "X-Request-Method": true,
	// The path: IIS, Symfony, Zend, Envoy, and the mount point of WSGI servers.
	"X-Rewrite-Url": true, "X-Rewrite-Uri": true, "X-Override-Url": true, "X-Override-Uri": true, "X-Request-Uri": true,
	"X-Request-Url": true, "X-Proxy-Url": true, "X-Http-Destinationurl": true, "X-Waws-Unencoded-Url": true,
	"X-Envoy-Original-Path": true, "X-Script-Name": true, "Script-Name": true, "Path-Info": true,
	"X-Http-Path-Override": true,
	// The file to serve (Rack), and checks to skip (Next.js).
	"X-Accel-Mapping": true, "X-Sendfile-Type": true, "X-Middleware-Subrequest": true,
	// The host and scheme.
	"X-Host": true, "X-Http-Host-Override": true, "X-Backend-Host": true, "X-Scheme": true, "X-Url-Scheme": true,
	"Front-End-Https": true, "X-Arr-Ssl": true, "X-Arr-Log-Id": true,
	// The user, as set by proxies that sign people in.
	"Remote-User": true, "Remote-Name": true, "Remote-Email": true, "Remote-Groups": true,
	// HTTP_PROXY of a CGI program, which sends its own requests there.
	"Proxy": true,

	Decision: true, DecisionID: true, RequestID: true,
}

// reservedPrefixes are the families of reserved fields, which all begin with X: forwarding data,
// overrides of the request, identities, and our own.
var reservedPrefixes = []string{
	"X-Forwarded-", "X-Original-", "X-Auth-Request-", "X-Remote-", "X-Authenticated-", "X-Webauth-", "X-Gatehouse-",
}

// familyMembers are the known members of the families in reservedPrefixes.
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

// Reserved returns, in canonical form and sorted, the header fields that an application behind a
// bouncer may trust: no client's value of them passes. A gateway that uses forward-auth must remove
// them itself. Of each family, the list holds the known members.
func Reserved() []string {
	names := slices.Concat(slices.Collect(maps.Keys(reservedNames)), familyMembers)
	slices.Sort(names)
	return slices.Compact(names)
}

// OfAnswers returns, in canonical form and sorted, the header fields that the bouncer sends to
// clients. No application's value of them reaches a client. A gateway that uses forward-auth must
// remove them from answers itself.
func OfAnswers() []string {
	return []string{Decision, DecisionID, Reason, Status}
}

// hopByHop are the fields that apply to one connection only (RFC 9110 section 7.6.1).
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Http2-Settings": true,
}

// framingFields are fields that determine how a message is read or who sent it. Connection may not
// name them. Odd spellings of them are dropped, because a CGI gateway reads Content_Length as
// Content-Length.
var framingFields = map[string]bool{
	"Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Authorization": true,
	"Cookie": true, "Range": true, "Accept-Encoding": true, "Expect": true, "Origin": true, "Referer": true,
}

// IsHopByHop reports whether the field of a canonical name applies to one connection only.
func IsHopByHop(name string) bool { return hopByHop[name] }

// IsFraming reports whether the field of a canonical name determines how a message is read or who
// sent it.
func IsFraming(name string) bool { return framingFields[name] }

// IsReserved reports whether only the bouncer may set the field of a canonical name.
func (n Names) IsReserved(name string) bool {
	if name == n.User || name == n.Email || name == n.Groups || name == n.Token || reservedNames[name] {
		return true
	}
	if len(name) < 9 || name[0] != 'X' {
		return false
	}
	return slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Fold returns the canonical name that a lenient receiver could read name as: every byte other than
// a letter, digit or hyphen becomes a hyphen. odd is true if name was not plain.
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

// IsPlainByte reports whether c is a letter, a digit or a hyphen.
func IsPlainByte(c byte) bool {
	return c == '-' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// forwards reports whether the client's field may go to the application unchanged.
func (n Names) forwards(name string, named []string) bool {
	folded, odd := Fold(name)
	if n.IsReserved(folded) || hopByHop[folded] {
		return false
	}
	// MCP's fields were checked in their plain spelling only, and that one holds our own session
	// id.
	if odd && (framingFields[folded] || strings.HasPrefix(folded, "Mcp-")) {
		return false
	}
	return !slices.Contains(named, folded)
}

// ConnectionNames returns the canonical names of the fields that Connection asks to drop. ok is
// false if one of them is reserved or a framing field: that is an attack on what the application
// sees (CVE-2024-45410).
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

// WantsTrailers reports whether the client accepts trailers, which gRPC needs.
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

// Field is a header field to set.
type Field struct{ Name, Value string }

// Outgoing is the header for the application: the client's fields that may pass, which are not
// copied, and ours.
type Outgoing struct {
	Names     Names
	Client    http.Header
	Named     []string // fields that the client's Connection drops
	Ours      []Field
	Unencoded bool   // the bouncer reads the answer: ask for no encoding
	Token     string // the header of the token, if the token is forwarded
	Masked    bool   // the bouncer rewrites the answer: ask for no encoding, no range, and send no validators
}

// Apply drops and sets fields. It also drops ours: a rule that strips an identity header strips the
// one that the bouncer sets.
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

// maskDrops are the request fields that could cause an answer which cannot be masked: a part of it,
// an encoded one, or a 304 for an older copy that was not masked.
var maskDrops = map[string]bool{
	"Accept-Encoding": true, "Range": true, "If-Range": true, "If-None-Match": true, "If-Modified-Since": true, "A-Im": true, "Want-Digest": true,
}

// passes reports whether a name is the header of a token that is to be forwarded.
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
				if v = withoutSession(v); v == "" {
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

// Map returns the fields of Each as a map, for the standard transport.
func (o *Outgoing) Map() http.Header {
	h := make(http.Header, len(o.Client)+len(o.Ours)+1)
	o.Each(func(name, value string) { h[name] = append(h[name], value) })
	if _, set := h["User-Agent"]; !set {
		h["User-Agent"] = nil // the client sent none: the transport must not add its own
	}
	return h
}

// IsBouncers reports whether only the bouncer sets this field of an answer. An application must not
// speak for the bouncer. name is canonical.
func IsBouncers(name string) bool {
	if len(name) < len(Decision) || name[0] != 'X' {
		return false
	}
	folded, _ := Fold(name)
	return folded == Decision || strings.HasPrefix(folded, Decision+"-") || strings.HasPrefix(folded, "X-Gatehouse-")
}

// CopyAnswer copies the end-to-end fields of an answer to dst, except those that only the bouncer
// sets.
func CopyAnswer(dst, src http.Header) {
	var named []string
	for _, v := range src["Connection"] {
		for part := range strings.SplitSeq(v, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(part)))
		}
	}
	for name, values := range src {
		if hopByHop[name] || IsBouncers(name) || slices.Contains(named, name) {
			continue
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

// IsSafe reports whether s may be a header value, because it has no control characters.
func IsSafe(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// Changes are the changes to a request's header: the client's fields to drop, and the fields to
// set.
type Changes struct {
	Drop []string
	Set  []Field
}
