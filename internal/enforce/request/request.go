// Package request reads what a client sends: the head in one canonical form, and, where
// a control asks for it, the body. What it reads is, byte for byte, what is forwarded.
// Input that two parsers could read differently is refused.
package request

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Reader reads requests as they arrive. Make it with newReader.
type Reader struct {
	now    func() time.Time
	ids    *ids.Source
	bodies *bodies.Store
	log    *slog.Logger
}

// OwnPrefix begins the paths that the bouncer answers itself.
const OwnPrefix = "/_bouncer/"

// NewReader is a reader that keeps large bodies in store.
func NewReader(store *bodies.Store, source *ids.Source, logger *slog.Logger, now func() time.Time) *Reader {
	return &Reader{now: now, ids: source, bodies: store, log: logger}
}

// Refusal is an answer of our own in place of the application's.
type Refusal struct {
	Status        int
	Code, Message string
}

// Refuse is a refusal with a status, an error code and a message for the client.
func Refuse(status int, code, message string) *Refusal { return &Refusal{status, code, message} }

// BadRequest refuses a request that is malformed or ambiguous.
func BadRequest(message string) *Refusal {
	return &Refusal{http.StatusBadRequest, "bad_request", message}
}

// Inbound is a request after it was checked: what is decided on, and, byte for
// byte, what is forwarded.
type Inbound struct {
	Session         string // key of the MCP session that it is in; empty: in none
	At              time.Time
	Peer            netip.Addr
	Trusted         bool // the peer is a named proxy
	Client          string
	Method          string
	Host            string // lower case, as decided on
	Path            string // canonical: what is forwarded
	Decided         string // what the controls see of it; empty before it is looked up
	Place           rego.Place
	Query           string // raw, as forwarded
	params          value.Value
	Headers         http.Header
	ConnectionNames []string // fields that Connection drops
	ID              string   // X-Request-ID
	Upgrade         bool     // a WebSocket handshake
	Trailers        bool
	Secure          bool
	Seen            *Inspection   // nil: the controls want to see nothing beside the head
	Resource        int64         // the resource that the gateway's route names; 0: by host and path
	Patience        time.Duration // how long who asks waits for the decision; 0: as long as it takes
	Gateway         value.Value   // input.gateway: what Envoy tells of its route
	RetryAfter      time.Duration // after which a request that is out of its budget may come again
	MetadataURL     string        // address of what says who issues tokens; a 401 names it
}

// Locator is the part of the question that finds the resource.
func (in *Inbound) Locator() *rego.Request {
	return &rego.Request{ResourceID: in.Resource, Host: in.Host, Path: in.Path, Method: in.Method}
}

// Placed is where the set finds the request; it is looked up once.
func (in *Inbound) Placed(set *rego.Set) *rego.Place {
	if by := in.Locator(); !in.Place.Of(set, by) {
		in.Place = set.Find(by)
	}
	return &in.Place
}

// Deadline is the deadline of the request's decision.
func (in *Inbound) Deadline(most time.Duration) time.Duration {
	if in.Patience > 0 {
		return min(in.Patience, most)
	}
	return most
}

// Arrive is the part of a request's check that is done for our own endpoints
// too: who is at the other end, and which path, canonical, is asked for.
func (rd *Reader) Arrive(r *http.Request, st *settings.Settings) (in Inbound, no *Refusal) {
	in = Inbound{At: rd.now(), Method: r.Method, Headers: r.Header, Secure: r.TLS != nil || wire.IsSecure(r.Context())}
	in.ID = rd.RequestID(r.Header, in.At)
	in.Peer = identity.PeerOf(r)
	in.Trusted = st.Trusted.Trusts(in.Peer)
	in.Client = st.Trusted.ClientOf(in.Peer, r.Header).String()
	raw, query, ok := splitTarget(r.RequestURI)
	if !ok {
		return in, BadRequest("the request target must be a path, with a query, of the characters that RFC 3986 allows; percent-encode the others")
	}
	if in.Path, ok = canonicalPath(raw, st.KeepSlash); !ok {
		return in, BadRequest("the path is ambiguous: encoded slashes, backslashes, control bytes, dot segments with parameters and bad UTF-8 are refused")
	}
	in.Query = query
	return in, nil
}

// Admit is the rest: what is left of the request after it is what is decided
// on and forwarded.
func (in *Inbound) Admit(r *http.Request, st *settings.Settings) *Refusal {
	if no := allowedMethod(r.Method); no != nil {
		return no
	}
	var ok bool
	if in.Host, ok = canonicalHost(r.Host); !ok || !wire.Consistent(r) {
		return BadRequest("the host name is malformed, or host, path and length contradict one another")
	}
	if in.params, ok = readQuery(in.Query); !ok {
		return BadRequest("the query is ambiguous: `;`, bad escapes, bad UTF-8 and more than 10000 parameters are refused")
	}
	if in.ConnectionNames, ok = st.Names.ConnectionNames(r.Header); !ok {
		return BadRequest("Connection names a field that a client may not remove")
	}
	in.Upgrade = wantsWebSocket(r)
	in.Trailers = header.WantsTrailers(r.Header)
	return nil
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

// RequestID is the caller's id when it is a sane one, else a new one.
func (rd *Reader) RequestID(h http.Header, at time.Time) string {
	if v := h[header.RequestID]; len(v) == 1 && SaneID(v[0]) {
		return v[0]
	}
	return rd.ids.Next(at)
}

// SaneID reports whether a request id is short and of plain characters, so that it can
// be logged and sent on as it is.
func SaneID(s string) bool {
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

// ActionName folds methods into the three names that controls use: read (GET,
// HEAD, OPTIONS), write (POST, PUT, PATCH), delete (DELETE); any other method
// is its own name in lower case.
func ActionName(method string) string {
	switch method {
	case "GET", "HEAD", "OPTIONS":
		return "read"
	case "POST", "PUT", "PATCH":
		return "write"
	}
	return strings.ToLower(method)
}

// Question is the decision request of an inbound request, whose path was looked up: input.user, .action
// {name, method}, .resource {path, host}, .context {ip_address, timestamp,
// request_id} and .request {method, path, host, query, headers}; where a control
// asks for them, .llm and .usage; and .gateway {principal, sni, extensions} from
// Envoy.
func (in *Inbound) Question(st *settings.Settings, who *identity.Caller) rego.Request {
	user := who.Doc
	if !user.Defined() {
		user = emptyObject
	}
	path, host, method := value.String(cmp.Or(in.Decided, in.Path)), value.String(in.Host), value.String(in.Method)
	query := in.params
	if !query.Defined() {
		query = emptyObject
	}
	headers := emptyObject
	if shown := st.ShownHeaders(in.Headers); len(shown) > 0 {
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
		value.Member{Key: "query", Value: query}, value.Member{Key: "headers", Value: headers})}}, in.Seen.extra()...)
	if in.Gateway.Defined() {
		members = append(members, value.Member{Key: "gateway", Value: in.Gateway})
	}
	return rego.Request{
		User:     user,
		Action:   value.Object(value.Member{Key: "name", Value: value.String(ActionName(in.Method))}, value.Member{Key: "method", Value: method}),
		Resource: value.Object(value.Member{Key: "path", Value: path}, value.Member{Key: "host", Value: host}),
		Context: value.Object(
			value.Member{Key: "ip_address", Value: value.String(in.Client)},
			value.Member{Key: "timestamp", Value: value.String(in.At.UTC().Format(time.RFC3339Nano))},
			value.Member{Key: "request_id", Value: value.String(in.ID)}),
		Extra: value.Object(members...),
		Host:  in.Host, Path: in.Path, Method: in.Method, ResourceID: in.Resource,
	}
}

var emptyObject = value.Object()

// Credit works out what the application gets in place of the caller's credentials.
func (in *Inbound) Credit(st *settings.State, res *rego.Resource, who *identity.Caller) header.Changes {
	if res == nil && st.Set != nil && st.HasResourceCredentials() {
		res = st.Set.Match(in.Locator())
	}
	return st.Credit(in.Headers, res, who)
}

// Scheme is how the client reached us, or the trusted proxy in front of us.
func (in *Inbound) Scheme() string {
	if p := in.Headers["X-Forwarded-Proto"]; in.Trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		return p[0]
	}
	if in.Secure {
		return "https"
	}
	return "http"
}
