package telemetry

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound/outboundtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const apiKey = "a key of the license server"

var admin = scope.Scope{Tenant: scope.DefaultTenant, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "alice"}}

// clock is a clock that only a test moves.
type clock struct{ micros atomic.Int64 }

func (c *clock) now() time.Time       { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) move(d time.Duration) { c.micros.Add(d.Microseconds()) }
func (c *clock) set(at time.Time)     { c.micros.Store(at.UnixMicro()) }

// server is a license server.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	license  string // body of GET /license
	status   int    // of all answers
	asked    int
	reports  []string
	keys     []string // the Idempotency-Key of each report
	redirect string
	called   atomic.Bool // a request has come; it may not be answered yet
}

// newServer starts a license server with an active license.
func newServer(t *testing.T) *server {
	s := &server{license: `{"subscription_tier":"enterprise","subscription_status":"active"}`, status: 200}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		s.called.Store(true)
		s.mu.Lock()
		defer s.mu.Unlock()
		if req.Header.Get("Authorization") != "Bearer "+apiKey {
			w.WriteHeader(401)
			return
		}
		if s.redirect != "" {
			w.Header().Set("Location", s.redirect)
		}
		w.WriteHeader(s.status)
		switch req.Method + " " + req.URL.Path {
		case "GET /base/license":
			s.asked++
			_, _ = io.WriteString(w, s.license)
		case "POST /base/telemetry":
			s.reports, s.keys = append(s.reports, string(body)), append(s.keys, req.Header.Get("Idempotency-Key"))
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// set sets the status of all answers, and the license unless it is empty.
func (s *server) set(status int, license string) {
	s.mu.Lock()
	s.status = status
	if license != "" {
		s.license = license
	}
	s.mu.Unlock()
}

// got returns the reports that came, with their keys.
func (s *server) got() (reports, keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports), slices.Clone(s.keys)
}

// calls returns how often the license was requested.
func (s *server) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// bench is a service with its store, clock and license server.
type bench struct {
	testing.TB
	*Service
	clock  *clock
	server *server
	total  atomic.Int64 // decisions in each day and environment
}

// newBench returns a service on a store.
func newBench(t *testing.T, c *db.Cluster) *bench {
	box, err := secret.New([32]byte{1})
	errtest.Must(t, err)
	target := outboundtest.Local(t)
	b := &bench{TB: t, clock: &clock{}, server: newServer(t)}
	b.clock.set(time.Date(2026, 11, 14, 10, 0, 0, 0, time.UTC))
	var ids atomic.Int64
	b.Service = &Service{
		Stores: c, Now: b.clock.now, Box: box, Target: target, Version: "1.2.3",
		NewID:  func() string { return fmt.Sprint("id", ids.Add(1)) },
		Health: func(context.Context) string { return "healthy" },
		Active: func(context.Context, scope.TenantID) (bool, error) { return true, nil },
		Totals: func(_ context.Context, sc scope.Scope, from, to time.Time) (stats.Rollup, error) {
			days := int64(to.Sub(from)/(24*time.Hour)) + 1
			return stats.Rollup{Permitted: days * b.total.Load(), Errors: 1}, nil
		},
	}
	return b
}

// configure connects the tenant to the license server, and enables reports.
func (b *bench) configure(more ...func(*Change)) Config {
	b.Helper()
	c := Change{URL: new(b.server.URL + "/base"), APIKey: patch.Set(apiKey), Enabled: new(true)}
	for _, f := range more {
		f(&c)
	}
	return b.update(c)
}

// update changes the configuration.
func (b *bench) update(c Change) Config {
	b.Helper()
	out, err := b.Update(context.Background(), admin, c, 0)
	errtest.Must(b, err)
	return out
}

// replica runs the jobs like another process.
func (b *bench) replica() {
	r := &job.Runner{Cluster: b.Stores, Kinds: b.Jobs(), Now: b.clock.now, Logger: slog.New(slog.DiscardHandler), Poll: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run: %v", err)
		}
	})
}

// quiet waits until all jobs that are due have run.
func (b *bench) quiet() {
	b.Helper()
	timetest.Eventually(b, time.Minute, func() error {
		var next *time.Time
		err := b.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
			next, err = job.NextRun(context.Background(), tx, jobKind)
			return err
		})
		if err == nil && (next == nil || !next.After(b.clock.now())) {
			err = fmt.Errorf("the next wake-up is %v", next)
		}
		return err
	})
}

// history returns the transmissions, newest first.
func (b *bench) history() []Entry {
	b.Helper()
	page, err := b.History(context.Background(), admin, 0, 1000)
	errtest.Must(b, err)
	return page
}

// status returns the status of the license.
func (b *bench) status() LicenseStatus {
	b.Helper()
	st, err := b.LicenseStatus(context.Background(), admin)
	errtest.Must(b, err)
	return st
}

// TestSchedulerSendsOnce: three replicas together send each report once, also those that became due
// while none ran, and each report covers its own period.
func TestSchedulerSendsOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.total.Store(2)
		if got := b.configure(); got.NextScheduledAt == nil || !got.NextScheduledAt.Equal(at(t, "2026-11-15")) || got.Frequency != twiceMonthly {
			t.Fatalf("Config = %+v, want twice a month, next on the 15th", got)
		}
		for range 3 {
			b.replica()
		}
		b.quiet()
		if sent, _ := b.server.got(); len(sent) != 0 {
			t.Fatalf("reports before the time = %v, want none", sent)
		}
		b.clock.set(at(t, "2026-11-15T00:01:00Z"))
		b.quiet()
		if sent, _ := b.server.got(); len(sent) != 0 {
			t.Fatalf("reports while decisions of the period may still arrive = %v, want none", sent)
		}
		b.clock.set(at(t, "2026-11-15T00:03:00Z"))
		timetest.Eventually(b, time.Minute, func() error {
			if n := len(b.history()); n != 1 {
				return fmt.Errorf("%d transmissions, want 1", n)
			}
			return nil
		})
		b.quiet()
		b.clock.set(at(t, "2027-01-16T09:00:00Z")) // no process runs for two months
		want := []string{"2026-11-01/2026-11-15", "2026-11-15/2026-12-01", "2026-12-01/2026-12-15", "2026-12-15/2027-01-01", "2027-01-01/2027-01-15"}
		timetest.Eventually(b, time.Minute, func() error {
			if n := len(b.history()); n != len(want) {
				return fmt.Errorf("%d transmissions, want %d", n, len(want))
			}
			return nil
		})
		b.quiet()
		sent, keys := b.server.got()
		if len(sent) != len(want) {
			t.Fatalf("reports = %v, want %d", sent, len(want))
		}
		for i, text := range sent {
			var r Report
			if err := json.Unmarshal([]byte(text), &r); err != nil || r.CurrentPeriod != want[i] {
				t.Errorf("report %d = %s, %v, want the period %s", i, text, err, want[i])
			}
			if i == 0 && (r.TotalEvents != 2*2*14 || r.SandboxEvents != 28 || r.ProductionEvents != 28 || r.SuccessfulDecisions != 54 || r.Tier != "enterprise" || r.DeploymentVersion != "1.2.3") {
				t.Errorf("first report = %+v", r)
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(want) {
			t.Errorf("keys = %v, want %d different ones", keys, len(want))
		}
		got, err := b.Config(context.Background(), admin)
		if err != nil || !got.NextScheduledAt.Equal(at(t, "2027-02-01")) || got.LastTransmissionAt == nil {
			t.Errorf("Config after the reports = %+v, %v", got, err)
		}
	})
}

// TestFailedReports: a failed report is sent again, with the same content and key, until the server
// accepts it or telemetry is disabled. It is deleted after the retention time.
func TestFailedReports(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		ctx := context.Background()
		b.configure(func(c *Change) { c.RetentionDays = new(int64(10)) })
		b.server.set(503, "")
		_, err := b.SendNow(ctx, admin)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Internal || f.Code != "transmission_failed" || !strings.Contains(f.Message, "the license server answered 503") {
			t.Fatalf("SendNow to a failing server: got %v, want transmission_failed", err)
		}
		e := b.history()[0]
		if e.Status != Failed || e.ResponseCode != 503 || e.ResponseMessage != "Service Unavailable" || e.ErrorDetails == nil || e.RecordsSent != 0 || e.TransmittedAt != nil || e.RetryCount != 0 {
			t.Errorf("failed transmission = %+v", e)
		}
		if h, err := b.HealthOf(ctx, admin); err != nil || h.Status != "unhealthy" || len(h.RecentErrors) != 1 {
			t.Errorf("HealthOf = %+v, %v, want unhealthy", h, err)
		}
		if _, err = b.Retry(ctx, admin, e.ID); !fault.Is(err, fault.Internal) || b.history()[0].RetryCount != 1 {
			t.Errorf("Retry to a failing server: got %v, transmission %+v", err, b.history()[0])
		}
		b.total.Store(5) // later decisions do not change the report
		b.server.set(200, "")
		b.replica()
		b.quiet()
		b.clock.move(11 * time.Minute)
		timetest.Eventually(b, time.Minute, func() error {
			if e := b.history()[0]; e.Status != Success || e.RetryCount != 2 || e.RecordsSent != 1 || e.TransmittedAt == nil || e.ErrorDetails != nil {
				return fmt.Errorf("transmission = %+v, want success after 2 retries", e)
			}
			return nil
		})
		sent, keys := b.server.got()
		if len(sent) != 3 || sent[0] != sent[2] || keys[0] != keys[2] || keys[0] == "" {
			t.Errorf("reports = %v with the keys %v, want three equal ones", sent, keys)
		}
		if _, err = b.Retry(ctx, admin, e.ID); !fault.Is(err, fault.Conflict) {
			t.Errorf("Retry of a report that arrived: got %v, want a conflict", err)
		}
		if _, err = b.Retry(ctx, admin, 999); !fault.Is(err, fault.NotFound) {
			t.Errorf("Retry of an unknown report: got %v, want not found", err)
		}
		b.quiet()
		b.clock.move(11 * 24 * time.Hour)
		timetest.Eventually(b, time.Minute, func() error {
			h := b.history()
			if len(h) != 1 || h[0].ID == e.ID { // the report due on the 15th is newer
				return fmt.Errorf("history = %+v, want only the next report", h)
			}
			return nil
		})
		b.update(Change{Enabled: new(false)})
		for _, f := range []func() error{
			func() error { _, err := b.SendNow(ctx, admin); return err },
			func() error { _, err := b.Retry(ctx, admin, b.history()[0].ID); return err },
		} {
			if err := f(); !fault.Is(err, fault.BadRequest) || !strings.Contains(err.Error(), "telemetry is not enabled") {
				t.Errorf("call while telemetry is disabled: got %v, want a bad request", err)
			}
		}
	})
}

// TestRetriesEnd: a report that never arrives is sent a limited number of times.
func TestRetriesEnd(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	b.server.set(500, "")
	if _, err := b.SendNow(context.Background(), admin); err == nil {
		t.Fatal("SendNow to a failing server succeeds, want an error")
	}
	for range 40 {
		b.clock.move(7 * time.Hour / 2)
		ids := []int64{}
		err := b.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
			ids, err = dueTransmissions(context.Background(), tx, b.clock.now())
			return err
		})
		errtest.Must(t, err)
		for _, id := range ids {
			errtest.Must(t, errtest.Of(b.send(context.Background(), admin, id, false)))
		}
	}
	if sent, _ := b.server.got(); len(sent) != 1+maxRetries {
		t.Errorf("%d attempts, want %d", len(sent), 1+maxRetries)
	}
}

// TestOneAttemptAtATime: of many callers that send the same report at once, one succeeds.
func TestOneAttemptAtATime(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.configure()
		b.server.set(500, "")
		_, _ = b.SendNow(context.Background(), admin)
		b.server.set(200, "")
		id := b.history()[0].ID
		var won, lost atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				_, err := b.Retry(context.Background(), admin, id)
				switch {
				case err == nil:
					won.Add(1)
				case fault.Is(err, fault.Conflict):
					lost.Add(1)
				default:
					t.Errorf("Retry: got %v, want a conflict", err)
				}
			})
		}
		all.Wait()
		if sent, _ := b.server.got(); won.Load() != 1 || lost.Load() != 7 || len(sent) != 2 {
			t.Errorf("%d retries succeed, %d conflict, and %d reports came, want 1, 7 and 2", won.Load(), lost.Load(), len(sent))
		}
	})
}

// TestPreviewIsWhatIsSent: the preview and the report have the same bytes, with and without
// anonymisation and encryption.
func TestPreviewIsWhatIsSent(t *testing.T) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	errtest.Must(t, err)
	published := base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
	for _, anonymous := range []bool{false, true} {
		for _, secretly := range []bool{false, true} {
			t.Run(fmt.Sprintf("anonymous=%v,encrypted=%v", anonymous, secretly), func(t *testing.T) {
				b := newBench(t, dbtest.Open(t, dbtest.SQLite))
				b.configure(func(c *Change) { c.Encryption, c.Anonymization = new(secretly), new(anonymous) })
				if secretly { // a server that publishes no key gets no report
					if _, err := b.SendNow(context.Background(), admin); err == nil || !strings.Contains(err.Error(), "no encryption key") {
						t.Fatalf("SendNow without a published key: got %v, want an error", err)
					}
				}
				b.server.set(200, `{"tier":"pro","customer_id":"cust-7","encryption_key":"`+published+`"}`)
				b.status()
				shown, err := b.Preview(context.Background(), admin)
				errtest.Must(t, err)
				want, err := shown.encode()
				errtest.Must(t, err)
				errtest.Must(t, errtest.Of(b.SendNow(context.Background(), admin)))
				reports, _ := b.server.got()
				got := []byte(reports[0])
				if secretly {
					if strings.Contains(reports[0], "cust-7") || strings.Contains(reports[0], "current_period") {
						t.Errorf("encrypted report = %s, want nothing in clear", reports[0])
					}
					got = unseal(t, key, got)
				}
				if string(got) != string(want) {
					t.Errorf("report = %s, want the preview %s", got, want)
				}
				if (shown.CustomerID == "cust-7") == anonymous || strings.HasPrefix(shown.CustomerID, "anon-") != anonymous {
					t.Errorf("customer = %q, want it anonymous: %v", shown.CustomerID, anonymous)
				}
			})
		}
	}
}

// unseal opens an encrypted report.
func unseal(t *testing.T, key *ecdh.PrivateKey, body []byte) []byte {
	t.Helper()
	var s sealed
	errtest.Must(t, json.Unmarshal(body, &s))
	box, err := base64.StdEncoding.DecodeString(s.Ciphertext)
	errtest.Must(t, err)
	private, err := hpke.NewDHKEMPrivateKey(key)
	errtest.Must(t, err)
	plain, err := hpke.Open(private, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(sealInfo), box)
	errtest.Must(t, err)
	return plain
}

// TestSilentServerIsNoticed: the scheduler notices a server that does not answer.
func TestSilentServerIsNoticed(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	b.replica()
	b.quiet()
	b.server.set(500, "")
	b.clock.move(checkEvery + time.Minute)
	timetest.Eventually(b, time.Minute, func() error {
		if got := b.alerts(); len(got) != 1 || got[0] != "connection" {
			return fmt.Errorf("alerts = %v, want connection", got)
		}
		return nil
	})
}

// TestWake: Wake inserts a new wake-up after one was given up.
func TestWake(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	ctx := context.Background()
	next := func() (out SchedulerStatus) {
		out, err := b.Scheduler(ctx, admin)
		errtest.Must(t, err)
		return out
	}
	if err := b.Wake(ctx, scope.DefaultTenant); err != nil || next().Running {
		t.Errorf("Wake without a configuration: %v, scheduler %+v, want it stopped", err, next())
	}
	b.configure()
	if got := next(); !got.Running || !got.Enabled || got.NextScheduledAt == nil {
		t.Errorf("Scheduler = %+v, want it running", got)
	}
	err := b.Stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM jobs`)
		return err
	})
	if err != nil || next().Running {
		t.Fatalf("Scheduler without a wake-up = %+v, %v, want it stopped", next(), err)
	}
	if err := b.Wake(ctx, scope.DefaultTenant); err != nil || !next().Running {
		t.Errorf("Wake: %v, scheduler %+v, want it running", err, next())
	}
}

// TestHealth: the health has five states.
func TestHealth(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	want := func(value, connection string) {
		t.Helper()
		h, err := b.HealthOf(context.Background(), admin)
		if err != nil || h.Status != value || h.ConnectionStatus != connection || h.Message == "" || h.RecentErrors == nil {
			t.Errorf("HealthOf = %+v, %v, want %s and %s", h, err, value, connection)
		}
	}
	want("not_configured", "not_configured")
	b.configure(func(c *Change) { c.Enabled = new(false) })
	want("disabled", "connected")
	b.update(Change{Enabled: new(true)})
	want("warning", "connected")
	errtest.Must(t, errtest.Of(b.SendNow(context.Background(), admin)))
	want("healthy", "connected")
	b.clock.move(recent)
	want("healthy", "connected")
	b.clock.move(time.Second)
	want("warning", "connected")
	b.server.set(500, "")
	want("unhealthy", "disconnected")
}
