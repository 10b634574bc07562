package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Bounds on one socket, and on all.
const (
	socketFrame   = 1 << 20          // a message; more closes with 1009
	socketRate    = 50               // messages a second; more closes with 1008
	socketQueue   = 32               // messages that wait for their turn; more closes with 1008
	socketCheck   = 2 * time.Second  // how often the credential is looked at again
	socketPing    = 30 * time.Second // how often a silent peer is asked whether it is there
	socketPatient = 10 * time.Minute // how long a deployment is watched
	socketsEach   = 10               // open at a time, of one person or key
	socketsAll    = 2000             // open at a time, of all
)

// SocketMessage is a message of the editors' WebSocket, either way.
type SocketMessage struct {
	Type string         `json:"type" enum:"ping,validate,deployment_status,pong,validation_result,error" doc:"ping, validate and deployment_status are sent by the client, the others by the server; deployment_status also answers"`
	Data map[string]any `json:"data,omitempty" doc:"validate: policy_content; deployment_status: deployment_id"`
}

type socketIn struct {
	UserID     string `path:"user_id" maxLength:"200" doc:"Id of the caller: the person's or the key's own"`
	Origin     string `header:"Origin" maxLength:"300" doc:"Of a browser: must be this server's own"`
	Upgrade    string `header:"Upgrade" maxLength:"100" doc:"websocket"`
	Connection string `header:"Connection" maxLength:"100" doc:"Upgrade"`
}

// sockets are the open ones, so that they are counted and can be ended.
type sockets struct {
	mu     sync.Mutex
	open   map[*socket]string // owner
	ended  bool
	served sync.WaitGroup
}

// socket is one editor's connection.
type socket struct {
	s     *Server
	conn  *websocket.Conn
	sc    scope.Scope
	queue chan SocketMessage
	watch chan struct{} // slots for deployments that are watched
	tasks sync.WaitGroup
}

// ideSocket registers the editors' WebSocket.
func (s *Server) ideSocket(r *Router) {
	Raw(r, Op{
		ID: "editor-socket", Method: http.MethodGet, Path: "/ide-integration/ws/{user_id}", Permission: "editor:read", Tags: []string{"Editor integration"}, Slow: true,
		Errors:      []int{http.StatusForbidden},
		Summary:     "Open an editor's WebSocket",
		Description: "Messages are {type, data}. ping is answered by pong, validate {policy_content} by validation_result, deployment_status {deployment_id} by deployment_status, once more when a deployment that was in progress ends; what cannot be answered by error. The credential goes into the same headers as everywhere, and the path names its owner: another's is 403, and so is a browser's page of another origin. A message over 1 MiB closes with 1009; over 50 messages a second, and a credential or tenant that is no longer good (within 5 s), with 1008.",
	},
		RawDocs{Params: reflect.TypeFor[socketIn](), Response: reflect.TypeFor[SocketMessage]()}, s.serveSocket)
}

func (s *Server) serveSocket(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	x, ok := w.(*exchange)
	if !ok {
		Fail(w, errors.New("api: not an exchange of ours"))
		return
	}
	credential, err := x.r.shown(x, req)
	if err == nil {
		err = s.maySocket(req, sc)
	}
	if err != nil {
		Fail(w, err)
		return
	}
	k := &socket{s: s, sc: sc, queue: make(chan SocketMessage, socketQueue), watch: make(chan struct{}, 4)}
	if err := s.sockets.add(k); err != nil {
		Fail(w, err)
		return
	}
	defer s.sockets.remove(k)
	x.status = http.StatusSwitchingProtocols                                                                                                  // from here on the connection is the socket's
	conn, err := websocket.Accept(w, req, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled}) // maySocket has checked the origin
	if err != nil {
		s.Log.Debug("websocket", "request_id", x.id, "error", err)
		return
	}
	k.serve(conn, credential)
}

// maySocket refuses what is no upgrade, another's path and another's page.
func (s *Server) maySocket(req *http.Request, sc scope.Scope) error {
	if !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") || req.Header.Get("Sec-WebSocket-Key") == "" {
		return badRequest("upgrade_required", "this path speaks WebSocket only")
	}
	if req.PathValue("user_id") != sc.Actor.ID {
		return fault.New(fault.Forbidden, "not_own_user", "the path must name the caller's own id")
	}
	for _, origin := range req.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, req.Host) && !strings.EqualFold(origin, s.IDE.PublicURL) {
			return fault.New(fault.Forbidden, "origin_denied", "a page of another origin may not open this")
		}
	}
	return nil
}

func (l *sockets) add(k *socket) error {
	owner := string(k.sc.Tenant) + "/" + k.sc.Actor.ID
	l.mu.Lock()
	defer l.mu.Unlock()
	each := 0
	for _, o := range l.open {
		if o == owner {
			each++
		}
	}
	if l.ended || each >= socketsEach || len(l.open) >= socketsAll {
		return fault.New(fault.RateLimited, "too_many_sockets", "too many sockets are open").After(5 * time.Second)
	}
	if l.open == nil {
		l.open = map[*socket]string{}
	}
	l.open[k] = owner
	l.served.Add(1)
	return nil
}

func (l *sockets) remove(k *socket) {
	l.mu.Lock()
	delete(l.open, k)
	l.mu.Unlock()
	l.served.Done()
}

// CloseSockets ends all editors' sockets and waits for them: a shutdown does not
// see connections that were taken over.
func (s *Server) CloseSockets() {
	s.sockets.mu.Lock()
	s.sockets.ended = true
	for k := range s.sockets.open {
		if k.conn != nil {
			late := time.AfterFunc(time.Second, func() { _ = k.conn.CloseNow() })
			defer late.Stop()
			go func() { _ = k.conn.Close(websocket.StatusGoingAway, "the server ends") }()
		}
	}
	s.sockets.mu.Unlock()
	s.sockets.served.Wait()
}

// serve reads messages until the socket ends, for whatever reason.
func (k *socket) serve(conn *websocket.Conn, credential Credential) {
	k.s.sockets.mu.Lock()
	k.conn = conn
	ended := k.s.sockets.ended
	k.s.sockets.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	defer k.tasks.Wait()
	defer stop()
	defer func() { _ = conn.CloseNow() }()
	if ended {
		return
	}
	conn.SetReadLimit(socketFrame)
	k.tasks.Go(func() { k.guard(ctx, credential) })
	k.tasks.Go(func() { k.answer(ctx) })
	var window time.Time
	count := 0
	for {
		kind, body, err := conn.Read(ctx)
		if err != nil {
			return // closed, by either side; with 1009 where it was too large
		}
		if kind != websocket.MessageText {
			_ = conn.Close(websocket.StatusUnsupportedData, "messages are text")
			return
		}
		if now := k.s.Now(); now.Sub(window) > time.Second {
			window, count = now, 0
		}
		m, err := socketMessage(body)
		if err != nil {
			m = SocketMessage{Type: "", Data: map[string]any{"message": fault.Message(err)}}
		}
		if count++; count > socketRate || !k.enqueue(m) {
			_ = conn.Close(websocket.StatusPolicyViolation, "too many messages")
			return
		}
	}
}

func (k *socket) enqueue(m SocketMessage) bool {
	select {
	case k.queue <- m:
		return true
	default:
		return false
	}
}

// socketMessage reads one message strictly.
func socketMessage(body []byte) (SocketMessage, error) {
	if _, err := value.Decode(body, value.Limits{Depth: maxDepth}); err != nil {
		return SocketMessage{}, badRequest("invalid_json", "the message is not JSON as we take it")
	}
	var m SocketMessage
	if err := json.Unmarshal(body, &m); err != nil || m.Type == "" {
		return SocketMessage{}, badRequest("invalid_message", "a message is {type, data}")
	}
	return m, nil
}

// guard ends the socket within seconds once its credential, its owner's
// permission or its tenant is no longer good (contract section 2), and once its
// peer is silent.
func (k *socket) guard(ctx context.Context, credential Credential) {
	check, ping := time.NewTicker(socketCheck), time.NewTicker(socketPing)
	defer check.Stop()
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			sc, _, err := k.s.Authenticate(ctx, credential)
			if err == nil {
				err = sc.Require("editor:read")
			}
			if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) || fault.Is(err, fault.NotFound) {
				_ = k.conn.Close(websocket.StatusPolicyViolation, "the credential is no longer good")
				return
			}
		case <-ping.C:
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := k.conn.Ping(short)
			cancel()
			if err != nil {
				_ = k.conn.CloseNow()
				return
			}
		}
	}
}

// answer deals with messages in the order in which they came.
func (k *socket) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-k.queue:
			k.send(ctx, k.reply(ctx, m))
		}
	}
}

func (k *socket) reply(ctx context.Context, m SocketMessage) any {
	switch m.Type {
	case "ping":
		return socketAnswer{"pong", map[string]any{}}
	case "validate":
		source, ok := m.Data["policy_content"].(string)
		if !ok {
			return socketFault(fault.Invalidf("/data/policy_content", "policy_content is needed, a text"))
		}
		v, err := k.s.IDE.Validate(ctx, k.sc, source)
		if err != nil {
			return socketFault(err)
		}
		return socketAnswer{"validation_result", socketValidation{v.Valid, v.Errors, v.Warnings}}
	case "deployment_status":
		id, ok := m.Data["deployment_id"].(string)
		if !ok {
			return socketFault(fault.Invalidf("/data/deployment_id", "deployment_id is needed, a text"))
		}
		d, err := k.s.IDE.Deployment(ctx, k.sc, id)
		if err != nil {
			return socketFault(err)
		}
		if d.Status == ide.InProgress {
			k.follow(ctx, id)
		}
		return socketAnswer{"deployment_status", d}
	case "":
		return socketAnswer{"error", map[string]any{"message": m.Data["message"], "errors": []any{}}}
	default:
		return socketFault(fault.Invalidf("/type", "a message is ping, validate or deployment_status"))
	}
}

type socketAnswer struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

type socketValidation struct {
	Valid    bool         `json:"valid"`
	Errors   []rego.Issue `json:"errors"`
	Warnings []rego.Issue `json:"warnings"`
}

func socketFault(err error) socketAnswer {
	f := asFault(err)
	return socketAnswer{"error", map[string]any{"message": f.Message, "errors": details(f)}}
}

// follow tells of a deployment once more when it has ended.
func (k *socket) follow(ctx context.Context, id string) {
	select {
	case k.watch <- struct{}{}:
	default:
		return // several are followed already; the client asks again
	}
	k.tasks.Go(func() {
		defer func() { <-k.watch }()
		ctx, cancel := context.WithTimeout(ctx, socketPatient)
		defer cancel()
		if d, err := k.s.IDE.Await(ctx, k.sc, id); err == nil && d.Status != ide.InProgress {
			k.send(ctx, socketAnswer{"deployment_status", d})
		}
	})
}

func (k *socket) send(ctx context.Context, v any) {
	body, err := encode(v)
	if err != nil {
		k.s.Log.Error("websocket message", "error", err)
		return
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = k.conn.Write(short, websocket.MessageText, body) // a peer that has gone ends the reading too
}
