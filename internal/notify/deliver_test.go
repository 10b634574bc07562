package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

func TestBackoff(t *testing.T) {
	for i, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, time.Hour, time.Hour, time.Hour} {
		if got := Backoff(i + 1); got != want {
			t.Errorf("after %d attempts %s, want %s", i+1, got, want)
		}
	}
	if Backoff(1000) != time.Hour || Backoff(0) != 15*time.Minute {
		t.Error("the ends")
	}
}

// TestStates takes a delivery through all its states. It checks the pauses that the specification
// requires, the audit entries, and that a dead letter can be sent again.
func TestStates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		three := 3
		ch := b.channel(Draft{Endpoint: r.URL, MaxAttempts: &three, Credential: "s3cret-of-hmac"})
		r.set(func(recorded) (int, string) { return 500, "" })
		b.queue(Note{Alert: "x", Fault: "f", Title: "t"})
		one := func(status string, attempts int, pause time.Duration) {
			t.Helper()
			d := b.deliveries(DeliveryFilter{Channel: ch.ID})[0]
			if d.Status != status || d.Attempts != attempts || d.RetryCount != max(0, attempts-1) {
				t.Fatalf("%+v, want %s after %d attempts", d, status, attempts)
			}
			if (d.NextAttemptAt == nil) != (pause < 0) {
				t.Fatalf("the next attempt is at %v", d.NextAttemptAt)
			}
			if pause > 0 && d.NextAttemptAt.Sub(d.Log[len(d.Log)-1].At) < pause {
				t.Fatalf("tried again after %s, want %s", d.NextAttemptAt.Sub(d.Log[len(d.Log)-1].At), pause)
			}
		}
		one(Pending, 0, 0)
		for i, pause := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
			b.round("a", ch)
			one(Failed, i+1, pause)
			b.round("a", ch) // too early
			one(Failed, i+1, pause)
			b.clock.Move(pause + time.Second)
		}
		b.round("a", ch)
		one(DLQ, 3, -1)
		b.clock.Move(24 * time.Hour)
		b.round("a", ch)
		if n := len(r.list()); n != 3 {
			t.Errorf("%d calls, want 3", n)
		}
		if b.audited("notification_dlq") != 1 || b.audited("NOTIFICATION_DELIVERY_FAILED") != 2 {
			t.Error("the audit does not say what happened")
		}
		r.set(func(recorded) (int, string) { return 204, "" })
		id := b.deliveries(DeliveryFilter{})[0].ID
		if _, err := b.Retry(context.Background(), admin, id); err != nil {
			t.Fatal(err)
		}
		b.round("a", ch)
		one(Sent, 1, -1)
		if _, err := b.Retry(context.Background(), admin, id); err == nil {
			t.Error("what was sent is sent again")
		}
		call := r.list()[3]
		if call.header.Get("X-Service-Signature") != outbound.Signature([]byte("s3cret-of-hmac"), []byte(call.body)) {
			t.Error("the body is not signed")
		}
		if b.audited("NOTIFICATION_DELIVERY_SENT") != 1 || b.audited("NOTIFICATION_DELIVERY_RETRIED") != 1 {
			t.Error("the audit does not say that it was sent")
		}
	})
}

// TestAnswersThatCannotBeStored checks that an answer which the store refuses, in any member of the
// attempt, counts as a failed attempt, and that the message is not due again at once.
func TestAnswersThatCannotBeStored(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		for what, odd := range map[string]Attempt{
			"ticket": {ticket: "a\x00b"}, "response": {Response: "a\x00b"}, "error": {Error: "a\xffb\x00"},
		} {
			b := newBench(t, c)
			ch := b.channel(Draft{Name: what, Endpoint: newReceiver(t).URL})
			b.queue(Note{Alert: "x", Fault: what, Title: "t"})
			d := &Deliverer{Service: b.Service, Holder: "a", Logger: slog.New(slog.DiscardHandler)}
			var due []parcel
			err := b.stores.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
				if _, err = job.AcquireLane(t.Context(), tx, lanes, ch.ID, d.Holder, b.clock.Now()); err != nil {
					return err
				}
				due, err = dueParcels(t.Context(), tx, ch.ID, b.clock.Now(), perTurn)
				return err
			})
			if err != nil || len(due) != 1 {
				t.Fatalf("%s: %d messages are due, %v", what, len(due), err)
			}
			odd.At = db.Stamp(b.clock.Now())
			if a, err := d.finishAttempt(t.Context(), scope.DefaultTenant, ch, due[0], odd); err != nil || a.ok() {
				t.Errorf("%s: %+v, %v", what, a, err)
			}
			if got := b.deliveries(DeliveryFilter{Channel: ch.ID})[0]; got.Status != Failed || got.Attempts != 1 || got.NextAttemptAt == nil || !got.NextAttemptAt.After(b.clock.Now()) {
				t.Errorf("%s: %+v", what, got)
			}
		}
	})
}

// TestOneFaultKeepsItsOrder checks that later messages about the same fault do not overtake a
// failed one, and that messages about other faults are sent.
func TestOneFaultKeepsItsOrder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL})
		r.set(func(c recorded) (int, string) {
			if strings.Contains(c.body, `"fault":"bad"`) {
				return 503, ""
			}
			return 200, ""
		})
		b.queue(Note{Fault: "bad", Title: "first"}, Note{Fault: "good", Title: "other"}, Note{Fault: "bad", Title: "second", Resolved: true})
		b.round("a", ch)
		var seen []string
		for _, c := range r.list() {
			var m format.Message
			if err := json.Unmarshal([]byte(c.body), &m); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, m.Title)
		}
		if fmt.Sprint(seen) != "[first other]" {
			t.Errorf("sent %v", seen)
		}
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(16 * time.Minute)
		b.round("a", ch)
		calls := r.list()
		if len(calls) != 4 || !strings.Contains(calls[2].body, "first") || !strings.Contains(calls[3].body, `"status":"resolved"`) {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// TestReplicas checks that several replicas deliver each message once, and that another replica
// takes over the lane of a dead one when its lease ends.
func TestReplicas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL})
		b.queue(Note{Fault: "f"})
		err := c.Write(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
			_, err := job.AcquireLane(context.Background(), tx, lanes, ch.ID, "dead", b.clock.Now())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if again := b.round("a", ch); again.IsZero() || len(r.list()) != 0 {
			t.Fatal("a foreign lane was used")
		}
		b.clock.Move(job.LaneTime + time.Second)
		b.run(3)
		for i := range 30 {
			b.queue(Note{Fault: fmt.Sprint("f", i)})
		}
		timetest.Eventually(b, time.Minute, func() error {
			if n := len(b.deliveries(DeliveryFilter{Status: Sent})); n != 31 {
				return fmt.Errorf("%d sent", n)
			}
			return nil
		})
		if n := len(r.list()); n != 31 {
			t.Errorf("%d calls for 31 messages", n)
		}
	})
}

// TestADeadReceiverHoldsUpNoOther checks that a receiver that never answers does not delay the
// messages to others.
func TestADeadReceiverHoldsUpNoOther(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, dead, alive := newBench(t, c), newReceiver(t), newReceiver(t)
		over := make(chan struct{})
		dead.set(func(recorded) (int, string) { <-over; return 200, "" })
		b.channel(Draft{Endpoint: dead.URL})
		b.channel(Draft{Endpoint: alive.URL})
		t.Cleanup(func() { close(over) }) // runs before the test waits for the deliverers
		b.run(1)
		for i := range 20 {
			b.queue(Note{Fault: fmt.Sprint("f", i)})
		}
		timetest.Eventually(b, time.Minute, func() error {
			if n := len(alive.list()); n < 20 {
				return fmt.Errorf("%d of 20 arrived", n)
			}
			return nil
		})
	})
}

// TestWhoIsTold checks that severity, environment and enabled decide which channels are told. The
// end of a fault is told to the channels that were told of its beginning.
func TestWhoIsTold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		off := false
		for _, d := range []Draft{
			{Name: "all"},
			{Name: "error", SeverityThreshold: format.Error},
			{Name: "critical", SeverityThreshold: format.Critical},
			{Name: "production", Environment: scope.Production},
			{Name: "off", Enabled: &off},
		} {
			d.Endpoint = r.URL
			b.channel(d)
		}
		told := func(fault string, resolved bool) string {
			var names []string
			for _, d := range b.deliveries(DeliveryFilter{}) {
				if d.Payload.Fault == fault && (d.Payload.Status == format.Resolved) == resolved {
					names = append([]string{d.ChannelName}, names...)
				}
			}
			return strings.Join(names, " ")
		}
		b.queue(
			Note{Fault: "s", Env: scope.Sandbox, Severity: format.Warning}, Note{Fault: "p", Env: scope.Production, Severity: format.Critical},
			Note{Fault: "t", Severity: format.Error}, Note{Fault: "nobody heard", Severity: format.Error, Resolved: true},
		)
		for fault, want := range map[string]string{"s": "all", "p": "production", "t": "all error production", "nobody heard": ""} {
			if got := told(fault, false); got != want {
				t.Errorf("%s: told %q, want %q", fault, got, want)
			}
		}
		b.queue(Note{Fault: "p", Severity: format.Info, Resolved: true}, Note{Fault: "t", Resolved: true}, Note{Fault: "t", Resolved: true})
		for fault, want := range map[string]string{"s": "", "p": "production", "t": "all error production", "nobody heard": ""} {
			if got := told(fault, true); got != want {
				t.Errorf("the end of %s: told %q, want %q", fault, got, want)
			}
		}
	})
}

// TestEndWhileDisabled: a channel that was disabled when a fault ended sends the end when it is
// enabled again. It never hears of a fault that began while it was disabled.
func TestEndWhileDisabled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL})
		b.queue(Note{Fault: "f"})
		b.round("a", ch)
		enable := func(on bool) {
			t.Helper()
			if _, err := b.Enable(ctx, admin, ch.ID, on); err != nil {
				t.Fatal(err)
			}
		}
		enable(false)
		b.queue(Note{Fault: "f", Resolved: true}, Note{Fault: "f", Resolved: true}, Note{Fault: "g"}, Note{Fault: "g", Resolved: true})
		b.round("a", ch)
		if n := len(r.list()); n != 1 {
			t.Errorf("a disabled channel sent %d messages", n-1)
		}
		enable(true)
		b.round("a", ch)
		var got []string
		for _, d := range b.deliveries(DeliveryFilter{}) {
			got = append(got, d.Payload.Fault+" "+d.Payload.Status+" "+d.Status)
		}
		if want := []string{"f resolved sent", "f firing sent"}; !slices.Equal(got, want) || len(r.list()) != 2 {
			t.Errorf("got %q, %d calls", got, len(r.list()))
		}
	})
}

// TestKeyRotation checks that a credential is encrypted again with the first key, and can then be
// decrypted without the old one.
func TestKeyRotation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL, Credential: map[string]any{"bearer_token": "t0ken-of-bearer"}})
		for _, keys := range [][][32]byte{{{2}, {1}}, {{2}}} {
			box, err := secret.New(keys...)
			if err != nil {
				t.Fatal(err)
			}
			b.Box = box
			if res, err := b.Test(ctx, admin, ch.ID); err != nil || !res.Delivered {
				t.Fatalf("with %d keys: %+v, %v", len(keys), res, err)
			}
			if err := b.Reseal(ctx, scope.DefaultTenant); err != nil {
				t.Fatal(err)
			}
		}
		for _, call := range r.list() {
			if call.header.Get("Authorization") != "Bearer t0ken-of-bearer" {
				t.Error("the token did not arrive")
			}
		}
		// If the key no longer exists, the messages fail and end as dead letters.
		b.Box, _ = secret.New([32]byte{9})
		b.queue(Note{Fault: "f"})
		b.round("a", ch)
		if d := b.deliveries(DeliveryFilter{Status: Failed}); len(d) != 1 || !strings.Contains(d[0].Error, "credential") {
			t.Errorf("%+v", d)
		}
	})
}

// TestSink checks that events become messages that a person can read, with a link.
func TestSink(t *testing.T) {
	anomaly := map[string]any{"evidence": map[string]any{"summary": "40 % are denied", "measured": 40, "threshold": 9}}
	for name, c := range map[string]struct {
		event        event.Event
		alert, level string
		fault, link  string
		title        string
	}{
		"failed sign-ins": {
			event.Event{Type: event.FailedLogins, ObjectKind: "user", ObjectID: "u9", ObjectName: "bob", Data: map[string]any{"failures": 10, "ip_address": "192.0.2.1"}},
			AlertFailedLogins, format.Warning, "failed_logins:u9", "/audit", "bob",
		},
		"an anomaly far beyond its threshold": {
			event.Event{Type: event.HighDenyRate, ObjectKind: "anomaly", ObjectID: "3", ObjectName: "denial_spike", Env: scope.Sandbox, Data: anomaly},
			AlertAnomaly, format.Critical, "anomaly:denial_spike:sandbox:", "/", "denial spike",
		},
		"a refused bundle": {
			event.Event{Type: event.SyncFailed, ObjectKind: "bouncer", ObjectID: "4", ObjectName: "edge", Env: scope.Sandbox, Data: map[string]any{"reason": "line 3"}},
			AlertPolicyValidation, format.Error, "refused:4", "/bouncers/4", "edge",
		},
		"a bouncer that is gone": {
			event.Event{Type: event.AlertOpened, Env: scope.Sandbox, Data: map[string]any{"type": "bouncer_disconnected", "severity": "error", "subject": "4", "message": "The bouncer is silent"}},
			AlertBouncerOffline, format.Error, "bouncer_disconnected:4", "/bouncers/4", "silent",
		},
		"a limit": {
			event.Event{Type: event.AlertOpened, Data: map[string]any{"type": "usage_limit", "severity": "warning", "subject": "users", "message": "80 % are used"}},
			AlertLicense, format.Warning, "usage_limit:users:warning", "/tenant", "80 %",
		},
		"the decision log": {
			event.Event{Type: event.AlertOpened, Data: map[string]any{"type": "audit_pipeline", "severity": "critical", "subject": "full", "message": "it is full"}},
			AlertAuditPipeline, format.Critical, "audit_pipeline:full", "/", "full",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, cluster *db.Cluster) {
				ctx := context.Background()
				b := newBench(t, cluster)
				b.channel(Draft{Endpoint: newReceiver(t).URL})
				err := cluster.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
					return event.Emit(ctx, tx, admin, c.event, event.Event{Type: event.PolicyCreated, ObjectKind: "policy", ObjectID: "1"})
				})
				if err == nil {
					_, err = b.events.DispatchTenant(ctx, scope.DefaultTenant)
				}
				if err != nil {
					t.Fatal(err)
				}
				all := b.deliveries(DeliveryFilter{})
				if len(all) != 1 {
					t.Fatalf("%d messages", len(all))
				}
				m := all[0].Payload
				if m.Alert != c.alert || m.Severity != c.level || m.Fault != c.fault || m.Link != b.Outbox.Root+c.link || !strings.Contains(m.Title, c.title) {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// TestStops checks that a deliverer can be stopped while a receiver hangs, and that the message
// then stays due without a counted attempt.
func TestStops(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL})
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		r.set(func(recorded) (int, string) { cancel(); <-over; return 200, "" })
		t.Cleanup(func() { close(over) })
		b.queue(Note{Fault: "f"})
		d := &Deliverer{Service: b.Service, Holder: "a", Logger: slog.New(slog.DiscardHandler)}
		if _, err := d.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: ch.ID}, func() {}); err != nil {
			t.Fatal(err)
		}
		if got := b.deliveries(DeliveryFilter{})[0]; got.Status != Pending || got.Attempts != 0 {
			t.Errorf("%+v", got)
		}
	})
}
