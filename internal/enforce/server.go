package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/gateway"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Bounds of the server.
const (
	headTimeout  = 10 * time.Second
	idleTimeout  = 60 * time.Second
	maxHeadBytes = 64 << 10
	stopTimeout  = 10 * time.Second
	serverSlop   = 4096 // net/http reads this many bytes more than its limit
	maxStreams   = 250  // of one HTTP/2 connection
)

// Run serves until ctx ends. It serves for StopDelay longer and then stops within ten seconds: it
// accepts no new requests, lets running ones finish, closes tunnels and tries once more to ship the
// decision log. Call it only once.
func (b *Bouncer) Run(ctx context.Context) error {
	l, err := framing.Listen(ctx, b.cfg.Listen, framing.NewLimit(framing.Descriptors()/2, b.cfg.Now, b.log)) // each client may need a connection to the application
	if err != nil {
		return errors.Join(fmt.Errorf("bouncer: %w", err), b.Close())
	}
	return b.Serve(ctx, l)
}

// Serve is like Run, but uses a listener that the caller opened.
func (b *Bouncer) Serve(ctx context.Context, l net.Listener) error {
	strict, err := b.strictListener(l)
	if err != nil {
		return errors.Join(fmt.Errorf("bouncer: %w", err), l.Close(), b.Close())
	}
	checks, err := b.gateway.Listen(ctx, b.cfg.GRPCListen, b.cfg.TLSCert, b.cfg.TLSKey)
	if err != nil {
		_ = strict.Close()
		return errors.Join(err, b.Close())
	}
	metrics, err := b.openMetrics(ctx)
	if err != nil {
		_ = strict.Close()
		checks.Close()
		return errors.Join(err, b.Close())
	}
	defer metrics.close()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	done := make(chan struct{})
	go func() { defer close(done); b.runLoops(work) }()

	srv, fresh := b.server(), &framing.FreshConns{}
	srv.ConnState = func(c net.Conn, s http.ConnState) { fresh.Note(c, s == http.StateNew) }
	served, running := make(chan error, 2), 1
	if checks != nil {
		running++
		go func() { served <- checks.Serve() }()
	}
	go func() { served <- srv.Serve(strict) }()
	b.log.Info("the bouncer listens", "address", l.Addr().String(), "upstream", b.cfg.Upstream)
	b.noteListening(l.Addr().String())
	select {
	case <-ctx.Done():
		b.announceStop()
		if b.cfg.StopDelay > 0 {
			fresh.Drain(work, l)
		}
		err = b.shutdown(srv, checks)
	case err = <-served: // one listener failed, so the other one stops too
		running--
		_ = srv.Close()
		checks.Close()
	}
	for range running {
		<-served //nolint:errcheck // a server that is being stopped always returns an error
	}
	b.gateway.Wait()
	stopWork()
	<-done
	return errors.Join(err, b.Close())
}

// strictListener wraps l in framing checks, and in TLS if there is a certificate.
func (b *Bouncer) strictListener(l net.Listener) (net.Listener, error) {
	if b.cfg.TLSCert == "" {
		return framing.Listener{Listener: l}, nil
	}
	config, err := wire.TLSConfig(b.cfg.TLSCert, b.cfg.TLSKey)
	if err != nil {
		return nil, err
	}
	return framing.Listener{Listener: wire.NewSecureListener(l, config)}, nil
}

func (b *Bouncer) server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: b.handler(), ConnContext: wire.ConnContext, Protocols: protocols, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeadBytes - serverSlop, DisableGeneralOptionsHandler: true,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: 30 * time.Second, WriteByteTimeout: bodies.ClientWriteTimeout},
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
}

// announceStop reports that the bouncer is not ready and waits for StopDelay, so that load balancers
// notice. Meanwhile the bouncer serves requests, and its answers close their connections.
func (b *Bouncer) announceStop() {
	b.leaving.Store(true)
	if b.cfg.StopDelay > 0 {
		pause.For(context.Background(), b.cfg.StopDelay)
	}
}

// shutdown stops the server gracefully, and closes it if that takes too long.
func (b *Bouncer) shutdown(srv *http.Server, checks *gateway.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout-controlplane.FlushTimeout)
	defer cancel()
	b.relay.CloseTunnels()
	checks.Stop(ctx)
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return srv.Close()
	}
	return err
}

// handler returns the bouncer as an HTTP handler. Its listener should check framing strictly, as
// the one of Run does.
func (b *Bouncer) handler() http.Handler {
	if b.cfg.Trace != nil {
		return b.cfg.Trace(http.HandlerFunc(b.serve))
	}
	return http.HandlerFunc(b.serve)
}

// serve handles one request from its arrival to its answer.
func (b *Bouncer) serve(w http.ResponseWriter, r *http.Request) {
	if b.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	st := b.state.Load()
	in, refusal := b.reader.Parse(r, st.Settings)
	defer b.recoverRequest(w, &in)
	bodies.SetDeadline(w, r, in.At)
	if target, resource, asks := gateway.EnvoyTarget(r.RequestURI); asks {
		b.gateway.EnvoyHTTP(w, r, &in, st, target, resource)
		return
	}
	if refusal == nil && (strings.HasPrefix(in.Path, request.OwnPrefix) || in.Path+"/" == request.OwnPrefix) {
		b.serveOwn(w, r, &in, st)
		return
	}
	if refusal == nil && b.up == nil {
		refusal = request.Refuse(http.StatusNotFound, "no_upstream", "this bouncer has no application; it answers only "+request.OwnPrefix+"auth")
	}
	if refusal == nil {
		refusal = in.Validate(r, st.Settings)
	}
	if refusal != nil {
		b.count.Refused.Add(1)
		b.refusals.Write(w, &in, "", refusal)
		return
	}
	if b.metadata(w, &in, st) {
		return
	}
	who, idErr := identity.Identify(r.Context(), r.Header, st.Names, st.Tokens, in.Trusted)
	if errors.Is(idErr, identity.ErrAmbiguous) {
		b.count.Refused.Add(1)
		b.refusals.Write(w, &in, "", request.BadRequest("the request has two identities"))
		return
	}
	if refusal := b.tools.Enter(r, &in, st, who); refusal != nil {
		b.count.Refused.Add(1)
		b.refusals.Write(w, &in, "", refusal)
		return
	}
	refs, looks := in.Needs(st)
	if st.Mode == settings.Shadowing && looks {
		b.shadow.Relay(w, r, st, &in, who, idErr, refs)
		return
	}
	if st.Mode == settings.Shadowing {
		b.shadow.Decide(st, &in, who, idErr)
		b.relay.Forward(w, r, &in, st, who, &judge.Verdict{Pass: true})
		return
	}
	defer func() { in.Seen.Close() }()
	if looks && !b.inspectRequest(w, r, st, &in, refs) {
		return
	}
	v := b.judge.Decide(r.Context(), st, &in, who, idErr)
	if v.Pass && in.Upgrade && !mask.HeadOnly(v.Mask) {
		v.Resolve(request.Refuse(http.StatusForbidden, "mask_impossible", "a socket's messages cannot be masked"), nil)
		v.Mask = nil
	}
	if v.Pass && len(v.Mask) > 0 {
		if refusal := b.masks.Request(w, r, st.Settings, &in, &v); refusal != nil {
			in.Seen.UsageAccount().Refund(r.Context())
			v.Resolve(refusal, nil)
			v.Mask = nil
		}
	}
	v.ChallengeCaller(st, &in, who, true)
	b.recorder.Commit(r.Context(), st, &in, who, &v)
	if !v.Pass {
		b.refusals.Write(w, &in, v.ID, &v.Refusal)
		return
	}
	b.tools.Sessions.NoteMasks(in.Session, v.Mask)
	b.tools.Filter(r, st, &in, who, &v)
	in.Seen.DropParsed()
	b.relay.Forward(w, r, &in, st, who, &v)
}

// recoverRequest answers a request that panicked.
func (b *Bouncer) recoverRequest(w http.ResponseWriter, in *request.Inbound) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http closes the connection
	}
	b.panics.Report(context.Background(), "a request panicked", p, in.ID)
	defer func() {
		// If the header was sent already, only a broken connection can tell the client
		// about the error.
		if recover() != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	clear(w.Header())
	b.refusals.Write(w, in, "", request.Refuse(http.StatusInternalServerError, "internal_error", "something went wrong in the bouncer"))
}

// serveOwn answers the paths below /_bouncer/, which never reach the application.
func (b *Bouncer) serveOwn(w http.ResponseWriter, r *http.Request, in *request.Inbound, st *settings.State) {
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(bodies.ClientWriteTimeout))
	if in.Path == request.OwnPrefix+"auth" {
		b.gateway.ForwardAuth(w, r, in, st)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		b.refusals.Write(w, in, "", request.Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "GET and HEAD only"))
		return
	}
	switch in.Path {
	case request.OwnPrefix + "live":
		b.writeJSON(w, http.StatusOK, `{"status":"live"}`)
	case request.OwnPrefix + "ready":
		b.writeReady(w, st)
	case request.OwnPrefix + "metrics":
		if b.cfg.MetricsListen != MetricsSame {
			b.refusals.Write(w, in, "", request.Refuse(http.StatusNotFound, "not_found", "metrics have an address of their own: GATEHOUSE_BOUNCER_METRICS_LISTEN"))
			return
		}
		b.count.Write(w, b.gauges())
	default:
		b.refusals.Write(w, in, "", request.Refuse(http.StatusNotFound, "not_found", "there is no such endpoint of the bouncer"))
	}
}

func (b *Bouncer) writeJSON(w http.ResponseWriter, status int, body string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}

// inspectRequest reads the parts of the request that the controls need for the decision. It
// returns false if it answered the request. in.Seen.Close releases the memory and files.
func (b *Bouncer) inspectRequest(w http.ResponseWriter, r *http.Request, st *settings.State, in *request.Inbound, refs lang.Refs) bool {
	wanted := request.MayBeJSON
	if in.Resources(st).Model {
		wanted = request.MayBePrompt
	}
	seen, err := b.reader.Inspect(w, r, in, refs, wanted)
	switch {
	case err == nil:
		in.Seen = seen
		return true
	case errors.Is(err, bodies.ErrSlow): // the read timeout also ended the context
		b.count.SlowClient.Add(1)
		b.refusals.Write(w, in, "", request.Refuse(http.StatusRequestTimeout, "request_timeout", "the request body arrived too slowly"))
	case r.Context().Err() != nil:
		b.count.ClientGone.Add(1)
		panic(http.ErrAbortHandler)
	default:
		b.count.Refused.Add(1)
		b.refusals.Write(w, in, "", request.BadRequest("the request body is incomplete"))
	}
	return false
}
