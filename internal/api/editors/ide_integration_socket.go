package editors

import (
	"bufio"
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/origin"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Limits of one socket, and of all.
const (
	socketFrame   = 1 << 20          // a message; more closes with 1009
	socketBytes   = 64 << 20         // of messages being read and waiting, of all sockets; more closes with 1013
	socketRate    = 50               // messages and pings a second; a message more closes with 1008, a ping more is not answered
	socketQueue   = 32               // messages that wait for their turn; more closes with 1008
	socketQueued  = 2 * socketFrame  // bytes of them; more closes with 1008
	socketPatient = 10 * time.Minute // how long a deployment is watched
	socketsEach   = 10               // open at a time, of one person or key
	socketsTenant = 500              // open at a time, of one tenant
	socketsAll    = 2000             // open at a time, of all
)

// socketTimes are the waiting times of a socket.
type socketTimes struct {
	check   time.Duration // interval of the check of the credential
	ping    time.Duration // interval of pings to the peer
	answer  time.Duration // how long the peer may take to answer a ping or to receive a message
	message time.Duration // how long a message may take to arrive
	closing time.Duration // how long the peer may take to confirm the end
}

var ordinaryTimes = socketTimes{check: 500 * time.Millisecond, ping: 30 * time.Second, answer: 10 * time.Second, message: 30 * time.Second, closing: time.Second}

// SocketMessage is a message of the editors' WebSocket, either way.
type SocketMessage struct {
	Type string         `json:"type" enum:"ping,validate,deployment_status,pong,validation_result,error" doc:"The client sends ping, validate and deployment_status; the server sends the others, and answers with deployment_status too"`
	Data map[string]any `json:"data,omitempty" doc:"validate: policy_content; deployment_status: deployment_id"`
}

type socketIn struct {
	UserID     string `path:"user_id" maxLength:"200" doc:"Id of the caller: of the person or of the API key"`
	Origin     string `header:"Origin" maxLength:"300" doc:"Sent by browsers; must be this server's own origin"`
	Upgrade    string `header:"Upgrade" maxLength:"100" doc:"websocket"`
	Connection string `header:"Connection" maxLength:"100" doc:"Upgrade"`
}

// sockets keeps the open sockets, to count and to end them.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]struct{}
	ended  bool
	served sync.WaitGroup
	bytes  atomic.Int64 // of messages, see socketBytes
	// times are the waiting times; nil: ordinaryTimes.
	times *socketTimes
}

// socket registers the editors' WebSocket.
func (h *Handler) socket(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "editor-socket", Method: http.MethodGet, Path: "/ide-integration/ws/{user_id}", Reach: rest.ReachSelf, Permission: "editor:read", Tags: []string{"Editor integration"}, Slow: true,
		Errors:      []int{http.StatusForbidden},
		Summary:     "Open an editor's WebSocket",
		Description: "Messages are {type, data}. The server answers ping with pong, validate {policy_content} with validation_result, and deployment_status {deployment_id} with deployment_status. It sends deployment_status again when a deployment that was in progress ends. It answers everything else with error. The credential goes into the same headers as in other requests. The path names the owner of the credential: another owner is a 403, and so is a browser page of another origin. Close codes: 1009, a message over 1 MiB; 1007, text that is not UTF-8; 1003, a message that is not text; 1008, more than 50 messages a second, or a credential or tenant that is no longer valid (at once on this replica, within 5 s on others; nothing more is answered); 1001, the server stops; 1013, the server has too many messages to read at once. A client that does not answer a ping within 10 s is disconnected. Limits: 10 open sockets for a person or key, 500 for a tenant.",
	},
		rest.RawDocs{Params: reflect.TypeFor[socketIn](), Response: reflect.TypeFor[SocketMessage]()}, h.serveSocket)
}

func (h *Handler) serveSocket(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	credential, err := rest.CredentialOf(w, req)
	if err == nil {
		err = h.maySocket(req, sc)
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	k := newSocket(h, sc, credential)
	if err := h.sockets.add(k); err != nil {
		rest.Fail(w, err)
		return
	}
	defer h.sockets.remove(k)
	rest.TakeOver(w) // the socket owns the connection now
	taken := &taker{ResponseWriter: w}
	conn, err := websocket.Accept(taken, req, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // maySocket has checked the origin
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     func(context.Context, []byte) bool { return k.count() },
	})
	if err != nil {
		h.Log.Debug("websocket", "request_id", sc.RequestID, "error", err)
		return
	}
	k.serve(conn, taken.conn)
}

// taker keeps the connection that a WebSocket takes over, so that it can be closed.
type taker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *taker) Hijack() (conn net.Conn, rw *bufio.ReadWriter, err error) {
	conn, rw, err = http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, rw, err
}

// maySocket refuses a request that is not an upgrade, has another caller's id in its path, or comes
// from a page of another origin.
func (h *Handler) maySocket(req *http.Request, sc scope.Scope) error {
	if !upgrades(req.Header) {
		return rest.BadRequest("upgrade_required", "this path accepts WebSocket connections only, version 13")
	}
	if req.PathValue("user_id") != sc.Actor.ID {
		return fault.New(fault.Forbidden, "not_own_user", "the path must name the caller's own id")
	}
	for _, origin := range req.Header.Values("Origin") {
		if !sameOrigin(origin, req.Host, h.IDE.PublicURL) {
			return fault.New(fault.Forbidden, "origin_denied", "a page of another origin may not open this socket")
		}
	}
	return nil
}

// upgrades reports whether the header asks for a WebSocket (RFC 6455 section 4.2.1).
func upgrades(h http.Header) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(h.Get("Sec-WebSocket-Key")))
	if err != nil || len(key) != 16 || len(h.Values("Sec-WebSocket-Key")) != 1 || h.Get("Sec-WebSocket-Version") != "13" {
		return false
	}
	return listed(h.Values("Connection"), "upgrade") && listed(h.Values("Upgrade"), "websocket")
}

// listed reports whether a header that is a list names token, in any case.
func listed(values []string, token string) bool {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}

// sameOrigin reports whether a browser's page comes from this server: from the host that was
// called, or from the public address. Behind a proxy that ends TLS, the scheme of the call is
// unknown.
func sameOrigin(text, host, public string) bool {
	scheme, from, ok := origin.Parse(text)
	return ok && (strings.EqualFold(from, host) || origin.IsOf(scheme, from, public))
}

func (s *sockets) add(k *socket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	each, tenant := 0, 0
	for o := range s.open {
		if o.sc.Tenant == k.sc.Tenant {
			tenant++
			if o.sc.Actor.Kind == k.sc.Actor.Kind && o.sc.Actor.ID == k.sc.Actor.ID {
				each++
			}
		}
	}
	if s.ended || each >= socketsEach || tenant >= socketsTenant || len(s.open) >= socketsAll {
		return fault.New(fault.RateLimited, "too_many_sockets", "too many sockets are open").After(5 * time.Second)
	}
	if s.open == nil {
		s.open = map[*socket]struct{}{}
	}
	s.open[k] = struct{}{}
	s.served.Add(1)
	return nil
}

func (s *sockets) remove(k *socket) {
	s.mu.Lock()
	delete(s.open, k)
	s.mu.Unlock()
	s.served.Done()
}

// began records the connection of a socket. ended is true if the server is stopping.
func (s *sockets) began(k *socket, conn *websocket.Conn, raw net.Conn) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.conn, k.raw = conn, raw
	return s.ended
}

// CloseSockets ends all editors' sockets with 1001 and waits for them, for a few seconds at most. A
// shutdown of the server does not close connections that were taken over.
func (h *Handler) CloseSockets() {
	h.sockets.mu.Lock()
	h.sockets.ended = true
	for k := range h.sockets.open {
		if k.conn != nil {
			go k.end(websocket.StatusGoingAway, "the server is stopping")
		}
	}
	h.sockets.mu.Unlock()
	gone := make(chan struct{})
	go func() { h.sockets.served.Wait(); close(gone) }()
	late := time.NewTimer(3 * time.Second)
	defer late.Stop()
	select {
	case <-gone:
	case <-late.C:
		h.Log.Warn("editors' sockets did not close in time")
	}
}
