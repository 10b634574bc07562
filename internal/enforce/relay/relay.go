// Package relay forwards requests to the application and its answers to the client.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/maskbody"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcpguard"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/refuse"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// Relay forwards requests to the application and its answers to the client.
type Relay struct {
	Up       *upstream.Upstream
	Judge    *judge.Judge
	Masks    *maskbody.Masker
	Tools    *mcpguard.Guard
	Refusals *refuse.Writer
	Buffers  *bodies.Buffers
	State    *atomic.Pointer[settings.State]
	Count    *metrics.Counters
	Log      *slog.Logger
	Now      func() time.Time
	BodyIdle time.Duration // the longest pause within the body of an answer
	// NoteAppLost is called when the application refuses a connection.
	NoteAppLost func()
	tunnels     tunnels
}

// Forward sends the request to the application and its answer to the client. v says how
// the answer must be masked.
func (rl *Relay) Forward(w http.ResponseWriter, r *http.Request, in *request.Inbound, st *settings.State, who *identity.Caller, v *judge.Verdict) {
	head := rl.outgoingHeader(in, st.Settings, who)
	head.Apply(in.HeaderChanges(st, v.Decision.Resource, who))
	account := in.Seen.UsageAccount()
	defer account.Charge(context.WithoutCancel(r.Context()), usage.NoCost)
	rules, err := rl.Masks.Rules(st.Settings, v)
	if err != nil {
		rl.Count.MaskFailures.Add(1)
		rl.Refusals.Write(w, in, v.ID, request.Refuse(http.StatusBadGateway, "mask_failed", "the answer could not be masked: "+err.Error()))
		return
	}
	head.Masked = !rules.IsEmpty()
	// In shadow mode the answer must be the one of direct access. The application may
	// compress it, and the bouncer does not read it then.
	head.Unencoded = account != nil && v.Mode == settings.Enforcing
	if head.Masked || head.Unencoded {
		head.Ours = append(head.Ours, header.Field{Name: "Accept-Encoding", Value: "identity"})
	}
	interim := func(status int, h http.Header) {
		// A proxy forwards interim answers (RFC 9110 section 15.2), except one that cannot
		// be masked.
		if head.Masked || status != http.StatusEarlyHints {
			return
		}
		header.CopyAnswer(w.Header(), h)
		rules.Head(w.Header())
		w.WriteHeader(status)
		clear(w.Header())
	}
	if r.Body != nil && r.Body != http.NoBody {
		body := bodies.NewClientBody(w, r.Body, rl.Now, in.At)
		defer body.Detach()
		r.Body = body
	}
	ans, err := rl.Up.Do(r, &upstream.Request{Method: in.Method, Host: in.Host, Path: in.Path, Query: in.Query, Upgrade: in.Upgrade}, head, interim)
	if err != nil {
		rl.answerUpstreamError(w, r, in, err)
		return
	}
	rl.Tools.Open(in, st, who, ans.Header)
	if account != nil {
		model := ""
		if v.Mode == settings.Enforcing && in.Seen.LLM != nil { // in shadow mode the body may not be complete yet
			model = in.Seen.LLM.Model
		}
		defer account.Meter(r.Context(), model, ans)()
	}
	if v.TapAnswer != nil {
		defer v.TapAnswer(ans)()
	}
	switch {
	case ans.StatusCode == http.StatusSwitchingProtocols:
		rl.tunnel(w, r, in, who, ans, rules)
	case head.Masked && !(v.EventsOnly && !bodies.IsEvents(ans.Header.Get("Content-Type"))):
		rl.Masks.Answer(r.Context(), w, in, ans, v, rules)
	default:
		rl.copyAnswer(w, in, ans, rules)
	}
}

// outgoingHeader returns the header that the application gets: the client's fields that may pass,
// the identity that the bouncer proved, and forwarding fields from what it saw itself.
func (rl *Relay) outgoingHeader(in *request.Inbound, st *settings.Settings, who *identity.Caller) *header.Outgoing {
	made := &struct { // one allocation
		header.Outgoing
		room [12]header.Field
	}{}
	made.Outgoing = header.Outgoing{Names: st.Names, Client: in.Headers, Named: in.ConnectionNames, Ours: made.room[:0]}
	head := &made.Outgoing
	add := func(name, value string) { head.Ours = append(head.Ours, header.Field{Name: name, Value: value}) }
	if st.PassToken {
		head.Token = st.Names.Token
	}
	st.IdentityFields(who, add)
	add(header.RequestID, in.ID)
	add("X-Real-Ip", in.Client)
	chain := in.PeerName
	if in.Trusted {
		if before := in.Headers["X-Forwarded-For"]; len(before) > 0 {
			chain = strings.Join(before, ", ") + ", " + chain
		}
	}
	add("X-Forwarded-For", chain)
	if in.Host != "" {
		add("X-Forwarded-Host", in.Host)
	}
	add("X-Forwarded-Proto", in.Scheme())
	if in.Trailers {
		add("Te", "trailers")
	}
	return head
}

// answerUpstreamError answers a request that the application did not answer.
func (rl *Relay) answerUpstreamError(w http.ResponseWriter, r *http.Request, in *request.Inbound, err error) {
	if body, ok := r.Body.(*bodies.ClientBody); ok && body.IsTooSlow() {
		rl.Count.SlowClient.Add(1)
		rl.Refusals.Write(w, in, "", request.Refuse(http.StatusRequestTimeout, "request_timeout", "the request body arrived too slowly"))
		return
	}
	if isDialError(err) && r.Context().Err() == nil {
		rl.NoteAppLost()
	}
	switch {
	case r.Context().Err() != nil:
		rl.Count.ClientGone.Add(1)
		panic(http.ErrAbortHandler)
	case bodies.IsBroken(err): // the client's fault, and not the application's
		rl.Count.Refused.Add(1)
		rl.Refusals.Write(w, in, "", request.BadRequest("the request body is incomplete"))
	case errors.Is(err, upstream.ErrSaturated):
		rl.Count.UpstreamTimeouts.Add(1)
		rl.Refusals.Write(w, in, "", request.Refuse(http.StatusServiceUnavailable, "upstream_saturated", "too many requests are waiting for the application"))
	case bodies.IsTimeout(err):
		rl.Count.UpstreamTimeouts.Add(1)
		rl.Refusals.Write(w, in, "", request.Refuse(http.StatusGatewayTimeout, "upstream_timeout", "the application did not answer in time"))
	default:
		rl.answerBadGateway(w, r, in, "the application could not be reached", err)
	}
}

// answerBadGateway answers a request for which the application is to blame. text says why.
func (rl *Relay) answerBadGateway(w http.ResponseWriter, r *http.Request, in *request.Inbound, text string, err error) {
	rl.Count.UpstreamErrors.Add(1)
	rl.Log.WarnContext(r.Context(), text, "error", err)
	rl.Refusals.Write(w, in, "", request.Refuse(http.StatusBadGateway, "upstream_unreachable", text))
}

// isDialError reports whether no connection to the application could be opened.
func isDialError(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// copyAnswer copies an answer. An answer of unknown length is flushed piece by piece, because
// it may be a stream of events.
func (rl *Relay) copyAnswer(w http.ResponseWriter, in *request.Inbound, ans *upstream.Answer, rules *mask.Rules) {
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
	_ = rc.SetWriteDeadline(rl.Now().Add(bodies.ClientWriteTimeout))
	w.WriteHeader(ans.StatusCode)
	stream := ans.ContentLength < 0 || strings.HasPrefix(ans.Header.Get("Content-Type"), "text/event-stream")
	if stream && in.Method != http.MethodHead {
		_ = rc.Flush()
	}
	if err := rl.copyBody(w, rc, ans, stream); err != nil {
		rl.Count.Aborted.Add(1)
		// The header has been sent. Only a broken connection tells the client that the
		// body is not complete.
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
		maps.Copy(h, ans.Trailer)
		return
	}
	for name, values := range ans.Trailer {
		h[http.TrailerPrefix+name] = values
	}
}

// copyBody copies the body. Each read and each write has a deadline of its own.
func (rl *Relay) copyBody(w http.ResponseWriter, rc *http.ResponseController, ans *upstream.Answer, flush bool) error {
	buf := rl.Buffers.Get()
	defer rl.Buffers.Put(buf)
	small := ans.ContentLength >= 0 && ans.ContentLength <= int64(len(buf))
	for reads := 0; ; reads++ {
		// The deadlines that are set already cover a small body.
		if !small || reads > 8 {
			if err := ans.Extend(rl.BodyIdle); err != nil {
				return err
			}
		}
		n, err := ans.Body.Read(buf[:])
		if n > 0 {
			if !small {
				_ = rc.SetWriteDeadline(rl.Now().Add(bodies.ClientWriteTimeout))
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

// tunnel connects client and application after a WebSocket handshake, until one side ends
// it, the bouncer stops, or a new decision closes it.
func (rl *Relay) tunnel(w http.ResponseWriter, r *http.Request, in *request.Inbound, who *identity.Caller, ans *upstream.Answer, rules *mask.Rules) {
	appConn, ok := ans.Body.(io.ReadWriteCloser)
	if !in.Upgrade || !ok || !strings.EqualFold(ans.Header.Get("Upgrade"), "websocket") {
		ans.Finish(false)
		rl.answerBadGateway(w, r, in, "the application switched protocols unasked", fmt.Errorf("it wants to speak %q", ans.Header.Get("Upgrade")))
		return
	}
	defer ans.Finish(false)
	rc := http.NewResponseController(w)
	client, clientBuf, err := rc.Hijack()
	if err != nil { // the application has done its part
		rl.Count.Aborted.Add(1)
		rl.Log.WarnContext(r.Context(), "the client's connection could not be taken over for a WebSocket", "error", err)
		panic(http.ErrAbortHandler)
	}
	defer client.Close()
	release(client)
	_ = client.SetDeadline(time.Time{})
	_ = ans.Extend(100 * 365 * 24 * time.Hour) // an open socket may be silent
	head := http.Header{}
	header.CopyAnswer(head, ans.Header)
	rules.Head(head)
	head.Set("Connection", "Upgrade")
	head.Set("Upgrade", "websocket")
	_, _ = clientBuf.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if head.Write(clientBuf) != nil {
		return
	}
	_, _ = clientBuf.WriteString("\r\n")
	if clientBuf.Flush() != nil {
		return
	}
	// When one copy ends, it closes both sides, so that the other copy ends too.
	closeBoth := func() { _ = client.Close(); _ = appConn.Close() }
	remove := rl.tunnels.add(in, who, closeBoth)
	defer remove()
	var both sync.WaitGroup
	both.Go(func() { defer closeBoth(); _, _ = io.Copy(appConn, clientBuf.Reader) })
	both.Go(func() { defer closeBoth(); _, _ = io.Copy(client, appConn) })
	both.Wait()
}

// tunnels are the open sockets.
type tunnels struct {
	mu   sync.Mutex
	open map[*openTunnel]struct{}
}

type openTunnel struct {
	in        request.Inbound
	who       *identity.Caller
	closeBoth func()
}

func (t *tunnels) add(in *request.Inbound, who *identity.Caller, closeBoth func()) (remove func()) {
	o := &openTunnel{*in, who, closeBoth}
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

// each calls fn for every tunnel that was open at the time of the call.
func (t *tunnels) each(fn func(*openTunnel)) {
	t.mu.Lock()
	list := slices.Collect(maps.Keys(t.open))
	t.mu.Unlock()
	for _, o := range list {
		fn(o)
	}
}

func (t *tunnels) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// CloseTunnels closes every open socket.
func (rl *Relay) CloseTunnels() { rl.tunnels.each(func(o *openTunnel) { o.closeBoth() }) }

// OpenTunnels returns the number of open sockets.
func (rl *Relay) OpenTunnels() int { return rl.tunnels.count() }

// RecheckTunnels decides again on every open socket, and closes those that are refused now, for
// example because the caller was revoked.
func (rl *Relay) RecheckTunnels(ctx context.Context) {
	st := rl.State.Load()
	rl.tunnels.each(func(o *openTunnel) {
		in := o.in
		in.At = rl.Now()
		if in.Seen != nil {
			in.Seen = &request.Inspection{Refs: in.Seen.Refs, Usage: in.Seen.Usage, Whole: true, Counted: true}
		}
		who, err := o.who, error(nil)
		if !who.Expires.IsZero() && in.At.After(who.Expires) {
			who, err = identity.Anonymous(), identity.ErrBadToken
		}
		v := rl.Judge.Decide(ctx, st, &in, who, err)
		if !v.Pass || !mask.HeadOnly(v.Mask) {
			rl.Count.TunnelsClosed.Add(1)
			o.closeBoth()
		}
	})
}

// release stops the framing checks on a connection that no longer carries HTTP.
func release(c net.Conn) {
	if s, ok := c.(*framing.ServerConn); ok {
		s.Release()
	}
}
