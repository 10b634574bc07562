package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Where the metrics are served, beside an address.
const (
	MetricsSame = "same" // with the traffic
	MetricsOff  = "off"  // nowhere
	// MetricsDefault is the default address. Where it is taken, by another bouncer of
	// the host, a free port is used.
	MetricsDefault = "127.0.0.1:9464"
)

// metricsServer serves the metrics on an address of their own; nil: none does.
type metricsServer struct {
	srv  *http.Server
	done chan struct{}
}

// openMetrics listens for who collects metrics, if it is configured to.
func (b *Bouncer) openMetrics(ctx context.Context) (*metricsServer, error) {
	at := b.cfg.MetricsListen
	if at == "" || at == MetricsOff || at == MetricsSame {
		return nil, nil //nolint:nilnil // nobody listens
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil && at == MetricsDefault {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("bouncer: metrics (GATEHOUSE_BOUNCER_METRICS_LISTEN): %w", err)
	}
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, _ *http.Request) { b.metrics(w) }
	mux.HandleFunc("GET "+ownPrefix+"metrics", serve)
	mux.HandleFunc("GET /metrics", serve)
	m := &metricsServer{done: make(chan struct{}), srv: &http.Server{
		Handler: mux, ReadHeaderTimeout: headTimeout, ReadTimeout: headTimeout, WriteTimeout: clientWrite, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeadBytes,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(m.done)
		if err := m.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("metrics are not served any more", "error", err)
		}
	}()
	b.log.Info("metrics are served", "address", l.Addr().String())
	return m, nil
}

// close ends the server and waits for it.
func (m *metricsServer) close() {
	if m != nil {
		_ = m.srv.Close()
		<-m.done
	}
}

// counters are the bouncer's figures since its start.
type counters struct {
	words [6]atomic.Uint64 // by verdict, in the order of words
	// refused are requests that were turned away before any decision.
	refused, failed, panics                                atomic.Uint64
	upstreamErrors, upstreamTimeouts, aborted, clientGone  atomic.Uint64
	toolsChanged, unaskedBytes                             atomic.Uint64
	slowClient, maskFailures, tunnelsClosed, shadowSkipped atomic.Uint64
	hostsReported, hostsWithheld                           atomic.Uint64
	logsDropped, logsShipped, logsFolded                   atomic.Uint64
	bundlesActivated, bundlesRefused, saveFailures         atomic.Uint64
	bundlesUnproven                                        atomic.Uint64

	decisions, hits atomic.Uint64
	buckets         [len(bucketBounds) + 1]atomic.Uint64
	nanoseconds     atomic.Uint64
}

var words = [...]string{wordPermit, wordDeny, wordMask, wordPassThrough, wordShadowDeny, wordShadowMask}

// bucketBounds are the decision histogram's upper bounds.
var bucketBounds = [...]time.Duration{
	time.Microsecond, 5 * time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond,
	2 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond,
}

// decision counts one decision.
func (c *counters) decision(took time.Duration, hit bool) {
	c.decisions.Add(1)
	if hit {
		c.hits.Add(1)
	}
	c.nanoseconds.Add(uint64(max(took, 0)))
	i := 0
	for i < len(bucketBounds) && took > bucketBounds[i] {
		i++
	}
	c.buckets[i].Add(1)
}

// verdict counts what became of a request.
func (c *counters) verdict(v *verdict) {
	for i, w := range words {
		if w == v.word {
			c.words[i].Add(1)
			break
		}
	}
	if v.failed != "" {
		c.failed.Add(1)
	}
}

// requests is how many requests were decided on.
func (c *counters) requests() (n uint64) {
	for i := range c.words {
		n += c.words[i].Load()
	}
	return n
}

// metrics answers /_bouncer/metrics in Prometheus' text format. It names no
// tenant, no caller and no path.
func (b *Bouncer) metrics(w http.ResponseWriter) {
	out := make([]byte, 0, 4096)
	help := func(name, kind, text string) {
		out = append(out, "# HELP gatehouse_bouncer_"+name+" "+text+"\n# TYPE gatehouse_bouncer_"+name+" "+kind+"\n"...)
	}
	line := func(name, labels string, v float64) {
		out = append(out, "gatehouse_bouncer_"+name+labels+" "...)
		out = strconv.AppendFloat(out, v, 'g', -1, 64)
		out = append(out, '\n')
	}
	c := &b.count
	help("verdicts_total", "counter", "Requests by verdict.")
	for i, word := range words {
		line("verdicts_total", `{verdict="`+word+`"}`, float64(c.words[i].Load()))
	}
	for _, m := range []struct {
		name, text string
		v          *atomic.Uint64
	}{
		{"refused_total", "Requests refused before a decision: malformed or ambiguous.", &c.refused},
		{"failed_decisions_total", "Requests without a proper decision: no bundle, stale, evaluation error.", &c.failed},
		{"panics_total", "Panics that were contained.", &c.panics},
		{"upstream_errors_total", "Requests that the application could not be reached for.", &c.upstreamErrors},
		{"upstream_timeouts_total", "Requests that the application did not answer in time.", &c.upstreamTimeouts},
		{"upstream_unasked_total", "Connections on which the application sent bytes that belong to no request.", &c.unaskedBytes},
		{"aborted_answers_total", "Answers that broke off.", &c.aborted},
		{"slow_clients_total", "Requests whose body came too slowly.", &c.slowClient},
		{"mask_failures_total", "Answers that could not be masked and were refused.", &c.maskFailures},
		{"mcp_tools_changed_total", "Tools of MCP servers that changed their description.", &c.toolsChanged},
		{"tunnels_closed_total", "Open sockets closed by a new decision.", &c.tunnelsClosed},
		{"shadow_skipped_total", "Requests in shadow mode that were not decided for lack of capacity.", &c.shadowSkipped},
		{"decision_logs_dropped_total", "Decision log events that were lost.", &c.logsDropped},
		{"decision_logs_folded_total", "Refusals that were counted together with others instead of having events of their own.", &c.logsFolded},
		{"decision_logs_shipped_total", "Decision log events that the control plane acknowledged.", &c.logsShipped},
		{"hosts_reported_total", "Hosts without a resource that were reported.", &c.hostsReported},
		{"hosts_withheld_total", "Requests to further such hosts, beyond what is reported an hour.", &c.hostsWithheld},
		{"bundles_activated_total", "Bundles that became active.", &c.bundlesActivated},
		{"bundles_refused_total", "Bundles that were refused.", &c.bundlesRefused},
		{"bundles_unconfirmed_total", "Answers to polls that were not proven to be fresh.", &c.bundlesUnproven},
		{"decision_cache_hits_total", "Decisions from the cache.", &c.hits},
	} {
		help(m.name, "counter", m.text)
		line(m.name, "", float64(m.v.Load()))
	}
	help("decision_seconds", "histogram", "Time of a decision.")
	var sum uint64
	for i, bound := range bucketBounds {
		sum += c.buckets[i].Load()
		line("decision_seconds_bucket", `{le="`+strconv.FormatFloat(bound.Seconds(), 'g', -1, 64)+`"}`, float64(sum))
	}
	sum += c.buckets[len(bucketBounds)].Load()
	line("decision_seconds_bucket", `{le="+Inf"}`, float64(sum))
	line("decision_seconds_sum", "", float64(c.nanoseconds.Load())/1e9)
	line("decision_seconds_count", "", float64(sum))

	for _, g := range b.gauges() {
		help(g.name, g.kind, g.text)
		line(g.name, "", g.v)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(out)
}

// gauge is a figure that is read when it is asked for.
type gauge struct {
	name, kind, text string
	v                float64
}

// gauges are the figures that nobody counts on the way.
func (b *Bouncer) gauges() []gauge {
	st, logs, disk := b.state.Load(), b.spool.Stats(), b.reserve.Stats()
	return []gauge{
		{"decision_logs_refused_total", "counter", "Decision log events that the log did not take.", float64(logs.Refused)},
		{"decision_logs_healed_total", "counter", "Times that the log went on in a new file after the disk had failed.", float64(logs.Healed)},
		{"ready", "gauge", "1 while the bouncer can decide.", truth(b.ready(st))},
		{"enforcing", "gauge", "1 in enforce mode, 0 in shadow.", truth(st.mode == enforcing)},
		{"controls", "gauge", "Controls in the active bundle.", float64(st.controls)},
		{"bundle_age_seconds", "gauge", "Time since the control plane last confirmed the bundle.", b.sinceContact(b.cfg.Now()).Seconds()},
		{"decision_logs_waiting", "gauge", "Decision log events on disk that wait to be shipped.", float64(logs.Records)},
		{"decision_logs_bytes", "gauge", "Size of these.", float64(logs.Bytes)},
		{"decision_logs_limit_bytes", "gauge", "Ceiling of that size.", float64(logs.MaxBytes)},
		{"decision_logs_lag_seconds", "gauge", "Age of the oldest of these.", logs.Lag.Seconds()},
		{"decision_logs_failing", "gauge", "1 while the decision log cannot be written.", truth(logs.Refuses())},
		{"disk_reserve_bytes", "gauge", "Room on the disk that is held back still.", float64(disk.Held)},
		{"disk_free_bytes", "gauge", "Room on the disk beside what is held back, as last seen.", float64(disk.Free)},
		{"open_tunnels", "gauge", "WebSockets open through the bouncer.", float64(b.tunnels.size())},
	}
}

func truth(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
