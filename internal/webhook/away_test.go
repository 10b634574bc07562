package webhook

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// countTo returns 1 to n.
func countTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// waitForDeliveries waits until a subscription has n deliveries in a state.
func (b *bench) waitForDeliveries(webhook int64, state string, n int64) {
	b.Helper()
	timetest.Eventually(b, time.Minute, func() error {
		if got := b.deliveries(webhook, DeliveryFilter{Status: state}).Total; got != n {
			return fmt.Errorf("%d deliveries are %s, want %d", got, state, n)
		}
		return nil
	})
}

// waitForPause waits until the lane of a subscription pauses.
func (b *bench) waitForPause(webhook int64) {
	b.Helper()
	timetest.Eventually(b, time.Minute, func() error {
		w, err := b.Get(context.Background(), admin, webhook)
		if err == nil && (w.PausedUntil == nil || !w.PausedUntil.After(b.clock.Now())) {
			err = fmt.Errorf("the lane pauses until %v, want a later time", w.PausedUntil)
		}
		return err
	})
}

// TestReceiverThatIsAway checks that a receiver that cannot be reached is called only now and then,
// not once for each object. When it is back, it gets everything. Deliveries that it has not
// accepted in three days are given up, without an attempt for each of them.
func TestReceiverThatIsAway(t *testing.T) {
	const objects = 100
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		r.answer(func(Payload) int { return 0 })
		w := b.subscribe(r.URL, Draft{})
		b.deliverWith(2, func(int) time.Duration { return time.Hour })
		b.emit(countTo(objects)...)
		b.waitForPause(w.ID)
		b.emit(countTo(objects)...) // new deliveries do not end the pause
		for _, d := range b.deliveries(w.ID, DeliveryFilter{}).Deliveries {
			if now, err := b.Get(context.Background(), admin, w.ID); err != nil || d.NextAttemptAt == nil || d.NextAttemptAt.Before(*now.PausedUntil) {
				t.Fatalf("the delivery %d is due at %v (%v), want at the end of the pause or later", d.ID, d.NextAttemptAt, err)
			}
		}
		r.answer(func(Payload) int { return 200 })
		b.clock.Move(2 * time.Hour)
		b.waitForDeliveries(w.ID, Delivered, 2*objects)

		r.answer(func(Payload) int { return 0 })
		before := r.calls()
		b.emit(countTo(objects)...)
		b.waitForPause(w.ID)
		b.clock.Move(patience + time.Hour)
		b.waitForDeliveries(w.ID, Dead, objects)
		if n := r.calls() - before; n >= objects {
			t.Errorf("the receiver that is away got %d calls for %d deliveries, want fewer", n, objects)
		}
	})
}

// TestRejectedEventsKeepTheirPauses checks that rejected events become due early only if a success
// follows an outage, not if the receiver merely accepts other events.
func TestRejectedEventsKeepTheirPauses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		const rejected = 2 * awayAfter
		rejectSome := func(p Payload) int {
			if id, _ := p.Data["policy_id"].(float64); id <= rejected {
				return 400
			}
			return 200
		}
		r.answer(rejectSome)
		w := b.subscribe(r.URL, Draft{})
		b.deliverWith(1, func(int) time.Duration { return time.Hour })
		began := time.Now()
		b.emit(100)
		b.waitForDeliveries(w.ID, Delivered, 1)
		b.emit(countTo(rejected)...)
		r.waitForCalls(t, 1+rejected)
		for i := range int64(10) {
			b.emit(101 + int(i))
			b.waitForDeliveries(w.ID, Delivered, 2+i)
		}
		// If this took as long as an outage, the number of calls proves nothing.
		if n := r.calls(); n != 1+rejected+10 && time.Since(began) < awayFor {
			t.Errorf("the receiver got %d calls, want one for each of %d events", n, 1+rejected+10)
		}
		// After an outage the rejected events become due at once.
		r.answer(func(Payload) int { return 500 })
		b.clock.Move(awayFor)
		b.emit(201, 202, 203, 204, 205)
		timetest.Eventually(b, time.Minute, func() error {
			if w, err := b.Get(context.Background(), admin, w.ID); err != nil || w.ConsecutiveFailures < awayAfter {
				return fmt.Errorf("%d failures in a row, %v, want %d", w.ConsecutiveFailures, err, awayAfter)
			}
			return nil
		})
		r.answer(func(Payload) int { return 200 })
		b.emit(206)
		b.waitForDeliveries(w.ID, Delivered, 1+10+rejected+6)
	})
}

// TestRetryAfter checks that the pause that a receiver asks for holds for all its deliveries.
func TestRetryAfter(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		r.extra = map[string]string{"Retry-After": "600"}
		r.answer(func(Payload) int { return 429 })
		w := b.subscribe(r.URL, Draft{})
		b.deliver(1)
		b.emit(1)
		b.waitForPause(w.ID)
		b.emit(2, 3)
		r.answer(func(Payload) int { return 200 })
		b.clock.Move(9 * time.Minute)
		b.waitForPause(w.ID)
		if n := r.calls(); n != 1 {
			t.Errorf("the receiver got %d calls before the end of the pause, want 1", n)
		}
		b.clock.Move(time.Minute)
		b.waitForDeliveries(w.ID, Delivered, 3)
	})
}

// TestChangeWhileSending checks that deliveries that are not sent yet when a subscription changes
// follow the change.
func TestChangeWhileSending(t *testing.T) {
	ctx := context.Background()
	off, elsewhere, now := false, "/elsewhere", 0
	for name, test := range map[string]struct {
		change func(b *bench, w Issued) error
		calls  int // at least
		secret string
	}{
		"disabled": {func(b *bench, w Issued) error { _, err := b.Enable(ctx, admin, w.ID, false); return err }, 1, "old"},
		"switched": {func(b *bench, w Issued) error {
			_, err := b.Update(ctx, admin, w.ID, Change{Enabled: &off}, 0)
			return err
		}, 1, "old"},
		"deleted": {func(b *bench, w Issued) error { _, err := b.Delete(ctx, admin, w.ID, 0); return err }, 1, "old"},
		"new secret": {func(b *bench, w Issued) error {
			_, err := b.RotateSecret(ctx, admin, w.ID, Rotation{"new", &now})
			return err
		}, 5, "new"},
		"another URL": {func(b *bench, w Issued) error {
			u := w.URL + elsewhere
			_, err := b.Update(ctx, admin, w.ID, Change{URL: &u}, 0)
			return err
		}, 5, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
				b := newBench(t, c)
				r := newReceiver(t)
				w := b.subscribe(r.URL, Draft{Secret: "old"})
				var once sync.Once
				r.answer(func(Payload) int {
					once.Do(func() {
						if err := test.change(b, w); err != nil {
							t.Error(err)
						}
						b.clock.Move(recheck)
					})
					return 200
				})
				b.deliver(1)
				b.emit(7, 7, 7, 7, 7)
				r.waitForCalls(t, test.calls)
				// A second subscription shows when the lanes were checked again.
				second := newReceiver(t)
				other := b.subscribe(second.URL, Draft{Name: "second"})
				b.emit(8)
				b.waitForDeliveries(other.ID, Delivered, 1)
				if test.calls == 1 && r.calls() != 1 {
					t.Errorf("the receiver got %d calls, want 1", r.calls())
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				for i := 1; i < len(r.bodies); i++ {
					if !outbound.SignatureValid([]byte(test.secret), []byte(r.bodies[i]), r.header[i].Get("X-Service-Signature")) {
						t.Errorf("the signature of call %d is not valid with the secret %q", i, test.secret)
					}
					if name == "another URL" && r.paths[i] != "/elsewhere" {
						t.Errorf("call %d was to %s, want /elsewhere", i, r.paths[i])
					}
				}
			})
		})
	}
}

// TestEventsWhileDisabled checks that a subscription gets the events that were emitted while it was
// enabled, however late they are queued, and no others.
func TestEventsWhileDisabled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		r := newReceiver(t)
		b.raise(1) // before the subscription exists
		w := b.subscribe(r.URL, Draft{})
		setEnabled := func(on bool) {
			t.Helper()
			errtest.Must(t, errtest.Of(b.Enable(context.Background(), admin, w.ID, on)))
		}
		b.raise(2)
		setEnabled(false)
		b.raise(3)
		b.dispatch()
		b.raise(4)
		setEnabled(true)
		b.raise(5)
		b.dispatch()
		b.deliver(1)
		b.waitForDeliveries(w.ID, Delivered, 2)
		for _, p := range r.accepted() {
			if id := p.Data["policy_id"]; id != 2.0 && id != 5.0 {
				t.Errorf("the receiver got the event of policy %v, want only 2 and 5", id)
			}
		}
	})
}

// TestRedeliverAtOnce checks that an event is queued once if several people ask for it at the same
// time.
func TestRedeliverAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		r := newReceiver(t)
		w := b.subscribe(r.URL, Draft{})
		b.emit(countTo(20)...)
		b.deliver(1)
		b.waitForDeliveries(w.ID, Delivered, 20)
		r.answer(func(Payload) int { return 500 })
		one := b.deliveries(w.ID, DeliveryFilter{}).Deliveries[0].ID
		var single, many int64
		var mu sync.Mutex
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				_, err := b.Redeliver(ctx, admin, w.ID, one)
				if err != nil && !fault.Is(err, fault.Conflict) {
					t.Error(err)
				}
				out, failed := b.RedeliverRange(ctx, admin, w.ID, Range{Status: Delivered})
				if failed != nil {
					t.Error(failed)
				}
				mu.Lock()
				defer mu.Unlock()
				if many += out.Queued; err == nil {
					single++
				}
			})
		}
		callers.Wait()
		if single != 1 || many != 19 {
			t.Errorf("queued %d by its id and %d by the period, want 1 and 19", single, many)
		}
	})
}

// TestStoreAwayWhileSending checks that the results of deliveries are stored when the store works
// again, and that nothing is sent twice.
func TestStoreAwayWhileSending(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		r := newReceiver(t)
		w := b.subscribe(r.URL, Draft{})
		rename := func(from, to string) {
			err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `ALTER TABLE `+from+` RENAME TO `+to)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		var once sync.Once
		r.answer(func(Payload) int {
			once.Do(func() { rename("webhook_deliveries", "away") })
			return 200
		})
		b.emit(1, 1, 2)
		b.deliver(1)
		r.waitForCalls(t, 3)
		rename("away", "webhook_deliveries")
		b.waitForDeliveries(w.ID, Delivered, 3)
		if n := r.calls(); n != 3 {
			t.Errorf("the receiver got %d calls, want one for each of 3 events", n)
		}
	})
}

// TestLeaseAfterTheClock checks that a lease from before the clock was set back does not block the
// lane.
func TestLeaseAfterTheClock(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		b := newBench(t, c)
		w := b.subscribe(newReceiver(t).URL, Draft{})
		for ahead, want := range map[time.Duration]bool{time.Hour: true, job.LaneTime + time.Second: false, time.Second: false} {
			now := b.clock.Now()
			err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `UPDATE webhooks SET lane_holder = 'killed', lane_until = $1`, now.Add(ahead)); err != nil {
					return err
				}
				got, err := job.AcquireLane(ctx, tx, lanes, w.ID, "other", now)
				if got != want {
					t.Errorf("AcquireLane with a lease for another %s = %v, want %v", ahead, got, want)
				}
				return err
			})
			errtest.Must(t, err)
		}
	})
}

// TestEmptySecrets checks that a secret that anybody could guess is refused in each operation that
// sets one.
func TestEmptySecrets(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	ctx, r := context.Background(), newReceiver(t)
	w := b.subscribe(r.URL, Draft{Secret: "s3cret"})
	for secret, want := range map[string]bool{
		" ": false, "\t\n": false, "whsec_": false, "whsec_ICAg": false, "whsec_====": true, "whsec_c2VjcmV0": true, "whsec_!": true, "x": true,
	} {
		_, created := b.Create(ctx, admin, Draft{Name: fmt.Sprintf("%q", secret), URL: r.URL, Events: w.Events, Secret: secret})
		_, rotated := b.RotateSecret(ctx, admin, w.ID, Rotation{Secret: secret})
		_, changed := b.Update(ctx, admin, w.ID, Change{Secret: &secret}, 0)
		for how, err := range map[string]error{"create": created, "rotate": rotated, "update": changed} {
			if (err == nil) != want || err != nil && !fault.Is(err, fault.Invalid) {
				t.Errorf("%s with the secret %q: %v, want it accepted: %v", how, secret, err, want)
			}
		}
	}
}
