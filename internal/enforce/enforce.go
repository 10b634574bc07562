// Package enforce is the bouncer: the policy enforcement point (PEP) in front of an
// application. It enforces the decisions of the controls in its bundle.
//
//	client ─► framing ─► arrive, admit ─► identify ─► judge ─► relay ─► application
//	          framing       one canonical    proven      rego.Set   fast path
//	                        path and query   identity    .Decide    or net/http
//
// The bouncer forwards exactly the bytes that it decided on. In enforce mode nothing
// fails open: without a bundle, with a stale bundle, or when a control cannot be
// evaluated, the answer is 503. An answer that cannot be masked becomes 502. In shadow
// mode every request passes, and the log records what enforce mode would have done.
//
// Gateways ask the bouncer before they forward: nginx, Traefik and Caddy by forward-auth,
// Envoy by ext_authz over gRPC or HTTP.
//
// Background loops keep running while the control plane is down. follow polls for bundles
// and keeps the last good one on disk. The shipper delivers the decision log, which stays
// on disk until the control plane acknowledges it. The status reporter reports the bouncer's
// state. discovery reports hosts that no resource names.
package enforce

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/bundlesync"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/gateway"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/maskbody"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mcpguard"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/panics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/record"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/refuse"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/relay"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/shadow"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/status"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
)

// Config holds the settings that a bouncer needs to start. All others are in its bundle.
type Config struct {
	// URL is the control plane: scheme://host[:port], with or without /api/v1.
	URL string
	// Token is the bouncer's credential.
	Token string
	// ID is the bouncer's id. If it is empty, the bouncer asks the control plane which bouncer the
	// token belongs to.
	ID string
	// Listen is the address to serve on (:8080).
	Listen string
	// GRPCListen is the address of Envoy's ext_authz service; empty: none.
	GRPCListen string
	// MetricsListen is the address of /_bouncer/metrics. MetricsSame serves it with the
	// traffic, MetricsOff or the empty string not at all.
	MetricsListen string
	// StopDelay is how long the bouncer continues to serve after a stop was requested. In
	// that time it reports that it is not ready, and its answers carry Connection: close.
	StopDelay time.Duration
	// TLSCert and TLSKey are PEM files; both empty: plain HTTP.
	TLSCert, TLSKey string
	// Upstream is the protected application: http://, https:// or h2c:// and host[:port].
	// When it is empty, the bouncer only answers forward-auth and ext_authz.
	Upstream string
	// DataDir holds the last good bundle and the decision log spool.
	DataDir string
	// TrustedProxies are the addresses or CIDRs whose identity and forwarding headers the
	// bouncer believes. When the list is empty, the one in the bundle applies.
	TrustedProxies []string
	// InitialMode applies until the first bundle arrives: enforce (the default, which
	// fails closed) or shadow.
	InitialMode string
	// Verify checks the signature of every bundle, including the one on disk. When it is
	// nil, signatures are not checked.
	Verify *bundle.Verify
	// RootCAs are the authorities for the certificates of the control plane and of the
	// application. When it is nil, those of the system apply.
	RootCAs *x509.CertPool
	// Serving, if set, is called once, when the listener is open and a bundle is active.
	Serving func(address string)
	// Version is the version that the bouncer reports.
	Version string

	// UpstreamTimeout is how long the application may take to begin its answer (30s).
	UpstreamTimeout time.Duration
	// BodyIdle is the longest pause inside an answer's body (5m). It is long because
	// streams of events may be silent.
	BodyIdle time.Duration
	// UpstreamConns bounds connections to the application (1024).
	UpstreamConns int
	// DecisionDeadline bounds one decision (250ms).
	DecisionDeadline time.Duration
	// PollWait is how long the control plane may hold a poll open (30s).
	PollWait time.Duration
	// CacheBytes bounds the decision cache (64 MiB).
	CacheBytes int64
	// SpoolBytes bounds the decision log on disk (1 GiB). When the log is full, events are
	// dropped, counted and reported. Events of refusals are dropped when it is 90% full.
	SpoolBytes int64
	// DiskReserve is how many bytes of disk space are reserved for the decision log, in
	// case the disk fills up. 0 reserves none.
	DiskReserve int64

	// Fold says when refusals are counted together in the decision log (default
	// fold.Defaults).
	Fold fold.Limits

	// Count counts requests and tokens for input.usage. When it is nil, this process keeps
	// its own counts. Bouncers that share a Count share their limits.
	Count usage.Count

	// Trace adds a span to each request of a handler. Decided records a decision on the span of its
	// request. If they are nil, nothing is traced.
	Trace   func(http.Handler) http.Handler
	Decided func(ctx context.Context, id, effect string)
	// TraceCheck starts the span of a check that Envoy requests; see gateway.Gateway.
	TraceCheck func(ctx context.Context, call map[string][]string, checked *http.Request) (_ context.Context, end func(status int))

	// Now is the clock and Entropy the source of randomness. Both are required.
	Now     func() time.Time
	Entropy io.Reader
}

// validate fills in the defaults. Its error names the first setting that is missing or invalid.
func (c *Config) validate() error {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.UpstreamTimeout, 30*time.Second)
	def(&c.BodyIdle, 5*time.Minute)
	def(&c.DecisionDeadline, rego.DefaultDeadline)
	def(&c.PollWait, 30*time.Second)
	if c.Fold == (fold.Limits{}) {
		c.Fold = fold.Defaults()
	}
	if c.UpstreamConns <= 0 {
		c.UpstreamConns = 1024
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = 64 << 20
	}
	if c.SpoolBytes <= 0 {
		c.SpoolBytes = 1 << 30
	}
	c.Listen = cmp.Or(c.Listen, ":8080")
	if c.Count == nil && c.Now != nil {
		c.Count = usage.NewTally(c.Now).Add
	}
	switch {
	case c.Now == nil || c.Entropy == nil:
		return errors.New("bouncer: a clock and a source of randomness are required")
	case c.URL == "" || c.Token == "":
		return errors.New("bouncer: the control plane's URL and the bouncer's token are required (GATEHOUSE_URL, GATEHOUSE_BOUNCER_TOKEN)")
	case c.DiskReserve < 0:
		return errors.New("bouncer: the disk reserve is negative (GATEHOUSE_BOUNCER_DISK_RESERVE)")
	case c.StopDelay < 0:
		return errors.New("bouncer: the stop delay is negative (GATEHOUSE_STOP_DELAY)")
	case c.DataDir == "":
		return errors.New("bouncer: a data directory is required (GATEHOUSE_BOUNCER_DATA_DIR)")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("bouncer: TLS needs both a certificate and a key (GATEHOUSE_BOUNCER_TLS_CERT, GATEHOUSE_BOUNCER_TLS_KEY)")
	case c.InitialMode != "" && c.InitialMode != "enforce" && c.InitialMode != "shadow":
		return fmt.Errorf("bouncer: initial mode %q is neither enforce nor shadow", c.InitialMode)
	}
	return nil
}

// Bouncer is one enforcement point. Make it with New, and serve with Run.
type Bouncer struct {
	cfg       Config
	log       *slog.Logger
	out       *outbound.Client
	up        *upstream.Upstream // nil: the bouncer has no application
	shipper   *controlplane.Shipper
	bundles   *bundlesync.Syncer
	discovery *discovery.Reporter
	journal   *journal.Journal
	reporter  *status.Reporter
	state     atomic.Pointer[settings.State]
	count     metrics.Counters
	announced announcement
	activated chan struct{} // receives a value when a bundle became active
	leaving   atomic.Bool   // a stop was requested

	panics   *panics.Reporter
	reader   *request.Reader
	bodies   *bodies.Store
	buffers  bodies.Buffers
	judge    *judge.Judge
	recorder *record.Recorder
	refusals *refuse.Writer
	masks    *maskbody.Masker
	tools    *mcpguard.Guard
	relay    *relay.Relay
	shadow   *shadow.Decider
	gateway  *gateway.Gateway
}

// New opens the decision log and restores the last good bundle. It does not connect to
// anything.
func New(cfg Config, logger *slog.Logger) (*Bouncer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	plane := outbound.Trusted(outbound.Config{RootCAs: cfg.RootCAs})
	api, err := controlplane.NewClient(cfg.URL, cfg.Token, cfg.Version, plane.HTTP())
	if err != nil {
		return nil, err
	}
	trusted, err := identity.ParseProxies(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	var up *upstream.Upstream
	var b *Bouncer
	if cfg.Upstream != "" {
		up, err = upstream.New(cfg.Upstream, cfg.RootCAs, cfg.UpstreamTimeout, cfg.UpstreamConns, cfg.Now, func() { b.noteUnsolicited() })
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("bouncer: %w", err)
	}
	var seed [32]byte
	if _, err := io.ReadFull(cfg.Entropy, seed[:]); err != nil {
		return nil, fmt.Errorf("bouncer: %w", err)
	}
	b = &Bouncer{cfg: cfg, log: logger, up: up, out: plane, activated: make(chan struct{}, 1)}
	b.panics = panics.New(&b.count, logger)
	if b.bodies, err = bodies.Open(cfg.DataDir, cfg.Entropy); err != nil {
		return nil, err
	}
	source, wake := ids.New(seed), status.NewSignals()
	b.discovery = discovery.New(api, source, &b.count, logger, cfg.Now, func() *rego.Set { return b.state.Load().Set })
	b.bundles = b.newFollower(settings.Reader{Trusted: trusted, Token: cfg.Token, Client: plane.HTTP(), Now: cfg.Now}, api, source, wake)
	b.journal, err = journal.Open(journal.Config{
		Dir: cfg.DataDir, MaxBytes: cfg.SpoolBytes, Reserve: cfg.DiskReserve,
		Missing: func(g *journal.Gap, now time.Time) []byte {
			return record.Gap(b.bundles.Labels(), b.state.Load(), g, now)
		}, Changed: wake.Wake,
		IDs: source, Count: &b.count, Log: logger, Now: cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	b.shipper, err = controlplane.NewShipper(b.journal.Spool, api, source, &b.count, logger, cfg.Now, b.journal.NoteFailing)
	if err != nil {
		return nil, errors.Join(err, b.journal.Close())
	}
	b.assemble(api, source, wake)
	b.bundles.Restore()
	return b, nil
}

// assemble makes the parts that each request passes through.
func (b *Bouncer) assemble(api *controlplane.Client, source *ids.Source, wake *status.Signals) {
	cfg, logger, cache := &b.cfg, b.log, rego.NewCache(b.cfg.CacheBytes)
	accounts, tools, held := usage.New(cfg.Count, cfg.Now), session.OpenTools(cfg.DataDir), new(atomic.Int64)
	b.reader = request.NewReader(b.bodies, source, logger, cfg.Now)
	b.judge = &judge.Judge{Bundles: b.bundles, Cache: cache, Accounts: accounts, Tools: tools, IDs: source, Panics: b.panics, Count: &b.count, Now: cfg.Now, Deadline: cfg.DecisionDeadline}
	b.recorder = record.New(b.journal, b.bundles, b.discovery, b.panics, cfg.Fold, cfg.Decided)
	b.refusals = &refuse.Writer{State: &b.state, Now: cfg.Now}
	b.masks = maskbody.New(maskbody.Config{
		Bodies: b.bodies, Buffers: &b.buffers, Reader: b.reader, Refusals: b.refusals, Panics: b.panics, Count: &b.count, Log: logger,
		Now: cfg.Now, UpstreamTimeout: cfg.UpstreamTimeout, BodyIdle: cfg.BodyIdle,
	})
	b.tools = &mcpguard.Guard{Judge: b.judge, Recorder: b.recorder, Tools: tools, IDs: source, Panics: b.panics, Count: &b.count, Log: logger, Now: cfg.Now, Held: held}
	b.relay = &relay.Relay{
		Up: b.up, Judge: b.judge, Masks: b.masks, Tools: b.tools, Refusals: b.refusals, Buffers: &b.buffers, State: &b.state, Count: &b.count, Log: logger,
		Now: cfg.Now, BodyIdle: cfg.BodyIdle, NoteAppLost: wake.NoteAppLost,
	}
	b.shadow = shadow.New(b.relay, b.recorder, accounts)
	b.gateway = &gateway.Gateway{State: &b.state, Reader: b.reader, Judge: b.judge, Recorder: b.recorder, Refusals: b.refusals, Shadow: b.shadow, Panics: b.panics, Count: &b.count, Log: logger, Now: cfg.Now, TraceCheck: cfg.TraceCheck}
	b.reporter = &status.Reporter{
		Signals: wake, Up: b.up, State: &b.state, Bundles: b.bundles, Journal: b.journal, Shipper: b.shipper, Client: api, Cache: cache, Count: &b.count,
		Log: logger, Now: cfg.Now, Version: cfg.Version, PollWait: cfg.PollWait,
	}
}

// newFollower makes the client that polls for bundles.
func (b *Bouncer) newFollower(reader settings.Reader, api *controlplane.Client, source *ids.Source, wake *status.Signals) *bundlesync.Syncer {
	initial := settings.Enforcing
	if b.cfg.InitialMode == "shadow" {
		initial = settings.Shadowing
	}
	return bundlesync.New(bundlesync.Config{
		ID: b.cfg.ID, Token: b.cfg.Token, Dir: b.cfg.DataDir, Version: b.cfg.Version, InitialMode: initial, Verify: b.cfg.Verify,
		Wait: b.cfg.PollWait, Reader: reader, State: &b.state,
		Activated: b.noteActivated, Changed: wake.Wake,
		Panicked: func(what string, p any) { b.panics.Report(context.Background(), what, p, "") },
		Client:   api, IDs: source, Count: &b.count, Log: b.log, Now: b.cfg.Now, Entropy: b.cfg.Entropy,
	})
}

// noteActivated starts a check of the open sockets against the new active bundle, and announces the
// first bundle.
func (b *Bouncer) noteActivated() {
	select {
	case b.activated <- struct{}{}:
	default:
	}
	b.announce()
}

// Close releases what New opened. Run calls it.
func (b *Bouncer) Close() error {
	if b.up != nil {
		b.up.Close()
	}
	b.out.Close()
	return b.journal.Close()
}

// tunnelCheck is how often the bouncer decides on open sockets again.
const tunnelCheck = 15 * time.Second

// runLoops runs the background loops until ctx ends.
func (b *Bouncer) runLoops(ctx context.Context) {
	var wg sync.WaitGroup
	loops := []func(context.Context){b.bundles.Run, b.shipper.Run, b.reporter.Run, b.maintain, b.discovery.Run, b.journal.Run, b.recorder.Run}
	for range max(1, runtime.GOMAXPROCS(0)/4) {
		loops = append(loops, b.shadow.Work)
	}
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	wg.Wait()
}

// maintain closes connections that were idle for too long, decides on open sockets again, and
// refreshes the key set when it is due.
func (b *Bouncer) maintain(ctx context.Context) {
	tick := time.NewTicker(tunnelCheck)
	defer tick.Stop()
	keysAt := b.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if b.up != nil {
				b.up.Sweep()
			}
		case <-b.activated: // the new policies may close open sockets
		}
		b.relay.RecheckTunnels(ctx)
		st := b.state.Load()
		if st.Tokens == nil || !st.Tokens.Fetches() || b.cfg.Now().Sub(keysAt) < jwks.RefreshEvery {
			continue
		}
		keysAt = b.cfg.Now()
		if err := st.Tokens.Refresh(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("the key set could not be refreshed", "error", err)
		}
	}
}

// noteUnsolicited logs that the application sent bytes that belong to no request.
func (b *Bouncer) noteUnsolicited() {
	b.count.UnaskedBytes.Add(1)
	b.log.Warn("the application sent unsolicited bytes; its connections are not reused for a while", "upstream", b.cfg.Upstream)
}
