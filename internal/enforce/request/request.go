// Package request reads what a client sends: the head in one canonical form, and the body
// where a control asks for it. The bouncer forwards exactly the bytes that were read.
// Input that two parsers could read differently is refused.
package request

import (
	"cmp"
	"errors"
	"io"
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
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Reader reads requests as they arrive. Make it with NewReader.
type Reader struct {
	now    func() time.Time
	ids    *ids.Source
	bodies *bodies.Store
	log    *slog.Logger
}

// OwnPrefix is the prefix of the paths that the bouncer answers itself.
const OwnPrefix = "/_bouncer/"

// NewReader returns a reader that keeps large bodies in store.
func NewReader(store *bodies.Store, source *ids.Source, logger *slog.Logger, now func() time.Time) *Reader {
	return &Reader{now: now, ids: source, bodies: store, log: logger}
}

// Refusal is an answer in place of the application's.
type Refusal struct {
	Status        int
	Code, Message string
	// Access is what may be requested after a denial, as JSON; empty: nothing.
	Access string
}

// Refuse makes a refusal with a status, an error code and a message for the client.
func Refuse(status int, code, message string) *Refusal {
	return &Refusal{Status: status, Code: code, Message: message}
}

// BadRequest refuses a request that is malformed or ambiguous.
func BadRequest(message string) *Refusal {
	return Refuse(http.StatusBadRequest, "bad_request", message)
}

// Inbound is a checked request: what is decided on, and exactly what is forwarded.
type Inbound struct {
	Session         string // key of its MCP session; empty: none
	At              time.Time
	Peer            netip.Addr
	PeerName        string // Peer as text; empty if a gateway asks
	Trusted         bool   // the peer is a trusted proxy
	Client          string
	Method          string
	Host            string // in lower case
	Path            string // canonical, as forwarded
	Decided         string // the path that the controls see; empty before the lookup
	Place           rego.Place
	Query           string // as sent
	params          value.Value
	Headers         http.Header
	ConnectionNames []string // fields that Connection removes
	ID              string   // X-Request-ID
	Upgrade         bool     // a WebSocket handshake
	Trailers        bool
	Secure          bool
	Seen            *Inspection   // nil: the controls read only the head
	Resource        int64         // the resource that the gateway's route names; 0: found by host and path
	MaxWait         time.Duration // how long the gateway waits for the decision; 0: no limit
	Gateway         value.Value   // input.gateway: what Envoy says about its route
	RetryAfter      time.Duration // when a request beyond its budget may be sent again
	MetadataURL     string        // where the token issuer is published; sent with a 401
}

// Locator returns the part of the decision request that finds the resource.
func (in *Inbound) Locator() *rego.Request {
	return &rego.Request{ResourceID: in.Resource, Host: in.Host, Path: in.Path, Method: in.Method}
}

// FindPlace returns the resources that the set finds for the request. It looks them up only once.
func (in *Inbound) FindPlace(set *rego.Set) *rego.Place {
	if by := in.Locator(); !in.Place.IsFor(set, by) {
		in.Place = set.Find(by)
	}
	return &in.Place
}

// Deadline returns how long the decision may take.
func (in *Inbound) Deadline(most time.Duration) time.Duration {
	if in.MaxWait > 0 {
		return min(in.MaxWait, most)
	}
	return most
}

// Parse makes the checks that every request needs, including those to the bouncer's own endpoints:
// who sent it, and its canonical path.
func (rd *Reader) Parse(r *http.Request, st *settings.Settings) (in Inbound, refusal *Refusal) {
	from := wire.ClientOf(r)
	in = Inbound{At: rd.now(), Method: r.Method, Headers: r.Header, Peer: from.Peer, PeerName: from.Name, Secure: from.Secure}
	in.ID = rd.RequestID(r.Header, in.At)
	in.Trusted = st.Trusted.Trusts(in.Peer)
	in.Client = in.PeerName
	if in.Trusted {
		in.Client = st.Trusted.ClientOf(in.Peer, r.Header).String()
	}
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

// Validate checks the other parts of a request that is to be decided on and forwarded.
func (in *Inbound) Validate(r *http.Request, st *settings.Settings) *Refusal {
	if refusal := allowedMethod(r.Method); refusal != nil {
		return refusal
	}
	var ok bool
	if in.Host, ok = canonicalHost(r.Host); !ok || !framing.Consistent(r.ProtoMajor, r.Host, r.RequestURI, r.Header, r.ContentLength) {
		return BadRequest("the host name is malformed, or host, path and length contradict one another")
	}
	if !isBodyEmpty(r) {
		return BadRequest("the request has a body, although its Content-Length is 0")
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

// isBodyEmpty reports whether a body of length 0 is empty. Only HTTP/2 leaves this open: the
// head may arrive before the end of the stream (RFC 9113, section 8.1.1). The application
// gets no body of such a request and could answer before a wrong one arrives, so the
// bouncer waits for the end. The read deadline of bodies.SetDeadline applies.
func isBodyEmpty(r *http.Request) bool {
	if r.ContentLength != 0 || r.Body == nil || r.Body == http.NoBody {
		return true
	}
	var one [1]byte
	n, err := io.ReadFull(r.Body, one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// wantsWebSocket reports whether the request is a WebSocket handshake. Other upgrades do
// not pass. h2c in particular would open a tunnel without decisions.
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

// RequestID returns the client's request id if it is sane, and otherwise a new one.
func (rd *Reader) RequestID(h http.Header, at time.Time) string {
	if v := h[header.RequestID]; len(v) == 1 && IsValidID(v[0]) {
		return v[0]
	}
	return rd.ids.Next(at)
}

// IsValidID reports whether a request id is short and of plain characters, so that it can be
// logged and forwarded.
func IsValidID(s string) bool {
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

// ActionName maps a method to the name that controls use: read (GET, HEAD, OPTIONS),
// write (POST, PUT, PATCH) or delete (DELETE). Any other method is its own name in lower
// case.
func ActionName(method string) string {
	switch method {
	case "GET", "HEAD", "OPTIONS":
		return "read"
	case "POST", "PUT", "PATCH":
		return "write"
	}
	return strings.ToLower(method)
}

// DecisionRequest returns the decision request: input.user, .action {name, method}, .resource {path,
// host}, .context {ip_address, timestamp, request_id} and, with head, .request {method, path, host,
// query, headers}. Controls that ask for them also get .llm and .usage, and requests from Envoy
// .gateway {principal, sni, extensions}. The path must have been looked up.
func (in *Inbound) DecisionRequest(st *settings.Settings, who *identity.Caller, head bool) rego.Request {
	user := who.Doc
	if !user.Defined() {
		user = emptyObject
	}
	path, host, method := value.String(cmp.Or(in.Decided, in.Path)), value.String(in.Host), value.String(in.Method)
	var room [4]value.Member // keeps the list off the heap: the object copies it
	members := room[:0]
	if head {
		members = append(members, value.Member{Key: "request", Value: in.head(st, method, path, host)})
	}
	members = append(members, in.Seen.members()...)
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

// WithHead returns q, a decision request, with input.request added if it is missing.
func (in *Inbound) WithHead(st *settings.Settings, q rego.Request) rego.Request {
	if q.Extra.Get("request").Defined() {
		return q
	}
	var room [4]value.Member // as in DecisionRequest
	members := append(room[:0], value.Member{Key: "request", Value: in.head(st, value.String(in.Method), q.Resource.Get("path"), value.String(in.Host))})
	q.Extra.Each(func(name string, v value.Value) bool {
		members = append(members, value.Member{Key: name, Value: v})
		return true
	})
	q.Extra = value.Object(members...)
	return q
}

// head returns input.request. No other part takes as long to make, and few controls read it.
func (in *Inbound) head(st *settings.Settings, method, path, host value.Value) value.Value {
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
	return value.Object(
		value.Member{Key: "method", Value: method}, value.Member{Key: "path", Value: path}, value.Member{Key: "host", Value: host},
		value.Member{Key: "query", Value: query}, value.Member{Key: "headers", Value: headers})
}

var emptyObject = value.Object()

// HeaderChanges returns the changes of the header that replace the caller's credentials.
func (in *Inbound) HeaderChanges(st *settings.State, res *target.Resource, who *identity.Caller) header.Changes {
	if res == nil && st.Set != nil && st.HasResourceCredentials() {
		res = st.Set.Match(in.Locator())
	}
	return st.HeaderChanges(in.Headers, res, who)
}

// Scheme returns the scheme that the client used, as seen by the bouncer or by a trusted proxy.
func (in *Inbound) Scheme() string {
	if p := in.Headers["X-Forwarded-Proto"]; in.Trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		return p[0]
	}
	if in.Secure {
		return "https"
	}
	return "http"
}
