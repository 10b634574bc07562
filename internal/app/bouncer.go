package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/enforce"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/usage"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/tracing"
)

// BouncerConfig is the configuration of a bouncer at its start. Everything else is in its bundle.
type BouncerConfig struct {
	URL            string        `env:"GATEHOUSE_URL" required:"" help:"The server, such as https://gatehouse.example.com."`
	Token          string        `env:"GATEHOUSE_BOUNCER_TOKEN" required:"" help:"This bouncer's token, shown once when it was registered."`
	Listen         string        `env:"GATEHOUSE_BOUNCER_LISTEN" default:"127.0.0.1:8081" help:"Address to serve on."`
	GRPCListen     string        `name:"grpc-listen" env:"GATEHOUSE_BOUNCER_GRPC_LISTEN" help:"Address to serve Envoy's ext_authz (gRPC) on, such as 127.0.0.1:9191; absent: not served."`
	Upstream       string        `env:"GATEHOUSE_BOUNCER_UPSTREAM" help:"The application: http://, https:// or h2c://host:port; absent: forward-auth only."`
	DataDir        string        `env:"GATEHOUSE_BOUNCER_DATA_DIR" default:"./.gatehouse-bouncer" help:"Directory for the last good bundle and the decision log."`
	TrustedProxies []string      `env:"GATEHOUSE_BOUNCER_TRUSTED_PROXIES" help:"Addresses or CIDRs whose identity and forwarding headers are trusted."`
	RedisURL       string        `name:"redis-url" env:"GATEHOUSE_BOUNCER_REDIS_URL" help:"redis:// URL for the counters of input.usage, which all bouncers of a tenant with the same URL share; absent: each counts alone."`
	VerifyKey      string        `env:"GATEHOUSE_BOUNCER_VERIFY_KEY" help:"Public key that bundles must be signed with: PEM, or the path of a PEM file; absent: signatures are not verified. Use it with configuration.signing 'signed'; the answer that registers the bouncer contains the key."`
	InitialMode    string        `env:"GATEHOUSE_BOUNCER_INITIAL_MODE" default:"enforce" enum:"enforce,shadow" help:"Mode before the first bundle: enforce (refuse) or shadow (pass)."`
	TLSCert        string        `env:"GATEHOUSE_BOUNCER_TLS_CERT" help:"PEM certificate; absent: plain HTTP."`
	TLSKey         string        `env:"GATEHOUSE_BOUNCER_TLS_KEY" help:"PEM key."`
	Timeout        time.Duration `env:"GATEHOUSE_BOUNCER_UPSTREAM_TIMEOUT" default:"30s" help:"How long the application may take to start its answer."`
	MetricsListen  string        `env:"GATEHOUSE_BOUNCER_METRICS_LISTEN" default:"127.0.0.1:9464" help:"Address to serve /_bouncer/metrics on, apart from the traffic; same: the address of the traffic; off: not served. If the default port is in use, a free port of 127.0.0.1 is used and logged."`
	SpoolBytes     int64         `env:"GATEHOUSE_BOUNCER_SPOOL_BYTES" default:"1073741824" help:"Largest size of the decision log on disk, which holds the events that the server does not have yet, in bytes. Over 80 % the status is degraded; the last 10 % is for requests that passed. configuration.audit says what happens when it is full."`
	DiskReserve    int64         `env:"GATEHOUSE_BOUNCER_DISK_RESERVE" default:"67108864" help:"Bytes to reserve on the disk of the data directory, so that the decision log continues when it is full; 0: none."`
	OTLPEndpoint   string        `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://collector:4318; absent: no traces and metrics are sent."`
	StopDelay      time.Duration `env:"GATEHOUSE_STOP_DELAY" default:"3s" help:"At a stop: how long the process still accepts requests. It is no longer ready and answers with Connection: close, so that load balancers turn away first. 0: not at all."`
	LogLevel       string        `env:"GATEHOUSE_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" help:"Least severe level that is logged."`
	MemoryLimit    int64         `env:"GATEHOUSE_MEMORY_LIMIT" default:"536870912" help:"Soft memory limit of the process in bytes."`
}

// RunBouncer runs a bouncer until the context ends.
func RunBouncer(ctx context.Context, cfg BouncerConfig, version string, out io.Writer) error {
	if cfg.SpoolBytes < minSpoolBytes {
		return fmt.Errorf("GATEHOUSE_BOUNCER_SPOOL_BYTES: %d is less than %d", cfg.SpoolBytes, minSpoolBytes)
	}
	verify, err := verifyKey(cfg.VerifyKey)
	if err != nil {
		return err
	}
	log := newLogger(cfg.LogLevel, os.Stderr)
	stdlog.SetOutput(libraryLog{log})
	count, done, err := sharedCount(ctx, cfg.RedisURL, log)
	if err != nil {
		return err
	}
	defer done()
	var b *enforce.Bouncer
	traces, err := openTracing(ctx, tracing.Config{
		Endpoint: cfg.OTLPEndpoint, Service: "gatehouse-bouncer", Version: version, Log: log,
		Metrics: parseMetrics(func(w io.Writer) { b.WriteMetrics(w) }),
	})
	if err != nil {
		return err
	}
	b, err = enforce.New(enforce.Config{
		URL: cfg.URL, Token: cfg.Token, Listen: cfg.Listen, GRPCListen: cfg.GRPCListen, Upstream: cfg.Upstream, DataDir: cfg.DataDir,
		TrustedProxies: cfg.TrustedProxies, InitialMode: cfg.InitialMode, TLSCert: cfg.TLSCert, TLSKey: cfg.TLSKey,
		UpstreamTimeout: cfg.Timeout, Version: version, Now: ticks, Entropy: rand.Reader, Count: count, Verify: verify,
		SpoolBytes: cfg.SpoolBytes, DiskReserve: cfg.DiskReserve,
		MetricsListen: cfg.MetricsListen, StopDelay: cfg.StopDelay, Trace: traces.Wrap, Decided: traces.Decided(), TraceCheck: traces.CheckHook(),
		Serving: func(address string) {
			fmt.Fprintf(out, "gatehouse bouncer %s serves on %s\n", version, address)
		},
	}, log)
	if err != nil {
		return err
	}
	tune(cfg.MemoryLimit)
	err = b.Run(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracingGrace)
	defer cancel()
	return errors.Join(err, traces.Close(last))
}

// verifyKey reads the key of signed bundles: a path, or PEM in which \n may stand for a
// line break, because many environment files allow only one line.
func verifyKey(setting string) (*bundle.Verify, error) {
	if setting == "" {
		return nil, nil //nolint:nilnil // without a key, signatures are not checked
	}
	text := strings.ReplaceAll(setting, `\n`, "\n")
	if !strings.Contains(setting, "-----BEGIN") {
		data, err := os.ReadFile(setting)
		if err != nil {
			return nil, fmt.Errorf("GATEHOUSE_BOUNCER_VERIFY_KEY is neither PEM nor a file that can be read: %w", err)
		}
		text = string(data)
	}
	verify, err := bundle.ReadVerify(text)
	if err != nil {
		return nil, fmt.Errorf("GATEHOUSE_BOUNCER_VERIFY_KEY: %w", err)
	}
	return verify, nil
}

// sharedCount returns a counter in Redis. Without an address, and while Redis is unavailable, each
// bouncer counts alone.
func sharedCount(ctx context.Context, url string, log *slog.Logger) (usage.Count, func(), error) {
	if url == "" {
		return nil, func() {}, nil
	}
	c, err := cache.Open(ctx, cache.Config{URL: url, Now: clock, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	count := func(ctx context.Context, key string, n int64, window time.Duration) int64 {
		tenant, rest, _ := strings.Cut(key, ":") // keys of counters begin with the tenant
		w, err := c.Count(ctx, tenant, "usage:"+rest, n, window)
		if err != nil { // only a window without a length is an error, and there is none
			return 0
		}
		return w.Count
	}
	return count, c.Close, nil
}
