package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/action"
	"github.com/gatehouse-dev/gatehouse/internal/api/system"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/servertls"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// What happens to decisions while the log cannot be written.
const (
	auditRequired   = "required"
	auditBestEffort = "best_effort"
)

// errUnlogged says that the server is not ready because it cannot log decisions.
var errUnlogged = errors.New("the decision log cannot be written")

const (
	// keeperEvery is how often the log and its disk are checked.
	keeperEvery = 250 * time.Millisecond
	// lagAlert is the age from which a record that is not in the store raises an alert.
	lagAlert = time.Minute
	// alarmEvery is how often a failing log is reported in the server's own log.
	alarmEvery = 10 * time.Second
)

// logMonitor watches the decision log of this process, its disk, and the deployment's own certificate. It
// reserves disk space, records missing decisions, and raises alerts.
type logMonitor struct {
	posture string
	spool   *spool.Log
	reserve *spool.Reserve
	audit   *audit.DecisionLog
	stores  *db.Cluster
	name    string // the name of this process, as the subject of alerts
	now     func() time.Time
	log     *slog.Logger
	// terminator has the deployment's own certificate; nil: the server does not end TLS.
	terminator *servertls.Terminator

	mu      sync.Mutex
	alarmed time.Time
	quiet   int // alarms that were suppressed since then
	raised  map[alertKey]raisedAlert
	// shared are the open alerts of all replicas. renewed is when this one renewed its own.
	shared  *tenant.ReplicaAlerts
	renewed time.Time
}

// raisedAlert is the state of an alert.
type raisedAlert struct {
	logged  bool // this process has logged it
	stored  bool
	message string
}

// alertKey identifies an alert.
type alertKey = tenant.AlertKey

// openLog opens the decision log of this process.
func (p *parts) openLog() error {
	reserve, err := spool.ReserveSpace(p.cfg.DataDir, p.cfg.DiskReserve)
	if err != nil {
		return err
	}
	p.closers.add("disk reserve", time.Second, func(context.Context) error { return reserve.Close() })
	if p.cfg.DatabaseURL == "" { // the stores are on this disk
		p.stores.OnDiskFull(reserve.Release)
	}
	dir := filepath.Join(p.cfg.DataDir, "spool")
	log, err := spool.Open(spool.Config{Dir: dir, Sync: spool.SyncPolicy(p.cfg.AuditSync), MaxBytes: p.cfg.SpoolBytes, SegmentBytes: min(p.cfg.SpoolBytes/4, 64<<20), Reserve: reserve})
	if err != nil {
		return fmt.Errorf("open the audit spool in %s (only one server may use a data directory): %w", dir, err)
	}
	p.closers.add("audit spool", 5*time.Second, func(context.Context) error { return log.Close() })
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	k := &logMonitor{
		posture: p.cfg.Audit, spool: log, reserve: reserve, stores: p.stores, name: host + " " + p.cfg.Listen, now: p.now, log: p.log, terminator: p.terminator,
		raised: map[alertKey]raisedAlert{},
		shared: &tenant.ReplicaAlerts{Stores: p.stores, Types: []string{auditPipeline, diskSpace, ownCertificate}, Now: p.now},
	}
	p.tenants.OnPurge = append(p.tenants.OnPurge, k.shared.ForgetTenant)
	marks, left := p.openMarks()
	floods := fold.Defaults()
	p.actions = &action.Service{Stores: p.stores, Now: p.now, Outbox: notify.Outbox{Root: p.cfg.url()}}
	k.audit = audit.NewDecisionLog(audit.Config{
		Cluster: p.stores, Spool: log, SetAside: filepath.Join(p.cfg.DataDir, "set-aside"), Now: p.now, Logger: p.log,
		Kept: keptInputs, Fold: &floods, BestEffort: p.cfg.Audit == auditBestEffort, Marks: marks, Left: left, Alarm: k.reportFailure,
		Stored: func(ctx context.Context, tx *db.Tx, tenant scope.TenantID, fresh []audit.NewDecision) error {
			if err := p.agents.Count(ctx, tx, fresh); err != nil {
				return err
			}
			return p.actions.Take(ctx, tx, tenant, fresh)
		},
	})
	for _, t := range []alertKey{
		{Type: auditPipeline, Subject: "failing"},
		{Type: auditPipeline, Subject: "full"},
		{Type: auditPipeline, Subject: "filling"},
		{Type: auditPipeline, Subject: "lagging"},
		{Type: diskSpace, Subject: "reserve in use"},
		{Type: diskSpace, Subject: "low"},
		{Type: ownCertificate, Subject: "ending"},
		{Type: ownCertificate, Subject: "ended"},
		{Type: ownCertificate, Subject: "early"},
		{Type: ownCertificate, Subject: "unused"},
	} { // an earlier process may have raised these alerts
		k.raised[alertKey{Tenant: scope.DefaultTenant, Type: t.Type, Subject: tenant.ReplicaSubject(t.Subject, k.name)}] = raisedAlert{}
	}
	forget := k.audit.Forget
	p.tenants.OnPurge = append(p.tenants.OnPurge, func(_ context.Context, id scope.TenantID) error { return forget(id) })
	p.tenants.Purged = append(p.tenants.Purged, forget)
	p.audit, p.keeper = k.audit, k
	return p.registry.Register(k)
}

// missingPlaces is how many tenants and environments can have missing decisions recorded on disk at
// the same time. The file takes 512 KiB.
const missingPlaces = 2048

// missingFile is their file in the data directory.
const missingFile = "missing"

// openMarks opens the record of missing decisions. If that fails, the server starts nevertheless,
// but the counts are lost with the process.
func (p *parts) openMarks() (*spool.Marks, map[int][]byte) {
	marks, left, err := spool.OpenMarks(filepath.Join(p.cfg.DataDir, missingFile), missingPlaces)
	if err != nil {
		p.log.Warn("missing decisions are counted in memory only", "error", err)
		return nil, nil
	}
	p.closers.add("the record of missing decisions", time.Second, func(context.Context) error { return marks.Close() })
	return marks, left
}

// reportFailure logs that the decision log cannot be written, at most once every alarmEvery.
func (m *logMonitor) reportFailure(t scope.TenantID, err error) {
	m.mu.Lock()
	now := m.now()
	due := now.Sub(m.alarmed) >= alarmEvery
	quiet := m.quiet
	if due {
		m.alarmed, m.quiet = now, 0
	} else {
		m.quiet++
	}
	m.mu.Unlock()
	if due {
		m.log.Error("audit pipeline error", "tenant", t, "error", err, "more", quiet)
	}
}

// health returns the state of the log.
func (m *logMonitor) health() system.AuditHealth {
	s, r := m.spool.Stats(), m.reserve.Stats()
	h := system.AuditHealth{
		Status: "up", Posture: m.posture, Waiting: s.Records, WaitingBytes: s.Bytes, LimitBytes: s.MaxBytes, LagSeconds: s.Lag.Seconds(),
		Refused: s.Refused, Missing: m.audit.MissingTotal(), Healed: s.Healed, ReserveBytes: r.Held,
	}
	switch {
	case s.Refuses():
		h.Status, h.Refusing = "down", m.posture == auditRequired
	case len(m.problems()) > 0:
		h.Status = "degraded"
	}
	return h
}

// run watches the log until ctx ends.
func (m *logMonitor) run(ctx context.Context) error {
	tick := time.NewTicker(keeperEvery)
	defer tick.Stop()
	for {
		m.reserve.Check()
		_ = m.audit.WriteMissing() // the next round tries again
		m.reconcile(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// The types of the alerts on this process: on the decision log, its disk, and the deployment's own
// certificate.
const (
	auditPipeline  = "audit_pipeline"
	diskSpace      = "disk_space"
	ownCertificate = "deployment_certificate"
)

// troubles are current problems, with the alert for each.
type troubles map[alertKey]tenant.Alert

// add adds an alert about this process to those of a tenant.
func (m *logMonitor) add(to troubles, t scope.TenantID, kind, what, severity, format string, args ...any) {
	subject := tenant.ReplicaSubject(what, m.name)
	to[alertKey{Tenant: t, Type: kind, Subject: subject}] = tenant.Alert{Type: kind, Severity: severity, Subject: subject, Message: fmt.Sprintf(format, args...), CreatedAt: m.now()}
}

// addCertificate adds the problems of the deployment's certificate: that it ends soon, has ended or has
// not begun, or that the files have another that is not valid now.
func (m *logMonitor) addCertificate(to troubles) {
	if m.terminator == nil {
		return
	}
	add := func(what, severity, format string, at time.Time) {
		m.add(to, scope.DefaultTenant, ownCertificate, what, severity, format, at.UTC().Format(time.RFC3339))
	}
	own, now := m.terminator.Own(), m.now()
	switch {
	case now.Before(own.Begin):
		add("early", tenant.SeverityCritical, "the deployment's own certificate is not valid before %s: clients refuse to connect", own.Begin)
	case !now.Before(own.End):
		add("ended", tenant.SeverityCritical, "the deployment's own certificate ended at %s: clients refuse to connect", own.End)
	case !now.Before(own.Warn):
		add("ending", tenant.SeverityWarning, "the deployment's own certificate ends at %s: renew the files of GATEHOUSE_TLS_CERT and GATEHOUSE_TLS_KEY", own.End)
	}
	switch other, kept := m.terminator.Kept(); {
	case !kept:
	case now.Before(other.Begin):
		add("unused", tenant.SeverityWarning, "the certificate in the files is not valid before %s: the one before stays in use until then, or until the server starts again", other.Begin)
	default:
		add("unused", tenant.SeverityWarning, "the certificate in the files ended at %s: the one before stays in use until the server starts again", other.End)
	}
}

// problems returns the current problems of the decision log and its disk.
func (m *logMonitor) problems() troubles {
	s, r := m.spool.Stats(), m.reserve.Stats()
	out := troubles{}
	add := func(t scope.TenantID, kind, what, severity, format string, args ...any) {
		m.add(out, t, kind, what, severity, format, args...)
	}
	platform := scope.DefaultTenant
	switch {
	case s.Failing != nil:
		add(platform, auditPipeline, "failing", tenant.SeverityCritical, "the decision log cannot be written: its disk is full or failing")
	case s.Full:
		add(platform, auditPipeline, "full", tenant.SeverityCritical, "the decision log is at its limit of %d bytes and cannot be stored", s.MaxBytes)
	case s.Filling():
		add(platform, auditPipeline, "filling", tenant.SeverityWarning, "the decision log waiting to be stored is over 80 %% of its limit of %d bytes", s.MaxBytes)
	}
	if s.Lag > lagAlert {
		add(platform, auditPipeline, "lagging", tenant.SeverityWarning, "decisions have waited for more than %s to be stored", lagAlert)
	}
	switch {
	case r.InUse:
		add(platform, diskSpace, "reserve in use", tenant.SeverityCritical, "the disk is full: decisions and sign-in continue with the reserve of %d bytes, changes are refused", r.Size)
	case r.Low:
		add(platform, diskSpace, "low", tenant.SeverityWarning, "less than %d bytes are free on the disk, apart from the reserve", r.Size)
	}
	for t, missing := range m.audit.MissingNow() {
		add(t, auditPipeline, "missing", tenant.SeverityCritical, "decisions are answered without being logged since %s", missing.First.UTC().Format(time.RFC3339))
	}
	return out
}

// reconcile raises alerts for current problems and resolves the others. Now and then it renews the open
// ones, and resolves those of replicas that are gone.
func (m *logMonitor) reconcile(ctx context.Context) {
	now := m.problems()
	m.addCertificate(now)
	for t, alert := range now {
		was := m.raised[t]
		same := was.message == alert.Message
		if was.stored && same {
			continue
		}
		if !was.logged || !same {
			m.log.Error("alert raised", "type", t.Type, "subject", t.Subject, "severity", alert.Severity, "message", alert.Message)
		}
		stored := m.write(ctx, t.Tenant, func(tx *db.Tx) error { return tenant.ReplaceAlert(ctx, tx, alert) })
		m.raised[t] = raisedAlert{logged: true, stored: stored, message: alert.Message}
	}
	for t, was := range m.raised {
		if _, holds := now[t]; holds {
			continue
		}
		if m.write(ctx, t.Tenant, func(tx *db.Tx) error { return tenant.ResolveAlerts(ctx, tx, t.Type, t.Subject, m.now()) }) {
			if was.logged {
				m.log.Info("alert resolved", "type", t.Type, "subject", t.Subject)
			}
			delete(m.raised, t)
			if was.stored {
				m.withTimeout(ctx, func(ctx context.Context) { _ = m.shared.Forget(ctx, t) }) // Sweep removes it otherwise
			}
		}
	}
	if at := m.now(); at.Sub(m.renewed) >= tenant.RenewEvery || at.Before(m.renewed) {
		m.renewed = at
		m.withTimeout(ctx, func(ctx context.Context) { m.renew(ctx, now) })
	}
}

// renew renews the open alerts of this replica, and resolves those of replicas that are gone. An alert
// that was not known is opened again in the next round, unless it is open.
func (m *logMonitor) renew(ctx context.Context, now troubles) {
	unknown, err := m.shared.Renew(ctx, slices.Collect(maps.Keys(now)))
	if err != nil {
		return // the next time tries again
	}
	for _, t := range unknown {
		was := m.raised[t]
		was.stored = false
		m.raised[t] = was
	}
	gone, err := m.shared.Sweep(ctx)
	for _, t := range gone {
		m.log.Info("alert of a server that is gone resolved", "type", t.Type, "subject", t.Subject, "tenant", t.Tenant)
	}
	if err != nil {
		m.log.Warn("the alerts of other servers cannot be checked", "error", err)
	}
}

// withTimeout calls fn with a context that ends after alertTimeout.
func (m *logMonitor) withTimeout(ctx context.Context, fn func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, alertTimeout)
	defer cancel()
	fn(ctx)
}

// alertTimeout is how long an alert waits for the store.
const alertTimeout = 2 * time.Second

// write changes a tenant's alerts. It returns false if the store cannot be written now.
func (m *logMonitor) write(ctx context.Context, id scope.TenantID, fn func(tx *db.Tx) error) bool {
	ctx, cancel := context.WithTimeout(ctx, alertTimeout)
	defer cancel()
	return m.stores.Write(ctx, id, fn) == nil
}

// The metrics of Collect, in order.
var keeperFigures = []struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}{
	{figure("audit_spool_records", "Decision records that are not in the store yet."), prometheus.GaugeValue},
	{figure("audit_spool_bytes", "Size of the decision records that are not in the store yet."), prometheus.GaugeValue},
	{figure("audit_spool_limit_bytes", "Largest allowed size of the decision log."), prometheus.GaugeValue},
	{figure("audit_spool_lag_seconds", "Age of the oldest decision record that is not in the store yet."), prometheus.GaugeValue},
	{figure("audit_failing", "1 while the decision log cannot be written."), prometheus.GaugeValue},
	{figure("audit_refused_total", "Decision records that the log refused."), prometheus.CounterValue},
	{figure("audit_missing_total", "Decisions that were answered without a record."), prometheus.CounterValue},
	{figure("audit_folded_total", "Refusals that were counted together with others instead of having entries of their own."), prometheus.CounterValue},
	{figure("audit_healed_total", "How often the log continued in a new file after a disk error."), prometheus.CounterValue},
	{figure("disk_reserve_bytes", "Disk space that is still reserved."), prometheus.GaugeValue},
	{figure("disk_free_bytes", "Free disk space apart from the reserve, as last measured."), prometheus.GaugeValue},
}

func figure(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("gatehouse_"+name, help, nil, nil)
}

// Describe implements prometheus.Collector.
func (m *logMonitor) Describe(out chan<- *prometheus.Desc) {
	for _, f := range keeperFigures {
		out <- f.desc
	}
	if m.terminator != nil {
		out <- certificateLeft
	}
}

// certificateLeft describes a metric that only a server with TLS has.
var certificateLeft = figure("tls_certificate_left_seconds", "How long the deployment's own certificate is still valid. Negative while it is not: the time since its end, or until its begin.")

// Collect implements prometheus.Collector.
func (m *logMonitor) Collect(out chan<- prometheus.Metric) {
	s, r := m.spool.Stats(), m.reserve.Stats()
	failing := 0.0
	if s.Refuses() {
		failing = 1
	}
	for i, v := range []float64{
		float64(s.Records), float64(s.Bytes), float64(s.MaxBytes), s.Lag.Seconds(), failing, float64(s.Refused),
		float64(m.audit.MissingTotal()), float64(m.audit.FoldedTotal()), float64(s.Healed), float64(r.Held), float64(r.Free),
	} {
		out <- prometheus.MustNewConstMetric(keeperFigures[i].desc, keeperFigures[i].kind, v)
	}
	if m.terminator != nil {
		out <- prometheus.MustNewConstMetric(certificateLeft, prometheus.GaugeValue, m.terminator.Own().Left(m.now()).Seconds())
	}
}
