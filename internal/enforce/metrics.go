package enforce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

// Special values of Config.MetricsListen.
const (
	MetricsSame = "same" // on the address of the traffic
	MetricsOff  = "off"  // not served
	// MetricsDefault is the default address. If it is in use, for example by another bouncer,
	// a free port is used.
	MetricsDefault = "127.0.0.1:9464"
)

// metricsServer serves the metrics on a separate address. A nil one is off.
type metricsServer struct {
	srv  *http.Server
	done chan struct{}
}

// openMetrics starts the server of the metrics, if one is configured.
func (b *Bouncer) openMetrics(ctx context.Context) (*metricsServer, error) {
	at := b.cfg.MetricsListen
	if at == "" || at == MetricsOff || at == MetricsSame {
		return nil, nil //nolint:nilnil // metrics have no address of their own
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil && at == MetricsDefault {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("bouncer: metrics (GATEHOUSE_BOUNCER_METRICS_LISTEN): %w", err)
	}
	mux := http.NewServeMux()
	serve := func(w http.ResponseWriter, _ *http.Request) { b.count.Write(w, b.gauges()) }
	mux.HandleFunc("GET "+request.OwnPrefix+"metrics", serve)
	mux.HandleFunc("GET /metrics", serve)
	m := &metricsServer{done: make(chan struct{}), srv: &http.Server{
		Handler: mux, ReadHeaderTimeout: headTimeout, ReadTimeout: headTimeout, WriteTimeout: bodies.ClientWriteTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeadBytes,
		ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
	}}
	go func() {
		defer close(m.done)
		if err := m.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("the metrics listener failed", "error", err)
		}
	}()
	b.log.Info("metrics are served", "address", l.Addr().String())
	return m, nil
}

// close stops the server and waits for it.
func (m *metricsServer) close() {
	if m != nil {
		_ = m.srv.Close()
		<-m.done
	}
}

// WriteMetrics writes the metrics in Prometheus' text format.
func (b *Bouncer) WriteMetrics(w io.Writer) { b.count.WriteText(w, b.gauges()) }

// gauges returns the metrics whose values are read at the time of the request.
func (b *Bouncer) gauges() []metrics.Gauge {
	st, logs, disk := b.state.Load(), b.journal.Spool.Stats(), b.journal.Disk()
	return []metrics.Gauge{
		{Name: "decision_logs_refused_total", Kind: "counter", Text: "Decision log events that the log did not accept.", V: float64(logs.Refused)},
		{Name: "decision_logs_healed_total", Kind: "counter", Text: "How often the log continued in a new file after the disk failed.", V: float64(logs.Healed)},
		{Name: "ready", Kind: "gauge", Text: "1 while the bouncer can decide.", V: boolValue(b.bundles.Ready(st))},
		{Name: "enforcing", Kind: "gauge", Text: "1 in enforce mode, 0 in shadow.", V: boolValue(st.Mode == settings.Enforcing)},
		{Name: "controls", Kind: "gauge", Text: "Controls in the active bundle.", V: float64(st.Controls)},
		{Name: "bundle_age_seconds", Kind: "gauge", Text: "Time since the control plane last confirmed the bundle.", V: b.bundles.SinceContact(b.cfg.Now()).Seconds()},
		{Name: "decision_logs_waiting", Kind: "gauge", Text: "Decision log events on disk that wait to be shipped.", V: float64(logs.Records)},
		{Name: "decision_logs_bytes", Kind: "gauge", Text: "Size of the decision records that are not in the store yet.", V: float64(logs.Bytes)},
		{Name: "decision_logs_limit_bytes", Kind: "gauge", Text: "Largest allowed size of the decision log.", V: float64(logs.MaxBytes)},
		{Name: "decision_logs_lag_seconds", Kind: "gauge", Text: "Age of the oldest decision record that is not in the store yet.", V: logs.Lag.Seconds()},
		{Name: "decision_logs_failing", Kind: "gauge", Text: "1 while the decision log cannot be written.", V: boolValue(logs.Refuses())},
		{Name: "disk_reserve_bytes", Kind: "gauge", Text: "Disk space that is still reserved.", V: float64(disk.Held)},
		{Name: "disk_free_bytes", Kind: "gauge", Text: "Free disk space apart from the reserve, as last measured.", V: float64(disk.Free)},
		{Name: "open_tunnels", Kind: "gauge", Text: "WebSockets open through the bouncer.", V: float64(b.relay.OpenTunnels())},
	}
}

func boolValue(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
