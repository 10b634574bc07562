package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/wire"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
)

// Bounds of the server towards clients.
const (
	headTimeout   = 10 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeadBytes  = 64 << 10
	stopTimeout   = 10 * time.Second
	serverSlop    = 4096 // net/http reads this much more than it is told
	ownPrefix     = "/_bouncer/"
	shadowQueue   = 1024
	shadowSlow    = 5 * time.Millisecond
	shadowDrain   = time.Second
	maxHTTP2Loads = 250
)

// Run serves until ctx ends, then stops within ten seconds: it takes no new
// requests, lets those that run come to an end, closes tunnels and tries once
// more to ship the decision log. It may be called once.
func (b *Bouncer) Run(ctx context.Context) error {
	l, err := framing.Listen(ctx, b.cfg.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("bouncer: %w", err), b.Close())
	}
	return b.Serve(ctx, l)
}

// Serve is Run on a listener of the caller's.
func (b *Bouncer) Serve(ctx context.Context, l net.Listener) error {
	strict, err := b.strict(l)
	if err != nil {
		return errors.Join(fmt.Errorf("bouncer: %w", err), l.Close(), b.Close())
	}
	checks, err := b.openChecks(ctx)
	if err != nil {
		_ = strict.Close()
		return errors.Join(err, b.Close())
	}
	metrics, err := b.openMetrics(ctx)
	if err != nil {
		_ = strict.Close()
		checks.close()
		return errors.Join(err, b.Close())
	}
	defer metrics.close()
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	done := make(chan struct{})
	go func() { defer close(done); b.loops(work) }()

	srv := b.server()
	served, running := make(chan error, 2), 1
	if checks != nil {
		running++
		go func() { served <- checks.serve() }()
	}
	go func() { served <- srv.Serve(strict) }()
	b.log.Info("the bouncer listens", "address", l.Addr().String(), "upstream", b.cfg.Upstream)
	b.listening(l.Addr().String())
	select {
	case <-ctx.Done():
		b.announceStop()
		if b.cfg.StopDelay > 0 && framing.Drain(l) {
			ids.Pause(context.Background(), framing.DrainTime)
		}
		err = b.shutdown(srv, checks)
	case err = <-served: // one listener failed: this is no whole bouncer any more
		running--
		_ = srv.Close()
		checks.close()
	}
	for range running {
		<-served //nolint:errcheck // that of a server that was told to end
	}
	b.checking.Wait()
	stopWork()
	<-done
	return errors.Join(err, b.Close())
}

// strict is l with its framing checks, and with TLS where there is a certificate.
func (b *Bouncer) strict(l net.Listener) (net.Listener, error) {
	if b.cfg.TLSCert == "" {
		return framing.Listener{Listener: l}, nil
	}
	config, err := wire.TLSConfig(b.cfg.TLSCert, b.cfg.TLSKey)
	if err != nil {
		return nil, err
	}
	return wire.NewSecureListener(l, config), nil
}

func (b *Bouncer) server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: b.Handler(), ConnContext: wire.MarkSecure, Protocols: protocols, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeadBytes - serverSlop, DisableGeneralOptionsHandler: true,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Loads, SendPingTimeout: 30 * time.Second, WriteByteTimeout: clientWrite},
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}
}

// announceStop is the time before the end in which balancers find out: the bouncer is not
// ready, each answer ends its connection, and requests are served as before.
func (b *Bouncer) announceStop() {
	b.leaving.Store(true)
	if b.cfg.StopDelay > 0 {
		ids.Pause(context.Background(), b.cfg.StopDelay)
	}
}

// shutdown ends the server in order, and by force when that takes too long.
func (b *Bouncer) shutdown(srv *http.Server, checks *checks) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout-uplink.FlushTimeout)
	defer cancel()
	b.tunnels.each(func(o *openTunnel) { o.shut() })
	checks.stop(ctx)
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return srv.Close()
	}
	return err
}

// Handler is the data plane as an HTTP handler. Its listener should be strict
// about framing; Run's is.
func (b *Bouncer) Handler() http.Handler { return http.HandlerFunc(b.serve) }

// serve takes one request from its arrival to its answer.
func (b *Bouncer) serve(w http.ResponseWriter, r *http.Request) {
	if b.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	st := b.state.Load()
	in, no := b.reader.Arrive(r, st.Settings)
	defer b.recoverRequest(w, &in)
	bodies.Bound(w, r, in.At)
	if target, resource, asks := envoyTarget(r.RequestURI); asks {
		b.envoyHTTP(w, r, &in, st, target, resource)
		return
	}
	if no == nil && (strings.HasPrefix(in.Path, ownPrefix) || in.Path+"/" == ownPrefix) {
		b.serveOwn(w, r, &in, st)
		return
	}
	if no == nil && b.up == nil {
		no = request.Refuse(http.StatusNotFound, "no_upstream", "this bouncer answers "+ownPrefix+"auth alone")
	}
	if no == nil {
		no = in.Admit(r, st.Settings)
	}
	if no != nil {
		b.count.Refused.Add(1)
		b.refuse(w, &in, "", no)
		return
	}
	if b.metadata(w, &in, st) {
		return
	}
	who, idErr := identity.Identify(r.Context(), r.Header, st.Names, st.Tokens, in.Trusted)
	if errors.Is(idErr, identity.ErrAmbiguous) {
		b.count.Refused.Add(1)
		b.refuse(w, &in, "", request.BadRequest("the request has two identities"))
		return
	}
	if no := b.enterSession(r, &in, st, who); no != nil {
		b.count.Refused.Add(1)
		b.refuse(w, &in, "", no)
		return
	}
	refs, looks := in.Needs(st)
	if st.Mode == settings.Shadowing && looks {
		b.relayInShadow(w, r, st, &in, who, idErr, refs)
		return
	}
	if st.Mode == settings.Shadowing {
		b.decideInShadow(st, &in, who, idErr)
		b.relay(w, r, &in, st, who, &verdict{pass: true})
		return
	}
	defer func() { in.Seen.Close() }()
	if looks && !b.inspectRequest(w, r, st, &in, refs) {
		return
	}
	v := b.judge(r.Context(), st, &in, who, idErr)
	if v.pass && in.Upgrade && !mask.HeadOnly(v.mask) {
		v.resolve(request.Refuse(http.StatusForbidden, "mask_impossible", "a socket's messages cannot be masked"), nil)
		v.mask = nil
	}
	if v.pass && len(v.mask) > 0 {
		if no := b.maskRequest(w, r, st.Settings, &in, &v); no != nil {
			in.Seen.Metered().Refund(r.Context())
			v.resolve(no, nil)
			v.mask = nil
		}
	}
	b.challengeCaller(st, &in, who, &v, true)
	if !b.record(st, &in, who, &v) {
		b.refuseUnlogged(r.Context(), &in, st, &v)
	}
	if !v.pass {
		b.refuse(w, &in, v.id, &v.no)
		return
	}
	b.sessions.NoteMasks(in.Session, v.mask)
	b.watchTools(r, st, &in, who, &v)
	in.Seen.DropParsed()
	b.relay(w, r, &in, st, who, &v)
}

// panicked counts and logs a panic that was recovered, by the deferred function that
// recovered it. id is the request's; empty: there was none.
func (b *Bouncer) panicked(ctx context.Context, what string, p any, id string) {
	b.count.Panics.Add(1)
	b.log.ErrorContext(ctx, what, "panic", fault.DescribePanic(p), "request_id", id, "stack", string(debug.Stack()))
}

// caught is what decisions tell of faults of the evaluator: the control denies, and
// the log has where it failed.
func (b *Bouncer) caught(ctx context.Context, id string) func(*rego.Panic) {
	return func(p *rego.Panic) {
		b.count.Panics.Add(1)
		b.log.ErrorContext(ctx, "the evaluator panicked", "panic", fault.DescribePanic(p.Value), "request_id", id, "stack", string(p.Stack))
	}
}

// recoverRequest ends a panic with the request that caused it.
func (b *Bouncer) recoverRequest(w http.ResponseWriter, in *request.Inbound) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p) // net/http breaks the connection
	}
	b.panicked(context.Background(), "a request panicked", p, in.ID)
	defer func() {
		// The head may be out already; then only a broken connection says that something is wrong.
		if recover() != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	clear(w.Header())
	b.refuse(w, in, "", request.Refuse(http.StatusInternalServerError, "internal_error", "something went wrong in the bouncer"))
}

// serveOwn answers what is below /_bouncer/, which never reaches the application.
func (b *Bouncer) serveOwn(w http.ResponseWriter, r *http.Request, in *request.Inbound, st *settings.State) {
	_ = http.NewResponseController(w).SetWriteDeadline(b.cfg.Now().Add(clientWrite))
	if in.Path == ownPrefix+"auth" {
		b.forwardAuth(w, r, in, st)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		b.refuse(w, in, "", request.Refuse(http.StatusMethodNotAllowed, "method_not_allowed", "GET and HEAD only"))
		return
	}
	switch in.Path {
	case ownPrefix + "live":
		b.writeJSON(w, http.StatusOK, `{"status":"live"}`)
	case ownPrefix + "ready":
		b.writeReady(w, st)
	case ownPrefix + "metrics":
		if b.cfg.MetricsListen != MetricsSame {
			b.refuse(w, in, "", request.Refuse(http.StatusNotFound, "not_found", "metrics have an address of their own: GATEHOUSE_BOUNCER_METRICS_LISTEN"))
			return
		}
		b.count.Write(w, b.gauges())
	default:
		b.refuse(w, in, "", request.Refuse(http.StatusNotFound, "not_found", "there is no such endpoint of the bouncer"))
	}
}

func (b *Bouncer) writeJSON(w http.ResponseWriter, status int, body string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}

// shadowJob is a decision that nobody waits for.
type shadowJob struct {
	st    *settings.State
	in    request.Inbound
	who   *identity.Caller
	idErr error
}

// decideInShadow decides in shadow mode, off the request's path: a control that hangs
// must not slow what it may not stop. A queue that is full is counted and
// recorded as a decision that was not taken.
func (b *Bouncer) decideInShadow(st *settings.State, in *request.Inbound, who *identity.Caller, idErr error) {
	job := shadowJob{st, *in, who, idErr}
	job.in.Headers = settings.CopyShown(st.Settings, in.Headers)
	select {
	case b.shadow <- job:
	default:
		b.recordSkipped(job)
	}
}

// recordSkipped records a request in shadow that was let pass without a decision.
func (b *Bouncer) recordSkipped(j shadowJob) {
	b.count.ShadowSkipped.Add(1)
	b.releaseBody(j.in.Seen)
	v := verdict{id: b.ids.Next(j.in.At), mode: settings.Shadowing, pass: true, word: metrics.PassThrough, failed: "not decided: too many shadow decisions wait"}
	v.no = request.Refusal{Code: "shadow_overload", Message: v.failed}
	b.record(j.st, &j.in, j.who, &v)
}

// shadowWork decides on queued requests until ctx ends, and then for a second on
// those that still wait. After a slow decision it rests as long as that took: a control
// that hangs must not take the processors from the requests that it may not stop.
func (b *Bouncer) shadowWork(ctx context.Context) {
	decide := func(j shadowJob) {
		began := b.cfg.Now()
		defer func() {
			if took := b.cfg.Now().Sub(began); took > shadowSlow {
				ids.Pause(ctx, took)
			}
		}()
		defer b.releaseBody(j.in.Seen)
		v := b.judge(context.WithoutCancel(ctx), j.st, &j.in, j.who, j.idErr)
		b.record(j.st, &j.in, j.who, &v)
	}
	for {
		select {
		case j := <-b.shadow:
			decide(j)
		case <-ctx.Done():
			for end := b.cfg.Now().Add(shadowDrain); ; {
				select {
				case j := <-b.shadow:
					if b.cfg.Now().Before(end) {
						decide(j)
					} else {
						b.recordSkipped(j)
					}
				default:
					return
				}
			}
		}
	}
}

// inspectRequest inspects a request before it is decided on; false: it was answered. What
// it keeps is given back by in.seen.close.
func (b *Bouncer) inspectRequest(w http.ResponseWriter, r *http.Request, st *settings.State, in *request.Inbound, refs lang.Refs) bool {
	wanted := request.MayBeJSON
	if in.Serving(st).Model {
		wanted = request.MayBePrompt
	}
	seen, err := b.reader.Inspect(w, r, in, refs, wanted)
	switch {
	case err == nil:
		in.Seen = seen
		return true
	case errors.Is(err, bodies.ErrSlow): // the read that ran out of time ended the context, too
		b.count.SlowClient.Add(1)
		b.refuse(w, in, "", request.Refuse(http.StatusRequestTimeout, "request_timeout", "the request's body came too slowly"))
	case r.Context().Err() != nil:
		b.count.ClientGone.Add(1)
		panic(http.ErrAbortHandler)
	default:
		b.count.Refused.Add(1)
		b.refuse(w, in, "", request.BadRequest("the request body is incomplete"))
	}
	return false
}
