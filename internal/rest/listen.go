package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fastpath"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
)

// The deadlines and limits of the server. A request has ten seconds for its header and thirty in
// total. Slow operations have neither, and no deadline for the answer.
const (
	headerTime = 10 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 90 * time.Second
	idleTime   = 60 * time.Second
	maxHeader  = 64<<10 - 4096 // net/http adds 4096; more is a 431
)

// NewHTTPServer returns an http.Server with our deadlines and limits.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader, ConnState: trackTunnel,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // protocol errors of clients
	}
}

// NewTLSServer is like NewHTTPServer, for a listener that returns connections after their TLS
// handshake. It also marks requests of HTTP/1.1 as TLS, which net/http does not detect below the
// framing checks.
func NewTLSServer(h http.Handler, log *slog.Logger) *http.Server {
	srv := NewHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS == nil {
			req.TLS, _ = req.Context().Value(tlsKey{}).(*tls.ConnectionState)
		}
		h.ServeHTTP(w, req)
	}), log)
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, tlsKey{}, framing.TLSState(c))
	}
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: 30 * time.Second, WriteByteTimeout: writeTime}
	return srv
}

// Plain returns the handler of the listener without TLS, if r is served over TLS. It answers
// challenges, health probes, and requests that a trusted proxy received over TLS.
func Plain(r *Router, port string, challenge func(ctx context.Context, host, token string) (answer string, ok bool)) http.Handler {
	return site.Plain{Port: port, Challenge: challenge, API: r, Open: func(req *http.Request) bool {
		return IsBelow(r.canonical(req.URL.Path), Root+"/health") || strings.EqualFold(visit{r, req}.forwardedProto(), "https")
	}}
}

// tlsKey finds the state of a TLS connection in the context of its requests.
type tlsKey struct{}

// trackTunnel is a server's ConnState. A connection that another protocol has taken over no
// longer carries HTTP/1.1 messages.
func trackTunnel(c net.Conn, s http.ConnState) {
	if strict, ok := c.(*framing.ServerConn); ok && s == http.StateHijacked {
		strict.Release()
	}
}

// ticks returns the clock for deadlines.
func (c Config) ticks() func() time.Time {
	if c.Ticks != nil {
		return c.Ticks
	}
	return c.Now
}

// Serve serves the API on l like the function Serve. Package lane serves the Brief operations of
// kept connections.
//
// When ctx ends, the server first leaves for a time: it is not ready and its answers end their
// connections, but it accepts new ones, so that a load balancer notices without losing a request.
func (r *Router) Serve(ctx context.Context, srv *http.Server, l net.Listener, leave, grace time.Duration, hang func()) error {
	fresh := &framing.FreshConns{}
	srv.ConnState = func(c net.Conn, s http.ConnState) {
		trackTunnel(c, s)
		fresh.Note(c, s == http.StateNew)
	}
	ctx, left := r.stopLater(ctx, leave, func(ctx context.Context) { fresh.Drain(ctx, l) })
	defer left()
	short := fastpath.Listen(l, fastpath.Config{
		Handler: srv.Handler, Brief: r.isBrief, Now: r.cfg.ticks(), Log: r.cfg.Log, Panics: r.cfg.Panics,
		First: srv.ReadHeaderTimeout, Body: srv.ReadTimeout, Idle: srv.IdleTimeout,
	})
	var ending sync.WaitGroup
	var ended error
	err := Serve(ctx, srv, short, grace, func() {
		if hang != nil {
			hang()
		}
		ending.Go(func() { ended = short.Wait(grace) }) // while net/http ends its own
	})
	ending.Wait()
	return errors.Join(err, ended, short.Wait(grace))
}

// stopLater returns a context that ends the time d after ctx. In between the server is leaving, and
// at the end it drains its listener. It does not wait if ctx ended for another reason than a
// cancellation, such as a part that failed.
func (r *Router) stopLater(ctx context.Context, d time.Duration, drain func(context.Context)) (context.Context, context.CancelFunc) {
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		r.stopping.Store(true)
		if d > 0 && errors.Is(context.Cause(ctx), context.Canceled) && pause.For(after, d) {
			drain(after)
		}
		end()
	})
	return after, func() { stop(); end() }
}

// IsStopping reports whether the server is about to stop and should receive no new work.
func (r *Router) IsStopping() bool { return r.stopping.Load() }

// isBrief reports whether a POST to path is a Brief operation.
func (r *Router) isBrief(path string) bool {
	rt := r.static[r.canonical(path)][http.MethodPost]
	return rt != nil && rt.op.Brief
}

// Serve serves l until ctx ends, and then lets running requests finish for at most grace. Before it
// waits, it calls hang, which may be nil, to end long polls.
func Serve(ctx context.Context, srv *http.Server, l net.Listener, grace time.Duration, hang func()) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if hang != nil {
		hang()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := srv.Shutdown(end)
	switch {
	case errors.Is(err, net.ErrClosed): // hang closed the listener first; Shutdown has waited for the requests all the same
		err = nil
	case err != nil:
		err = errors.Join(err, srv.Close())
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) && !errors.Is(served, net.ErrClosed) {
		err = errors.Join(err, served)
	}
	return err
}
