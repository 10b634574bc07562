package editors

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// socket is the connection of one editor. One goroutine reads, one answers in the order of the
// messages, one checks the credential and whether the peer is alive.
type socket struct {
	h          *Handler
	sc         scope.Scope // as of the upgrade
	credential rest.Credential
	times      socketTimes
	conn       *websocket.Conn
	raw        net.Conn // the connection below conn
	queue      chan socketIncoming
	queued     atomic.Int64  // bytes in queue
	watch      chan struct{} // slots for deployments that are watched
	tasks      sync.WaitGroup
	ending     sync.Once
	window     time.Time // of counted; only the reader uses both
	counted    int
}

// socketIncoming is a queued message, without the members that nobody reads.
type socketIncoming struct {
	kind  string
	data  string // the member that the kind needs
	given bool   // whether it was present, as a text
	bad   error  // why the message is invalid
	size  int64
}

func newSocket(h *Handler, sc scope.Scope, credential rest.Credential) *socket {
	k := &socket{h: h, sc: sc, credential: credential, times: ordinaryTimes, queue: make(chan socketIncoming, socketQueue), watch: make(chan struct{}, 4)}
	if h.sockets.times != nil {
		k.times = *h.sockets.times
	}
	return k
}

// serve reads messages until the socket ends.
func (s *socket) serve(conn *websocket.Conn, raw net.Conn) {
	ctx, stop := context.WithCancel(context.Background())
	defer s.release()
	defer s.tasks.Wait()
	defer stop()
	defer func() { _ = raw.Close(); _ = conn.CloseNow() }()
	if s.h.sockets.began(s, conn, raw) {
		s.end(websocket.StatusGoingAway, "the server is stopping")
		return
	}
	conn.SetReadLimit(socketFrame)
	s.tasks.Go(func() { s.guard(ctx) })
	s.tasks.Go(func() { s.answer(ctx) })
	for {
		kind, body, err := s.read(ctx)
		size := int64(len(body))
		switch {
		case errors.Is(err, errSocketsFull):
			s.end(websocket.StatusTryAgainLater, "the server has too many messages to read")
		case err != nil:
			s.linger(err) // closed, by either side; with 1009 where it was too large
		case kind != websocket.MessageText:
			s.end(websocket.StatusUnsupportedData, "messages must be text")
		case !utf8.Valid(body):
			s.end(websocket.StatusInvalidFramePayloadData, "messages must be UTF-8")
		case !s.count() || !s.enqueue(socketMessage(body)):
			s.end(websocket.StatusPolicyViolation, "too many messages")
		default:
			continue
		}
		s.h.sockets.bytes.Add(-size)
		return
	}
}

// release frees the room of the messages that are still queued.
func (s *socket) release() {
	for {
		select {
		case m := <-s.queue:
			s.done(m)
		default:
			return
		}
	}
}

// end closes with a code, once, and closes the connection if the peer does not confirm in time.
func (s *socket) end(code websocket.StatusCode, reason string) {
	s.ending.Do(func() {
		late := time.AfterFunc(s.times.closing, func() { _ = s.raw.Close() })
		defer late.Stop()
		_ = s.conn.Close(code, reason)
	})
}

// linger gives a peer whose frames were refused time to read why. A connection that is closed with
// unread bytes is reset, and the close frame is lost.
func (s *socket) linger(err error) {
	if websocket.CloseStatus(err) != -1 || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	if half, ok := s.raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	late := time.AfterFunc(s.times.closing, func() { _ = s.raw.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(s.raw, 16*socketFrame))
}

var errSocketsFull = errors.New("too much data of sockets is waiting")

// read reads one message, which counts in sockets.bytes from its first byte on. After an error, the
// count is restored.
func (s *socket) read(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, r, err := s.conn.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	late := time.AfterFunc(s.times.message, func() { _ = s.raw.Close() })
	defer late.Stop()
	counted := &countedReader{r: r, all: &s.h.sockets.bytes}
	body, err := io.ReadAll(counted)
	if err != nil {
		counted.all.Add(-counted.n)
		return 0, nil, err
	}
	return kind, body, nil
}

type countedReader struct {
	r   io.Reader
	n   int64
	all *atomic.Int64
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.all.Add(int64(n)) > socketBytes && (err == nil || errors.Is(err, io.EOF)) {
		err = errSocketsFull
	}
	return n, err
}

// count counts a message or ping. It returns false if there were too many.
func (s *socket) count() bool {
	if now := s.h.Now(); now.Sub(s.window) > time.Second || now.Before(s.window) {
		s.window, s.counted = now, 0
	}
	s.counted++
	return s.counted <= socketRate
}

func (s *socket) enqueue(m socketIncoming) bool {
	if s.queued.Load()+m.size > socketQueued {
		return false
	}
	select {
	case s.queue <- m:
		s.queued.Add(m.size)
		return true
	default:
		return false
	}
}

// done frees the room of a message.
func (s *socket) done(m socketIncoming) {
	s.queued.Add(-m.size)
	s.h.sockets.bytes.Add(-m.size)
}

// socketMessage reads one message strictly.
func socketMessage(body []byte) socketIncoming {
	m := socketIncoming{size: int64(len(body))}
	v, err := value.Decode(body, value.Limits{Depth: rest.MaxDepth})
	if err != nil {
		m.bad = rest.BadRequest("invalid_json", "the message is not valid JSON")
		return m
	}
	data := v.Get("data")
	m.kind, _ = v.Get("type").Str()
	if m.kind == "" || data.Defined() && !data.IsNull() && data.Kind() != value.ObjectKind {
		m.bad = rest.BadRequest("invalid_message", "a message must be {type, data}")
		return m
	}
	if member := socketNeeds[m.kind]; member != "" {
		m.data, m.given = data.Get(member).Str()
	}
	return m
}

// socketNeeds is the member of data that a kind of message needs.
var socketNeeds = map[string]string{"validate": "policy_content", "deployment_status": "deployment_id"}

// guard ends the socket when its credential, its owner's permission or its tenant is no longer
// valid, or when its peer is silent.
func (s *socket) guard(ctx context.Context) {
	check, ping := time.NewTicker(s.times.check), time.NewTicker(s.times.ping)
	defer check.Stop()
	defer ping.Stop()
	peer := make(chan error, 1)
	asked := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			if _, ok := s.recheck(ctx, true); !ok {
				return
			}
		case <-ping.C:
			if asked {
				continue
			}
			asked = true
			s.tasks.Go(func() { // meanwhile, the credential is checked
				short, cancel := context.WithTimeout(ctx, s.times.answer)
				defer cancel()
				peer <- s.conn.Ping(short)
			})
		case err := <-peer:
			if asked = false; err != nil {
				_ = s.raw.Close()
				return
			}
		}
	}
}

// recheck authenticates the credential again, and ends the socket if it is refused. idle means that
// no person is active: an open socket does not keep a session from expiring.
func (s *socket) recheck(ctx context.Context, idle bool) (sc scope.Scope, ok bool) {
	c := s.credential
	c.Idle = c.Idle || idle
	sc, err := s.h.Authenticate.Recheck(ctx, c, s.sc, "editor:read")
	if err != nil && ctx.Err() == nil {
		s.end(websocket.StatusPolicyViolation, "the credential is no longer valid")
	}
	return sc, err == nil
}

// answer handles messages in the order of their arrival.
func (s *socket) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.queue:
			ok := s.handleMessage(ctx, m)
			s.done(m)
			if !ok {
				return
			}
		}
	}
}

// recovered must be deferred. After a panic, it ends this socket and not the process.
func (s *socket) recovered() {
	if p := recover(); p != nil {
		s.h.Panics.Count("socket")
		s.h.Log.Error("websocket message", "request_id", s.sc.RequestID, "panic", fault.DescribePanic(p), "stack", string(debug.Stack()))
		s.end(websocket.StatusInternalError, "the server failed")
	}
}

// handleMessage answers one message. It returns false if the socket ends.
func (s *socket) handleMessage(ctx context.Context, m socketIncoming) bool {
	defer s.recovered()
	sc, ok := s.recheck(ctx, m.kind == "ping") // programs send pings without a person
	if !ok {
		return false
	}
	return s.send(ctx, s.reply(ctx, sc, m))
}

func (s *socket) reply(ctx context.Context, sc scope.Scope, m socketIncoming) any {
	if m.bad != nil {
		return socketAnswer{"error", map[string]any{"message": fault.Message(m.bad), "errors": []any{}}}
	}
	if need := socketNeeds[m.kind]; need != "" && !m.given {
		return socketFault(fault.Invalidf("/data/"+need, "%s is required and must be a string", need))
	}
	switch m.kind {
	case "ping":
		return socketAnswer{"pong", map[string]any{}}
	case "validate":
		v, err := s.h.IDE.Validate(ctx, sc, m.data)
		if err != nil {
			return socketFault(err)
		}
		return socketAnswer{"validation_result", socketValidation{v.Valid, v.Errors, v.Warnings}}
	case "deployment_status":
		d, err := s.h.IDE.Deployment(ctx, sc, m.data)
		if err != nil {
			return socketFault(err)
		}
		if d.Status == ide.InProgress {
			s.follow(ctx, sc, m.data)
		}
		return socketAnswer{"deployment_status", d}
	default:
		return socketFault(fault.Invalidf("/type", "a message must be ping, validate or deployment_status"))
	}
}

type socketAnswer struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

type socketValidation struct {
	Valid    bool         `json:"valid"`
	Errors   []lang.Issue `json:"errors"`
	Warnings []lang.Issue `json:"warnings"`
}

func socketFault(err error) socketAnswer {
	f := rest.AsFault(err)
	return socketAnswer{"error", map[string]any{"message": f.Message, "errors": rest.Details(f)}}
}

// follow sends another message about a deployment when it has ended.
func (s *socket) follow(ctx context.Context, sc scope.Scope, id string) {
	select {
	case s.watch <- struct{}{}:
	default:
		return // too many are followed already; the client asks again
	}
	s.tasks.Go(func() {
		defer func() { <-s.watch }()
		defer s.recovered()
		ctx, cancel := context.WithTimeout(ctx, socketPatient)
		defer cancel()
		if d, err := s.h.IDE.Await(ctx, sc, id); err == nil && d.Status != ide.InProgress {
			s.send(ctx, socketAnswer{"deployment_status", d})
		}
	})
}

// send sends an answer, unless the credential has ended meanwhile.
func (s *socket) send(ctx context.Context, v any) bool {
	body, err := rest.Encode(v)
	if err != nil {
		s.h.Log.Error("websocket message", "error", err)
		return true
	}
	if _, ok := s.recheck(ctx, true); !ok {
		return false
	}
	short, cancel := context.WithTimeout(ctx, s.times.answer)
	defer cancel()
	return s.conn.Write(short, websocket.MessageText, body) == nil // if the peer has disconnected, reading ends too
}
