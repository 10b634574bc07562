package notify

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
	"github.com/gatehouse-dev/gatehouse/internal/secret/reseal"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// TestBackoff checks the pauses between attempts: 15 minutes, doubled up to an hour.
func TestBackoff(t *testing.T) {
	for attempts, want := range map[int]time.Duration{0: 15 * time.Minute, 1: 15 * time.Minute, 2: 30 * time.Minute, 3: time.Hour, 4: time.Hour, 5: time.Hour, 1000: time.Hour} {
		if got := Backoff(attempts); got != want {
			t.Errorf("Backoff(%d) = %s, want %s", attempts, got, want)
		}
	}
}

// TestStates takes a delivery through all its states. It checks the pauses that the specification
// requires, the audit entries, and that a dead receivedMail can be sent again.
func TestStates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b, r := newBench(t, c), newReceiver(t)
		three := 3
		ch := b.channel(Draft{Endpoint: r.URL, MaxAttempts: &three, Credential: "s3cret-of-hmac"})
		r.set(func(recorded) (int, string) { return 500, "" })
		b.queue(Note{Alert: "x", Fault: "f", Title: "t"})
		wantDelivery := func(status string, attempts int, pause time.Duration) {
			t.Helper()
			d := b.deliveries(DeliveryFilter{Channel: ch.ID})[0]
			if d.Status != status || d.Attempts != attempts || d.RetryCount != max(0, attempts-1) {
				t.Fatalf("the delivery is %+v, want %s after %d attempts", d, status, attempts)
			}
			if (d.NextAttemptAt == nil) != (pause < 0) {
				t.Fatalf("the next attempt is at %v, want one: %v", d.NextAttemptAt, pause >= 0)
			}
			if pause > 0 && d.NextAttemptAt.Sub(d.Log[len(d.Log)-1].At) < pause {
				t.Fatalf("the pause is %s, want at least %s", d.NextAttemptAt.Sub(d.Log[len(d.Log)-1].At), pause)
			}
		}
		wantDelivery(Pending, 0, 0)
		for i, pause := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
			b.runLane("a", ch)
			wantDelivery(Failed, i+1, pause)
			b.runLane("a", ch) // too early
			wantDelivery(Failed, i+1, pause)
			b.clock.Move(pause + time.Second)
		}
		b.runLane("a", ch)
		wantDelivery(DLQ, 3, -1)
		b.clock.Move(24 * time.Hour)
		b.runLane("a", ch)
		if n := len(r.list()); n != 3 {
			t.Errorf("the receiver got %d calls, want 3", n)
		}
		if given, failed := b.countAudit("notification_dlq"), b.countAudit("NOTIFICATION_DELIVERY_FAILED"); given != 1 || failed != 2 {
			t.Errorf("the audit has %d deliveries that were given up and %d that failed, want 1 and 2", given, failed)
		}
		r.set(func(recorded) (int, string) { return 204, "" })
		id := b.deliveries(DeliveryFilter{})[0].ID
		errtest.Must(t, errtest.Of(b.Retry(context.Background(), admin, id)))
		b.runLane("a", ch)
		wantDelivery(Sent, 1, -1)
		if _, err := b.Retry(context.Background(), admin, id); err == nil {
			t.Error("Retry of a sent delivery: no error")
		}
		call := r.list()[3]
		if call.header.Get("X-Service-Signature") != outbound.Signature([]byte("s3cret-of-hmac"), []byte(call.body)) {
			t.Errorf("the signature %q is not valid for the body", call.header.Get("X-Service-Signature"))
		}
		if sent, retried := b.countAudit("NOTIFICATION_DELIVERY_SENT"), b.countAudit("NOTIFICATION_DELIVERY_RETRIED"); sent != 1 || retried != 1 {
			t.Errorf("the audit has %d deliveries that were sent and %d that were tried again, want one each", sent, retried)
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
				t.Fatalf("%s: %d messages are due, %v, want 1", what, len(due), err)
			}
			odd.At = db.Stamp(b.clock.Now())
			if a, err := d.finishAttempt(t.Context(), scope.DefaultTenant, ch, due[0], odd); err != nil || a.ok() {
				t.Errorf("%s: finishAttempt = %+v, %v, want a failed attempt", what, a, err)
			}
			if got := b.deliveries(DeliveryFilter{Channel: ch.ID})[0]; got.Status != Failed || got.Attempts != 1 || got.NextAttemptAt == nil || !got.NextAttemptAt.After(b.clock.Now()) {
				t.Errorf("%s: the delivery is %+v, want failed once and due later", what, got)
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
		b.runLane("a", ch)
		if got := titles(r.messages(t)); got != "first other" {
			t.Errorf("the receiver got %q, want first and other", got)
		}
		r.set(func(recorded) (int, string) { return 200, "" })
		b.clock.Move(16 * time.Minute)
		b.runLane("a", ch)
		calls := r.list()
		if len(calls) != 4 || !strings.Contains(calls[2].body, "first") || !strings.Contains(calls[3].body, `"status":"resolved"`) {
			t.Errorf("the calls are %+v, want the first and the end of the bad fault after two", calls)
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
		errtest.Must(t, err)
		if again := b.runLane("a", ch); again.IsZero() || len(r.list()) != 0 {
			t.Fatalf("a turn of a lane of another replica: again at %s, %d calls, want a later time and none", again, len(r.list()))
		}
		b.clock.Move(job.LaneTime + time.Second)
		b.run(3)
		for i := range 30 {
			b.queue(Note{Fault: fmt.Sprint("f", i)})
		}
		timetest.Eventually(b, time.Minute, func() error {
			if n := len(b.deliveries(DeliveryFilter{Status: Sent})); n != 31 {
				return fmt.Errorf("%d deliveries are sent, want 31", n)
			}
			return nil
		})
		if n := len(r.list()); n != 31 {
			t.Errorf("the receiver got %d calls, want one for each of 31 messages", n)
		}
	})
}

// TestDeadReceiverDelaysNoOther checks that a receiver that never answers does not delay the
// messages to others.
func TestDeadReceiverDelaysNoOther(t *testing.T) {
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
				return fmt.Errorf("the receiver got %d messages, want 20", n)
			}
			return nil
		})
	})
}

// TestChannelsOfAMessage checks that severity, environment and enabled decide which channels get a
// message. The end of a fault goes to the channels that got its beginning.
func TestChannelsOfAMessage(t *testing.T) {
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
		channelsOf := func(fault string, resolved bool) string {
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
			Note{Fault: "t", Severity: format.Error}, Note{Fault: "unknown", Severity: format.Error, Resolved: true},
		)
		for fault, want := range map[string]string{"s": "all", "p": "production", "t": "all error production", "unknown": ""} {
			if got := channelsOf(fault, false); got != want {
				t.Errorf("the fault %s goes to %q, want %q", fault, got, want)
			}
		}
		b.queue(Note{Fault: "p", Severity: format.Info, Resolved: true}, Note{Fault: "t", Resolved: true}, Note{Fault: "t", Resolved: true})
		for fault, want := range map[string]string{"s": "", "p": "production", "t": "all error production", "unknown": ""} {
			if got := channelsOf(fault, true); got != want {
				t.Errorf("the end of the fault %s goes to %q, want %q", fault, got, want)
			}
		}
	})
}

// TestEndWhileDisabled checks that a channel that was disabled when a fault ended sends the end when it
// is enabled again, and nothing about a fault that began while it was disabled.
func TestEndWhileDisabled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b, r := newBench(t, c), newReceiver(t)
		ch := b.channel(Draft{Endpoint: r.URL})
		b.queue(Note{Fault: "f"})
		b.runLane("a", ch)
		setEnabled := func(on bool) {
			t.Helper()
			errtest.Must(t, errtest.Of(b.Enable(ctx, admin, ch.ID, on)))
		}
		setEnabled(false)
		b.queue(Note{Fault: "f", Resolved: true}, Note{Fault: "f", Resolved: true}, Note{Fault: "g"}, Note{Fault: "g", Resolved: true})
		b.runLane("a", ch)
		if n := len(r.list()); n != 1 {
			t.Errorf("the disabled channel sent %d messages, want none", n-1)
		}
		setEnabled(true)
		b.runLane("a", ch)
		var got []string
		for _, d := range b.deliveries(DeliveryFilter{}) {
			got = append(got, d.Payload.Fault+" "+d.Payload.Status+" "+d.Status)
		}
		if want := []string{"f resolved sent", "f firing sent"}; !slices.Equal(got, want) || len(r.list()) != 2 {
			t.Errorf("the deliveries are %q with %d calls, want %q with 2", got, len(r.list()), want)
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
			errtest.Must(t, err)
			b.Box = box
			if res, err := b.Test(ctx, admin, ch.ID); err != nil || !res.Delivered {
				t.Fatalf("Test with %d keys = %+v, %v, want delivered", len(keys), res, err)
			}
			sealer := reseal.Sealer{Stores: c, Columns: b.Secrets(), Logger: slog.New(slog.DiscardHandler)}
			errtest.Must(t, sealer.Run(ctx))
		}
		for _, call := range r.list() {
			if call.header.Get("Authorization") != "Bearer t0ken-of-bearer" {
				t.Errorf("Authorization = %q, want the token", call.header.Get("Authorization"))
			}
		}
		// If the key no longer exists, the messages fail and end as dead letters.
		b.Box, _ = secret.New([32]byte{9})
		b.queue(Note{Fault: "f"})
		b.runLane("a", ch)
		if d := b.deliveries(DeliveryFilter{Status: Failed}); len(d) != 1 || !strings.Contains(d[0].Error, "credential") {
			t.Errorf("the failed deliveries are %+v, want one because of the credential", d)
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
				errtest.Must(t, err)
				all := b.deliveries(DeliveryFilter{})
				if len(all) != 1 {
					t.Fatalf("the events made %d messages, want 1", len(all))
				}
				m := all[0].Payload
				if m.Alert != c.alert || m.Severity != c.level || m.Fault != c.fault || m.Link != b.Outbox.Root+c.link || !strings.Contains(m.Title, c.title) {
					t.Errorf("the message is %+v, want %s %s about %s with the link %s and %q in the title", m, c.alert, c.level, c.fault, c.link, c.title)
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
		errtest.Must(t, errtest.Of(d.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: ch.ID}, func() {})))
		if got := b.deliveries(DeliveryFilter{})[0]; got.Status != Pending || got.Attempts != 0 {
			t.Errorf("the delivery is %+v, want pending without an attempt", got)
		}
	})
}
