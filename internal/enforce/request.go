package enforce

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// maxQueryParams is how many query parameters a request may have: beyond about
// that number parsers begin to disagree on what they see.
const maxQueryParams = 10_000

// refusal is an answer of our own in place of the application's.
type refusal struct {
	status        int
	code, message string
}

func badRequest(message string) *refusal {
	return &refusal{http.StatusBadRequest, "bad_request", message}
}

// inbound is a request after it was checked: what is decided on, and, byte for
// byte, what is forwarded.
type inbound struct {
	session  string // key of the MCP session that it is in; empty: in none
	at       time.Time
	peer     netip.Addr
	trusted  bool // the peer is a named proxy
	client   string
	method   string
	host     string // lower case, as decided on
	path     string // canonical: what is forwarded
	decided  string // what the controls see of it; empty before it is looked up
	place    rego.Place
	query    string // raw, as forwarded
	params   value.Value
	headers  http.Header
	named    []string // fields that Connection drops
	id       string   // X-Request-ID
	upgrade  bool     // a WebSocket handshake
	trailers bool
	secure   bool
	seen     *inspection   // nil: the controls want to see nothing beside the head
	resource int64         // the resource that the gateway's route names; 0: by host and path
	patience time.Duration // how long who asks waits for the decision; 0: as long as it takes
	gateway  value.Value   // input.gateway: what Envoy tells of its route
	retry    time.Duration // after which a request that is out of its budget may come again
	metadata string        // address of what says who issues tokens; a 401 names it
}

// locator is the part of the question that finds the resource.
func (in *inbound) locator() *rego.Request {
	return &rego.Request{ResourceID: in.resource, Host: in.host, Path: in.path, Method: in.method}
}

// placed is where the set finds the request; it is looked up once.
func (in *inbound) placed(set *rego.Set) *rego.Place {
	if by := in.locator(); !in.place.Of(set, by) {
		in.place = set.Find(by)
	}
	return &in.place
}

// deadline is the deadline of the request's decision.
func (in *inbound) deadline(most time.Duration) time.Duration {
	if in.patience > 0 {
		return min(in.patience, most)
	}
	return most
}

// arrive is the part of a request's check that is done for our own endpoints
// too: who is at the other end, and which path, canonical, is asked for.
func (b *Bouncer) arrive(r *http.Request, st *settings.Settings) (in inbound, no *refusal) {
	in = inbound{at: b.cfg.Now(), method: r.Method, headers: r.Header, secure: r.TLS != nil || wire.IsSecure(r.Context())}
	in.id = b.requestID(r.Header, in.at)
	in.peer = identity.PeerOf(r)
	in.trusted = st.Trusted.Trusts(in.peer)
	in.client = st.Trusted.ClientOf(in.peer, r.Header).String()
	raw, query, ok := splitTarget(r.RequestURI)
	if !ok {
		return in, badRequest("the request target must be a path, with a query, of the characters that RFC 3986 allows; percent-encode the others")
	}
	if in.path, ok = canonicalPath(raw, st.KeepSlash); !ok {
		return in, badRequest("the path is ambiguous: encoded slashes, backslashes, control bytes, dot segments with parameters and bad UTF-8 are refused")
	}
	in.query = query
	return in, nil
}

// admit is the rest: what is left of the request after it is what is decided
// on and forwarded.
func (b *Bouncer) admit(in *inbound, r *http.Request, st *settings.Settings) *refusal {
	if no := allowedMethod(r.Method); no != nil {
		return no
	}
	var ok bool
	if in.host, ok = canonicalHost(r.Host); !ok || !wire.Consistent(r) {
		return badRequest("the host name is malformed, or host, path and length contradict one another")
	}
	if in.params, ok = readQuery(in.query); !ok {
		return badRequest("the query is ambiguous: `;`, bad escapes, bad UTF-8 and more than 10000 parameters are refused")
	}
	if in.named, ok = st.Names.ConnectionNames(r.Header); !ok {
		return badRequest("Connection names a field that a client may not remove")
	}
	in.upgrade = wantsWebSocket(r)
	in.trailers = header.WantsTrailers(r.Header)
	return nil
}

func allowedMethod(m string) *refusal {
	switch m {
	case "": // a gateway that does not say
		return badRequest("the method is missing")
	case "TRACE", "TRACK", "CONNECT", "PRI":
		return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "this method does not pass"}
	}
	for i := 0; i < len(m); i++ {
		// Methods are case-sensitive, but not every application knows: `delete`
		// must not slip past a control on DELETE.
		if m[i] >= 'a' && m[i] <= 'z' {
			return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", "methods are written in upper case"}
		}
		if !header.IsPlainByte(m[i]) && m[i] != '_' {
			return badRequest("the method is malformed")
		}
	}
	return nil
}

// splitTarget takes origin-form, and absolute-form as HTTP/1.1 requires
// (RFC 9112 section 3.2.2); the authority of the latter is r.Host already.
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

// targetBytes are the bytes of a request target: those that RFC 3986 knows, but for
// the fragment's `#`. HTTP/2 frames carry any others just as well, and HTTP/1.1 would
// read them as the end of the target.
var targetBytes = func() (t [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/?[]@!$&'()*+,;=%") {
		t[c] = true
	}
	return t
}()

// canonicalPath is the one form of a path, in the bytes that go upstream.
func canonicalPath(raw string, keepSlash bool) (string, bool) {
	p, err := rego.NormalizePath(raw)
	if err != nil {
		return "", false
	}
	// Encoding can make a path longer than a path may be; the decision would refuse it.
	if again, err := rego.NormalizePath(p); err != nil || again != p {
		return "", false
	}
	if keepSlash && len(p) > 1 && strings.HasSuffix(raw, "/") && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p, true
}

// canonicalHost is the host in lower case, without a final dot, and an IPv6 literal
// in its one form; an absent host (HTTP/1.0) is empty. What an application may read
// in another way than the controls' hosts are matched in is refused: a second or
// odd port, empty labels, brackets around anything else.
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

// canonicalLiteral is the same of an IPv6 address in brackets.
func canonicalLiteral(h string) (string, bool) {
	inner, rest, closed := strings.Cut(h[1:], "]")
	addr, err := netip.ParseAddr(inner)
	if !closed || err != nil || !addr.Is6() || addr.Zone() != "" || rest != "" && (rest[0] != ':' || !isPort(rest[1:])) {
		return "", false
	}
	return "[" + addr.String() + "]" + rest, true
}

// isPort reports a port as everybody writes it: 1 to 65535, without a zero before it.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// readQuery makes input.request.query: an object from name to the list of its
// values, in the order sent. What cannot be read in one way alone is refused.
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

// wantsWebSocket reports a WebSocket handshake. Other upgrades do not pass, and
// h2c least of all: it would open a tunnel in which nothing is decided.
func wantsWebSocket(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.Method != http.MethodGet || len(r.Header["Upgrade"]) != 1 || !strings.EqualFold(r.Header["Upgrade"][0], "websocket") {
		return false
	}
	for _, v := range r.Header["Connection"] {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), "upgrade") {
				return true
			}
		}
	}
	return false
}

// requestID is the caller's id when it is a sane one, else a new one.
func (b *Bouncer) requestID(h http.Header, at time.Time) string {
	if v := h[header.RequestID]; len(v) == 1 && saneID(v[0]) {
		return v[0]
	}
	return b.ids.Next(at)
}

func saneID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; !header.IsPlainByte(c) && c != '_' && c != '.' && c != ':' {
			return false
		}
	}
	return true
}

// actionName folds methods into the three names that controls use: read (GET,
// HEAD, OPTIONS), write (POST, PUT, PATCH), delete (DELETE); any other method
// is its own name in lower case.
func actionName(method string) string {
	switch method {
	case "GET", "HEAD", "OPTIONS":
		return "read"
	case "POST", "PUT", "PATCH":
		return "write"
	}
	return strings.ToLower(method)
}

// question is the decision request of an inbound request, whose path was looked up: input.user, .action
// {name, method}, .resource {path, host}, .context {ip_address, timestamp,
// request_id} and .request {method, path, host, query, headers}; where a control
// asks for them, .llm and .usage; and .gateway {principal, sni, extensions} from
// Envoy.
func question(in *inbound, st *settings.Settings, who *identity.Caller) rego.Request {
	user := who.Doc
	if !user.Defined() {
		user = emptyObject
	}
	path, host, method := value.String(cmp.Or(in.decided, in.path)), value.String(in.host), value.String(in.method)
	query := in.params
	if !query.Defined() {
		query = emptyObject
	}
	headers := emptyObject
	if shown := st.ShownHeaders(in.headers); len(shown) > 0 {
		members := make([]value.Member, 0, len(shown))
		for _, name := range st.ShowHeaders {
			low := strings.ToLower(name)
			if v, ok := shown[low]; ok && utf8.ValidString(v) {
				members = append(members, value.Member{Key: low, Value: value.String(v)})
				delete(shown, low)
			}
		}
		headers = value.Object(members...)
	}
	members := append([]value.Member{{Key: "request", Value: value.Object(
		value.Member{Key: "method", Value: method}, value.Member{Key: "path", Value: path}, value.Member{Key: "host", Value: host},
		value.Member{Key: "query", Value: query}, value.Member{Key: "headers", Value: headers})}}, in.seen.extra()...)
	if in.gateway.Defined() {
		members = append(members, value.Member{Key: "gateway", Value: in.gateway})
	}
	return rego.Request{
		User:     user,
		Action:   value.Object(value.Member{Key: "name", Value: value.String(actionName(in.method))}, value.Member{Key: "method", Value: method}),
		Resource: value.Object(value.Member{Key: "path", Value: path}, value.Member{Key: "host", Value: host}),
		Context: value.Object(
			value.Member{Key: "ip_address", Value: value.String(in.client)},
			value.Member{Key: "timestamp", Value: value.String(in.at.UTC().Format(time.RFC3339Nano))},
			value.Member{Key: "request_id", Value: value.String(in.id)}),
		Extra: value.Object(members...),
		Host:  in.host, Path: in.path, Method: in.method, ResourceID: in.resource,
	}
}

var emptyObject = value.Object()

// credit works out what the application gets in place of the caller's credentials.
func credit(st *settings.State, in *inbound, res *rego.Resource, who *identity.Caller) header.Changes {
	if res == nil && st.Set != nil && st.HasResourceCredentials() {
		res = st.Set.Match(in.locator())
	}
	return st.Credit(in.headers, res, who)
}

// scheme is how the client reached us, or the trusted proxy in front of us.
func (b *Bouncer) scheme(in *inbound) string {
	if p := in.headers["X-Forwarded-Proto"]; in.trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		return p[0]
	}
	if in.secure {
		return "https"
	}
	return "http"
}
