// Package enforce is the bouncer: the data plane that stands in front of a
// protected application and acts on the decisions of the controls it was given.
//
//	client ─► framing ─► arrive, admit ─► identify ─► judge ─► relay ─► application
//	          framing       one canonical    who is      rego.Set   lean or
//	                        path and query   proven      .Decide    standard way
//
// What was decided is, byte for byte, what is forwarded. While it enforces,
// nothing fails open: without a bundle, with a stale one, or when a control
// cannot be evaluated, the answer is 503; what cannot be masked is 502. In
// shadow mode everything passes, and what would have happened is recorded.
//
// Gateways ask instead of forwarding: forward-auth (nginx, Traefik, Caddy), and
// Envoy's ext_authz over gRPC or HTTP.
//
// Beside the traffic run four loops, which the control plane may be away from
// for any time: follow (long poll for bundles; the last good one is kept on
// disk), ship (decision log, spooled on disk until acknowledged) and the
// reporter of our own status, in OPA's management protocols; and discovery, which
// reports hosts that nobody registered.
package enforce

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/follow"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/journal"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/session"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Config is what a bouncer is started with. All else comes in its bundle.
type Config struct {
	// URL is the control plane: scheme://host[:port], with or without /api/v1.
	URL string
	// Token is the bouncer's credential.
	Token string
	// ID is the bouncer's id; empty: the control plane is asked whose the token is.
	ID string
	// Listen is the address to serve on (:8080).
	Listen string
	// GRPCListen is the address of Envoy's ext_authz service; empty: none.
	GRPCListen string
	// MetricsListen is the address of /_bouncer/metrics, apart from the traffic;
	// MetricsSame: with the traffic; MetricsOff or empty: nowhere.
	MetricsListen string
	// StopDelay is how long a bouncer that is told to stop goes on taking requests,
	// not ready any more, with Connection: close on its answers.
	StopDelay time.Duration
	// TLSCert and TLSKey are PEM files; both empty: plain HTTP.
	TLSCert, TLSKey string
	// Upstream is the protected application: http://, https:// or h2c:// and
	// host[:port]. Empty: the bouncer answers forward-auth alone.
	Upstream string
	// DataDir holds the last good bundle and the decision log spool.
	DataDir string
	// TrustedProxies are addresses or CIDRs whose identity and forwarding
	// headers are taken. When empty, those of the bundle count.
	TrustedProxies []string
	// InitialMode is enforce (default: fail closed) or shadow: what happens
	// before there ever was a bundle.
	InitialMode string
	// Verify is the key that bundles must be signed with, those from the disk too;
	// nil: signatures are not looked at.
	Verify *bundle.Verify
	// RootCAs are the authorities for the control plane's certificate; nil: the system's.
	RootCAs *x509.CertPool
	// Serving, if set, is called once: when the listener is open and a bundle is
	// active, so that requests are decided on.
	Serving func(address string)
	// Version is our version, for reports.
	Version string

	// UpstreamTimeout is how long the application may take to begin its answer (30s).
	UpstreamTimeout time.Duration
	// BodyIdle is the longest pause inside an answer's body (5m): streams of
	// events are silent for a while.
	BodyIdle time.Duration
	// UpstreamConns bounds connections to the application (1024).
	UpstreamConns int
	// DecisionDeadline bounds one decision (250ms).
	DecisionDeadline time.Duration
	// PollWait is how long the control plane may park a poll (30s).
	PollWait time.Duration
	// CacheBytes bounds the decision cache (64 MiB).
	CacheBytes int64
	// SpoolBytes bounds the decision log on disk (1 GiB); beyond it events are
	// dropped, counted and reported, those of refusals from nine tenths of it on.
	SpoolBytes int64
	// DiskReserve is how many bytes of the disk are held back for the decision log
	// while the disk is full; 0: none.
	DiskReserve int64

	// Fold says when refusals are counted together in the decision log
	// (fold.Defaults).
	Fold fold.Limits

	// Count counts requests and tokens for input.usage; nil: in this process
	// alone. Bouncers that share one hold their limits together.
	Count usage.Count

	// Now is the clock and Entropy the source of randomness; both are needed.
	Now     func() time.Time
	Entropy io.Reader
}

// Validate fills in defaults and says what is missing.
func (c *Config) Validate() error {
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
	if c.Listen == "" {
		c.Listen = ":8080"
	}
	if c.Count == nil && c.Now != nil {
		c.Count = usage.NewTally(c.Now).Add
	}
	switch {
	case c.Now == nil || c.Entropy == nil:
		return errors.New("bouncer: a clock and a source of randomness are needed")
	case c.URL == "" || c.Token == "":
		return errors.New("bouncer: the control plane's URL and the bouncer's token are needed (GATEHOUSE_URL, GATEHOUSE_BOUNCER_TOKEN)")
	case c.DiskReserve < 0:
		return errors.New("bouncer: the disk reserve is negative (GATEHOUSE_BOUNCER_DISK_RESERVE)")
	case c.StopDelay < 0:
		return errors.New("bouncer: the stop delay is negative (GATEHOUSE_STOP_DELAY)")
	case c.DataDir == "":
		return errors.New("bouncer: a data directory is needed (GATEHOUSE_BOUNCER_DATA_DIR)")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("bouncer: a certificate needs its key, and a key its certificate")
	case c.InitialMode != "" && c.InitialMode != "enforce" && c.InitialMode != "shadow":
		return fmt.Errorf("bouncer: initial mode %q is neither enforce nor shadow", c.InitialMode)
	}
	return nil
}

// Bouncer is a running data plane. Make it with New; it serves with Run, or
// through Handler where somebody else listens.
type Bouncer struct {
	cfg     Config
	log     *slog.Logger
	out     *outbound.Client
	client  *uplink.Client
	shipper *uplink.Shipper
	bundles *follow.Follower
	up      *upstream.Upstream // nil: forward-auth only
	state   atomic.Pointer[settings.State]
	// announced is whether Config.Serving was called.
	announced announcement
	cache     *rego.Cache
	journal   *journal.Journal
	ids       *ids.Source
	reader    *request.Reader
	count     metrics.Counters
	buffers   bodies.Buffers
	events    sync.Pool // *[]byte
	inputs    *spool.Allowance
	folder    *fold.Folder[[]byte]
	leaving   atomic.Bool // told to stop: answers end their connections
	tunnels   tunnels
	tools     *session.Tools
	sessions  session.Book
	bodies    *bodies.Store
	accounts  *usage.Accounts
	maskers   chan struct{} // holds a token for each large answer that is being masked
	report    reporter

	shadow      chan shadowJob
	shadowBytes atomic.Int64 // bytes of bodies that wait in shadow mode
	scout       *discovery.Scout
	pending     atomic.Int64   // decisions for Envoy in shadow mode that run
	checking    sync.WaitGroup // the same, to be waited for
	activated   chan struct{}  // holds a token after a bundle became active
}

// New opens the spool, restores the last good bundle and connects to nothing yet.
func New(cfg Config, logger *slog.Logger) (*Bouncer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	plane := outbound.Trusted(outbound.Config{RootCAs: cfg.RootCAs})
	api, err := uplink.NewClient(cfg.URL, cfg.Token, cfg.Version, plane.HTTP())
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
		up, err = upstream.New(cfg.Upstream, cfg.UpstreamTimeout, cfg.UpstreamConns, cfg.Now, func() { b.noteUnsolicited() })
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
	b = &Bouncer{
		cfg: cfg, log: logger, client: api, up: up, cache: rego.NewCache(cfg.CacheBytes),
		tools:  session.OpenTools(cfg.DataDir),
		out:    plane,
		ids:    ids.New(seed),
		report: newReporter(), inputs: newInputAllowance(), folder: fold.New[[]byte](cfg.Fold),
		shadow: make(chan shadowJob, shadowQueue), activated: make(chan struct{}, 1),
	}
	b.scout = discovery.New(api, b.ids, &b.count, logger, cfg.Now, func() *rego.Set { return b.state.Load().Set })
	b.maskers = make(chan struct{}, largeMaskers)
	b.accounts = usage.New(cfg.Count, cfg.Now)
	if b.bodies, err = bodies.Open(cfg.DataDir, cfg.Entropy); err != nil {
		return nil, err
	}
	b.reader = request.NewReader(b.bodies, b.ids, logger, cfg.Now)
	b.events.New = func() any { buf := make([]byte, 0, 2048); return &buf }
	b.bundles = b.newFollower(settings.Reader{Trusted: trusted, Token: cfg.Token, Client: plane.HTTP(), Now: cfg.Now})
	b.journal, err = journal.Open(journal.Config{
		Dir: cfg.DataDir, MaxBytes: cfg.SpoolBytes, Reserve: cfg.DiskReserve,
		Missing: func(g *journal.Gap, now time.Time) []byte { return b.gapEvent(b.state.Load(), g, now) }, Changed: b.report.wakeUp,
		IDs: b.ids, Count: &b.count, Log: logger, Now: cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	b.shipper, err = uplink.NewShipper(b.journal.Spool, b.client, b.ids, &b.count, logger, cfg.Now, b.journal.NoteFailing)
	if err != nil {
		return nil, errors.Join(err, b.journal.Close())
	}
	b.bundles.Restore()
	return b, nil
}

// newFollower makes the client of the bundles.
func (b *Bouncer) newFollower(reader settings.Reader) *follow.Follower {
	initial := settings.Enforcing
	if b.cfg.InitialMode == "shadow" {
		initial = settings.Shadowing
	}
	return follow.New(follow.Config{
		ID: b.cfg.ID, Token: b.cfg.Token, Dir: b.cfg.DataDir, Version: b.cfg.Version, InitialMode: initial, Verify: b.cfg.Verify,
		Wait: b.cfg.PollWait, Reader: reader, State: &b.state,
		Activated: b.noteActivated, Changed: b.report.wakeUp,
		Panicked: func(what string, p any) { b.panicked(context.Background(), what, p, "") },
		Client:   b.client, IDs: b.ids, Count: &b.count, Log: b.log, Now: b.cfg.Now, Entropy: b.cfg.Entropy,
	})
}

// noteActivated has open sockets checked against a bundle that became active, and
// announces the first one.
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

// tunnelCheck is how often open sockets are decided on anew.
const tunnelCheck = 15 * time.Second

// loops runs everything beside the traffic until ctx ends.
func (b *Bouncer) loops(ctx context.Context) {
	var wg sync.WaitGroup
	loops := []func(context.Context){b.bundles.Run, b.shipper.Run, b.reportLoop, b.upkeep, b.scout.Run, b.journal.Run, b.foldLoop}
	for range max(1, runtime.GOMAXPROCS(0)/4) {
		loops = append(loops, b.shadowWork)
	}
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	wg.Wait()
}

// upkeep does what is due now and then: idle connections, keys, open sockets.
func (b *Bouncer) upkeep(ctx context.Context) {
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
		case <-b.activated: // a new policy may close sockets that are open
		}
		b.recheckTunnels(ctx)
		st := b.state.Load()
		if st.Tokens == nil || !st.Tokens.Fetches() || b.cfg.Now().Sub(keysAt) < identity.RefreshEvery {
			continue
		}
		keysAt = b.cfg.Now()
		if err := st.Tokens.Refresh(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("the key set could not be refreshed", "error", err)
		}
	}
}
