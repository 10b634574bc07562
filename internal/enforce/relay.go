package enforce

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// Time bounds towards the two sides while bodies flow.
const (
	// clientWrite is how long one write to the client may take.
	clientWrite = time.Minute
	// clientRead is how long the client may take for the next bytes of its body.
	clientRead = 30 * time.Second
	// minBodyRate is the least rate, in bytes a second, that a body must keep
	// after its first clientRead: a byte a second holds a connection for days.
	minBodyRate = 256
)

// buffers are 32 KiB copy buffers.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[32 << 10]byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p
	}
	return new([32 << 10]byte)
}

func (b *buffers) put(p *[32 << 10]byte) { b.pool.Put(p) }

// relay sends the request to the application and its answer to the client.
// mask is set when the answer must be masked.
func (b *Bouncer) relay(w http.ResponseWriter, r *http.Request, in *inbound, st *state, who *identity.Caller, v *verdict) {
	head := b.outgoingHeader(in, st.settings, who)
	head.Apply(st.credit(in, v.dec.Resource, who))
	meter := in.seen.metered()
	defer meter.settle(context.WithoutCancel(r.Context()), nothing)
	rules, err := b.rulesFor(st.settings, v)
	if err != nil {
		b.count.maskFailures.Add(1)
		b.refuse(w, in, v.id, &refusal{http.StatusBadGateway, "mask_failed", "the answer could not be masked: " + err.Error()})
		return
	}
	head.Masked = !rules.Empty()
	// In shadow mode nothing may differ from direct access, so that an answer
	// which comes packed is not read.
	head.Unencoded = meter != nil && v.mode == enforcing
	if head.Masked || head.Unencoded {
		head.Ours = append(head.Ours, header.Field{Name: "Accept-Encoding", Value: "identity"})
	}
	interim := func(status int, h http.Header) {
		// A proxy hands interim answers on (RFC 9110 section 15.2); what cannot be masked stays here.
		if head.Masked || status != http.StatusEarlyHints {
			return
		}
		header.CopyAnswer(w.Header(), h)
		rules.Head(w.Header())
		w.WriteHeader(status)
		clear(w.Header())
	}
	if r.Body != nil && r.Body != http.NoBody {
		body := &clientBody{ReadCloser: r.Body, rc: http.NewResponseController(w), now: b.cfg.Now, began: in.at}
		defer body.leave()
		r.Body = body
	}
	ans, err := b.reach(r, in, head, interim)
	if err != nil {
		b.unreached(w, r, in, err)
		return
	}
	b.openSession(in, st, who, ans.Header)
	if meter != nil {
		model := ""
		if v.mode == enforcing && in.seen.llm != nil { // in shadow mode it may still be read
			model = in.seen.llm.Model
		}
		defer meter.listen(r.Context(), model, ans)()
	}
	if v.listen != nil {
		defer v.listen(ans)()
	}
	switch {
	case ans.StatusCode == http.StatusSwitchingProtocols:
		b.tunnel(w, r, in, who, ans, rules)
	case head.Masked && !(v.eventsOnly && !isEvents(ans.Header.Get("Content-Type"))):
		b.masked(r.Context(), w, in, ans, v, rules)
	default:
		b.pass(w, in, ans, rules)
	}
}

// reach picks the way upstream.
func (b *Bouncer) reach(r *http.Request, in *inbound, head *header.Outgoing, interim func(int, http.Header)) (*answer, error) {
	if b.up.plain(r, in) {
		return b.up.ask(r.Context(), in, head, interim)
	}
	return b.up.send(r.Context(), r, in, head, interim)
}

// clientBody reads the client's body under a deadline that moves with it.
type clientBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	now   func() time.Time
	began time.Time     // when the request came; zero once that was counted
	took  time.Duration // how long the client was waited for
	read  int64
	slow  bool
	ended bool

	mu   sync.Mutex
	left bool // the handler returned: the connection is the server's alone
}

// leave ends the moving of the deadline. The transport may read the body for longer
// than the request is served, while the server waits for its own reads under a
// deadline of its own.
func (c *clientBody) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
}

// until bounds the next read; the zero time lifts the bound.
func (c *clientBody) until(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		_ = c.rc.SetReadDeadline(t) // a connection that is gone says so when it is read
	}
}

// wait counts the time that the client was waited for. No read lasts longer than its
// deadline: what a clock says beyond that is a step of the clock.
func (c *clientBody) wait(d time.Duration) {
	if d > 0 && d <= clientRead+time.Second {
		c.took += d
	}
}

var errSlowBody = errors.New("the client's body comes too slowly")

// Read implements io.Reader. Once the body is at its end it is not asked again:
// the transport looks for one more byte, and by then the server may have closed
// the body, since the answer's head is out. That would break off the answer.
func (c *clientBody) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	now := c.now()
	if !c.began.IsZero() {
		c.wait(now.Sub(c.began))
		c.began = time.Time{}
	}
	// The least rate decides when the next bytes must be here, not only whether those
	// that came were in time.
	left := max(clientRead, time.Duration(c.read/minBodyRate)*time.Second) - c.took
	if left <= 0 {
		c.slow = true
		return 0, errSlowBody
	}
	c.until(now.Add(min(left, clientRead)))
	n, err := c.ReadCloser.Read(p)
	c.wait(c.now().Sub(now))
	c.read += int64(n)
	if err != nil {
		c.slow = isTimeout(err)
		c.ended = errors.Is(err, io.EOF)
		// The deadline must not outlive the body: the server goes on reading to see the client
		// leave. A body that was too slow is not over, and the server reads the rest of it
		// before it sends the answer: without the deadline both would wait for ever.
		if !c.slow {
			c.until(time.Time{})
		}
	}
	return n, err
}

// outgoingHeader is what the application gets: the client's fields that may
// pass, the identity that we know, and forwarding facts that we saw ourselves.
func (b *Bouncer) outgoingHeader(in *inbound, st *settings, who *identity.Caller) *header.Outgoing {
	head := &header.Outgoing{Names: st.names, Client: in.headers, Named: in.named, Ours: make([]header.Field, 0, 12)}
	add := func(name, value string) { head.Ours = append(head.Ours, header.Field{Name: name, Value: value}) }
	if st.passToken {
		head.Token = st.names.Token
	}
	st.identityFields(who, add)
	add(header.RequestID, in.id)
	add("X-Real-Ip", in.client)
	chain := in.peer.String()
	if in.trusted {
		if before := in.headers["X-Forwarded-For"]; len(before) > 0 {
			chain = strings.Join(before, ", ") + ", " + chain
		}
	}
	add("X-Forwarded-For", chain)
	if in.host != "" {
		add("X-Forwarded-Host", in.host)
	}
	proto := "http"
	if in.secure {
		proto = "https"
	}
	if p := in.headers["X-Forwarded-Proto"]; in.trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		proto = p[0]
	}
	add("X-Forwarded-Proto", proto)
	if in.trailers {
		add("Te", "trailers")
	}
	return head
}

// unreached answers for an application that did not.
func (b *Bouncer) unreached(w http.ResponseWriter, r *http.Request, in *inbound, err error) {
	if body, ok := r.Body.(*clientBody); ok && body.slow {
		b.count.slowClient.Add(1)
		b.refuse(w, in, "", &refusal{http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"})
		return
	}
	if noConnection(err) && r.Context().Err() == nil {
		b.report.lose()
	}
	switch {
	case r.Context().Err() != nil:
		b.count.clientGone.Add(1)
		panic(http.ErrAbortHandler)
	case errors.Is(err, errSaturated):
		b.count.upstreamTimeouts.Add(1)
		b.refuse(w, in, "", &refusal{http.StatusServiceUnavailable, "upstream_saturated", "too many requests wait for the application"})
	case isTimeout(err):
		b.count.upstreamTimeouts.Add(1)
		b.refuse(w, in, "", &refusal{http.StatusGatewayTimeout, "upstream_timeout", "the application did not answer in time"})
	default:
		b.count.upstreamErrors.Add(1)
		b.log.WarnContext(r.Context(), "the application could not be reached", "error", err)
		b.refuse(w, in, "", &refusal{http.StatusBadGateway, "upstream_unreachable", "the application could not be reached"})
	}
}

// noConnection reports that the application took no connection.
func noConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// pass hands an answer on as it comes. An answer of unknown length is flushed
// piece by piece: it may be a stream of events.
func (b *Bouncer) pass(w http.ResponseWriter, in *inbound, ans *answer, rules *mask.Rules) {
	clean := false
	defer func() { ans.finish(clean) }()
	h := w.Header()
	header.CopyAnswer(h, ans.Header)
	rules.Head(h)
	announced := len(ans.Trailer)
	for name := range ans.Trailer {
		if !header.IsBouncers(name) {
			h.Add("Trailer", name)
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(b.cfg.Now().Add(clientWrite))
	w.WriteHeader(ans.StatusCode)
	stream := ans.ContentLength < 0 || strings.HasPrefix(ans.Header.Get("Content-Type"), "text/event-stream")
	if stream && in.method != http.MethodHead {
		_ = rc.Flush()
	}
	if err := b.pump(w, rc, ans, stream); err != nil {
		b.count.aborted.Add(1)
		// The head is gone already: only a broken connection tells the client that this is not all.
		panic(http.ErrAbortHandler)
	}
	clean = true
	more := announced != len(ans.Trailer)
	rules.Head(ans.Trailer)
	for name := range ans.Trailer {
		if header.IsBouncers(name) {
			delete(ans.Trailer, name)
		}
	}
	if !more {
		for name, values := range ans.Trailer {
			h[name] = values
		}
		return
	}
	for name, values := range ans.Trailer {
		h[http.TrailerPrefix+name] = values
	}
}

// pump copies the body. Each read and each write has its own time.
func (b *Bouncer) pump(w http.ResponseWriter, rc *http.ResponseController, ans *answer, flush bool) error {
	buf := b.buffers.get()
	defer b.buffers.put(buf)
	small := ans.ContentLength >= 0 && ans.ContentLength <= int64(len(buf))
	for reads := 0; ; reads++ {
		// A small body is covered by the deadlines that are set already.
		if !small || reads > 8 {
			if err := ans.extend(b.cfg.BodyIdle); err != nil {
				return err
			}
		}
		n, err := ans.Body.Read(buf[:])
		if n > 0 {
			if !small {
				_ = rc.SetWriteDeadline(b.cfg.Now().Add(clientWrite))
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if flush {
				if ferr := rc.Flush(); ferr != nil {
					return ferr
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tunnel connects client and application after a WebSocket handshake, until
// one side ends it, the bouncer stops, or a new decision closes it.
func (b *Bouncer) tunnel(w http.ResponseWriter, r *http.Request, in *inbound, who *identity.Caller, ans *answer, rules *mask.Rules) {
	back, ok := ans.Body.(io.ReadWriteCloser)
	if !in.upgrade || !ok || !strings.EqualFold(ans.Header.Get("Upgrade"), "websocket") {
		ans.finish(false)
		b.unreached(w, r, in, errors.New("the application switched protocols unasked"))
		return
	}
	defer ans.finish(false)
	rc := http.NewResponseController(w)
	conn, front, err := rc.Hijack()
	if err != nil {
		b.unreached(w, r, in, err)
		return
	}
	defer conn.Close()
	release(conn)
	_ = conn.SetDeadline(time.Time{})
	_ = ans.extend(100 * 365 * 24 * time.Hour) // an open socket may be silent
	head := http.Header{}
	header.CopyAnswer(head, ans.Header)
	rules.Head(head)
	head.Set("Connection", "Upgrade")
	head.Set("Upgrade", "websocket")
	_, _ = front.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if head.Write(front) != nil {
		return
	}
	_, _ = front.WriteString("\r\n")
	if front.Flush() != nil {
		return
	}
	// Neither side sees an end of stream alone: the first copy that ends closes both.
	shut := func() { _ = conn.Close(); _ = back.Close() }
	leave := b.tunnels.enter(in, who, shut)
	defer leave()
	var both sync.WaitGroup
	both.Go(func() { defer shut(); _, _ = io.Copy(back, front.Reader) })
	both.Go(func() { defer shut(); _, _ = io.Copy(conn, back) })
	both.Wait()
}

// tunnels are the sockets that are open through us.
type tunnels struct {
	mu   sync.Mutex
	open map[*openTunnel]struct{}
}

type openTunnel struct {
	in   inbound
	who  *identity.Caller
	shut func()
}

func (t *tunnels) enter(in *inbound, who *identity.Caller, shut func()) (leave func()) {
	o := &openTunnel{*in, who, shut}
	t.mu.Lock()
	if t.open == nil {
		t.open = map[*openTunnel]struct{}{}
	}
	t.open[o] = struct{}{}
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		delete(t.open, o)
		t.mu.Unlock()
	}
}

// each calls fn for the tunnels that were open when it was called.
func (t *tunnels) each(fn func(*openTunnel)) {
	t.mu.Lock()
	list := make([]*openTunnel, 0, len(t.open))
	for o := range t.open {
		list = append(list, o)
	}
	t.mu.Unlock()
	for _, o := range list {
		fn(o)
	}
}

func (t *tunnels) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// recheck decides anew on every open socket, and closes those that would be
// refused now: a revoked caller keeps no open door.
func (b *Bouncer) recheck(ctx context.Context) {
	st := b.state.Load()
	b.tunnels.each(func(o *openTunnel) {
		in := o.in
		in.at = b.cfg.Now()
		if in.seen != nil {
			in.seen = &inspection{refs: in.seen.refs, usage: in.seen.usage, whole: true, settled: true}
		}
		who, err := o.who, error(nil)
		if !who.Expires.IsZero() && in.at.After(who.Expires) {
			who, err = identity.Nobody(), identity.ErrBadToken
		}
		v := b.judge(ctx, st, &in, who, err)
		if !v.pass || !mask.HeadOnly(v.mask) {
			b.count.tunnelsClosed.Add(1)
			o.shut()
		}
	})
}

// release stops the strict reading of a connection that carries no HTTP any more.
func release(c net.Conn) {
	if s, ok := c.(*framing.ServerConn); ok {
		s.Release()
	}
}
