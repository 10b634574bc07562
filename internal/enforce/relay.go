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

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// Time bounds towards the two sides while bodies flow.
const (
	// clientWrite is how long one write to the client may take.
	clientWrite = time.Minute
)

// relay sends the request to the application and its answer to the client.
// mask is set when the answer must be masked.
func (b *Bouncer) relay(w http.ResponseWriter, r *http.Request, in *request.Inbound, st *settings.State, who *identity.Caller, v *verdict) {
	head := b.outgoingHeader(in, st.Settings, who)
	head.Apply(in.Credit(st, v.dec.Resource, who))
	meter := in.Seen.Metered()
	defer meter.Settle(context.WithoutCancel(r.Context()), usage.Nothing)
	rules, err := b.rulesFor(st.Settings, v)
	if err != nil {
		b.count.MaskFailures.Add(1)
		b.refuse(w, in, v.id, request.Refuse(http.StatusBadGateway, "mask_failed", "the answer could not be masked: "+err.Error()))
		return
	}
	head.Masked = !rules.Empty()
	// In shadow mode nothing may differ from direct access, so that an answer
	// which comes packed is not read.
	head.Unencoded = meter != nil && v.mode == settings.Enforcing
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
		body := bodies.FromClient(w, r.Body, b.cfg.Now, in.At)
		defer body.Detach()
		r.Body = body
	}
	ans, err := b.up.Do(r, &upstream.Request{Method: in.Method, Host: in.Host, Path: in.Path, Query: in.Query, Upgrade: in.Upgrade}, head, interim)
	if err != nil {
		b.answerUpstreamError(w, r, in, err)
		return
	}
	b.openSession(in, st, who, ans.Header)
	if meter != nil {
		model := ""
		if v.mode == settings.Enforcing && in.Seen.LLM != nil { // in shadow mode it may still be read
			model = in.Seen.LLM.Model
		}
		defer meter.Meter(r.Context(), model, ans)()
	}
	if v.tapAnswer != nil {
		defer v.tapAnswer(ans)()
	}
	switch {
	case ans.StatusCode == http.StatusSwitchingProtocols:
		b.tunnel(w, r, in, who, ans, rules)
	case head.Masked && !(v.eventsOnly && !bodies.IsEvents(ans.Header.Get("Content-Type"))):
		b.maskAnswer(r.Context(), w, in, ans, v, rules)
	default:
		b.pass(w, in, ans, rules)
	}
}

// outgoingHeader is what the application gets: the client's fields that may
// pass, the identity that we know, and forwarding facts that we saw ourselves.
func (b *Bouncer) outgoingHeader(in *request.Inbound, st *settings.Settings, who *identity.Caller) *header.Outgoing {
	head := &header.Outgoing{Names: st.Names, Client: in.Headers, Named: in.ConnectionNames, Ours: make([]header.Field, 0, 12)}
	add := func(name, value string) { head.Ours = append(head.Ours, header.Field{Name: name, Value: value}) }
	if st.PassToken {
		head.Token = st.Names.Token
	}
	st.IdentityFields(who, add)
	add(header.RequestID, in.ID)
	add("X-Real-Ip", in.Client)
	chain := in.Peer.String()
	if in.Trusted {
		if before := in.Headers["X-Forwarded-For"]; len(before) > 0 {
			chain = strings.Join(before, ", ") + ", " + chain
		}
	}
	add("X-Forwarded-For", chain)
	if in.Host != "" {
		add("X-Forwarded-Host", in.Host)
	}
	proto := "http"
	if in.Secure {
		proto = "https"
	}
	if p := in.Headers["X-Forwarded-Proto"]; in.Trusted && len(p) == 1 && (p[0] == "http" || p[0] == "https") {
		proto = p[0]
	}
	add("X-Forwarded-Proto", proto)
	if in.Trailers {
		add("Te", "trailers")
	}
	return head
}

// answerUpstreamError answers for an application that did not.
func (b *Bouncer) answerUpstreamError(w http.ResponseWriter, r *http.Request, in *request.Inbound, err error) {
	if body, ok := r.Body.(*bodies.Client); ok && body.TooSlow() {
		b.count.SlowClient.Add(1)
		b.refuse(w, in, "", request.Refuse(http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"))
		return
	}
	if noConnection(err) && r.Context().Err() == nil {
		b.report.noteAppLost()
	}
	switch {
	case r.Context().Err() != nil:
		b.count.ClientGone.Add(1)
		panic(http.ErrAbortHandler)
	case errors.Is(err, upstream.ErrSaturated):
		b.count.UpstreamTimeouts.Add(1)
		b.refuse(w, in, "", request.Refuse(http.StatusServiceUnavailable, "upstream_saturated", "too many requests wait for the application"))
	case bodies.IsTimeout(err):
		b.count.UpstreamTimeouts.Add(1)
		b.refuse(w, in, "", request.Refuse(http.StatusGatewayTimeout, "upstream_timeout", "the application did not answer in time"))
	default:
		b.count.UpstreamErrors.Add(1)
		b.log.WarnContext(r.Context(), "the application could not be reached", "error", err)
		b.refuse(w, in, "", request.Refuse(http.StatusBadGateway, "upstream_unreachable", "the application could not be reached"))
	}
}

// noConnection reports that the application took no connection.
func noConnection(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// pass hands an answer on as it comes. An answer of unknown length is flushed
// piece by piece: it may be a stream of events.
func (b *Bouncer) pass(w http.ResponseWriter, in *request.Inbound, ans *upstream.Answer, rules *mask.Rules) {
	clean := false
	defer func() { ans.Finish(clean) }()
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
	if stream && in.Method != http.MethodHead {
		_ = rc.Flush()
	}
	if err := b.pump(w, rc, ans, stream); err != nil {
		b.count.Aborted.Add(1)
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
func (b *Bouncer) pump(w http.ResponseWriter, rc *http.ResponseController, ans *upstream.Answer, flush bool) error {
	buf := b.buffers.Get()
	defer b.buffers.Put(buf)
	small := ans.ContentLength >= 0 && ans.ContentLength <= int64(len(buf))
	for reads := 0; ; reads++ {
		// A small body is covered by the deadlines that are set already.
		if !small || reads > 8 {
			if err := ans.Extend(b.cfg.BodyIdle); err != nil {
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
func (b *Bouncer) tunnel(w http.ResponseWriter, r *http.Request, in *request.Inbound, who *identity.Caller, ans *upstream.Answer, rules *mask.Rules) {
	back, ok := ans.Body.(io.ReadWriteCloser)
	if !in.Upgrade || !ok || !strings.EqualFold(ans.Header.Get("Upgrade"), "websocket") {
		ans.Finish(false)
		b.answerUpstreamError(w, r, in, errors.New("the application switched protocols without being asked"))
		return
	}
	defer ans.Finish(false)
	rc := http.NewResponseController(w)
	conn, front, err := rc.Hijack()
	if err != nil {
		b.answerUpstreamError(w, r, in, err)
		return
	}
	defer conn.Close()
	release(conn)
	_ = conn.SetDeadline(time.Time{})
	_ = ans.Extend(100 * 365 * 24 * time.Hour) // an open socket may be silent
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
	in   request.Inbound
	who  *identity.Caller
	shut func()
}

func (t *tunnels) enter(in *request.Inbound, who *identity.Caller, shut func()) (leave func()) {
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

// recheckTunnels decides anew on every open socket, and closes those that would be
// refused now: a revoked caller keeps no open door.
func (b *Bouncer) recheckTunnels(ctx context.Context) {
	st := b.state.Load()
	b.tunnels.each(func(o *openTunnel) {
		in := o.in
		in.At = b.cfg.Now()
		if in.Seen != nil {
			in.Seen = &request.Inspection{Refs: in.Seen.Refs, Usage: in.Seen.Usage, Whole: true, Counted: true}
		}
		who, err := o.who, error(nil)
		if !who.Expires.IsZero() && in.At.After(who.Expires) {
			who, err = identity.Nobody(), identity.ErrBadToken
		}
		v := b.judge(ctx, st, &in, who, err)
		if !v.pass || !mask.HeadOnly(v.mask) {
			b.count.TunnelsClosed.Add(1)
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

// noteUnsolicited tells the operator that the application sent bytes that belong to no request.
func (b *Bouncer) noteUnsolicited() {
	b.count.UnaskedBytes.Add(1)
	b.log.Warn("the application sent bytes that belong to no request; for a while its connections serve one request each", "upstream", b.cfg.Upstream)
}
