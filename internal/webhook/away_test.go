package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// numbers returns 1 to n.
func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
}

// have waits until a subscription has n deliveries in a state.
func (b *bench) have(webhook int64, state string, n int64) {
	b.Helper()
	timetest.Eventually(b, time.Minute, func() error {
		if got := b.deliveries(webhook, DeliveryFilter{Status: state}).Total; got != n {
			return fmt.Errorf("%d of %d are %s", got, n, state)
		}
		return nil
	})
}

// paused waits until the lane of a subscription pauses.
func (b *bench) paused(webhook int64) {
	b.Helper()
	timetest.Eventually(b, time.Minute, func() error {
		w, err := b.Get(context.Background(), admin, webhook)
		if err == nil && (w.PausedUntil == nil || !w.PausedUntil.After(b.clock.Now())) {
			err = errors.New("the lane does not pause")
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
		b.deliverAfter(2, func(int) time.Duration { return time.Hour })
		b.emit(numbers(objects)...)
		b.paused(w.ID)
		b.emit(numbers(objects)...) // new deliveries do not end the pause
		for _, d := range b.deliveries(w.ID, DeliveryFilter{}).Deliveries {
			if now, err := b.Get(context.Background(), admin, w.ID); err != nil || d.NextAttemptAt == nil || d.NextAttemptAt.Before(*now.PausedUntil) {
				t.Fatalf("%v is sent next at %v, before the pause ends, %v", d.ID, d.NextAttemptAt, err)
			}
		}
		r.answer(func(Payload) int { return 200 })
		b.clock.Move(2 * time.Hour)
		b.have(w.ID, Delivered, 2*objects)

		r.answer(func(Payload) int { return 0 })
		before := r.calls()
		b.emit(numbers(objects)...)
		b.paused(w.ID)
		b.clock.Move(patience + time.Hour)
		b.have(w.ID, Dead, objects)
		if n := r.calls() - before; n >= objects {
			t.Errorf("%d calls of a receiver that is away", n)
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
		takes := func(p Payload) int {
			if id, _ := p.Data["policy_id"].(float64); id <= rejected {
				return 400
			}
			return 200
		}
		r.answer(takes)
		w := b.subscribe(r.URL, Draft{})
		b.deliverAfter(1, func(int) time.Duration { return time.Hour })
		began := time.Now()
		b.emit(100)
		b.have(w.ID, Delivered, 1)
		b.emit(numbers(rejected)...)
		timetest.Eventually(b, time.Minute, func() error {
			if n := r.calls(); n < 1+rejected {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		for i := range int64(10) {
			b.emit(101 + int(i))
			b.have(w.ID, Delivered, 2+i)
		}
		// If this took as long as an outage, the number of calls proves nothing.
		if n := r.calls(); n != 1+rejected+10 && time.Since(began) < awayFor {
			t.Errorf("%d calls for %d events", n, 1+rejected+10)
		}
		// After an outage the rejected events become due at once.
		r.answer(func(Payload) int { return 500 })
		b.clock.Move(awayFor)
		b.emit(201, 202, 203, 204, 205)
		timetest.Eventually(b, time.Minute, func() error {
			if w, err := b.Get(context.Background(), admin, w.ID); err != nil || w.ConsecutiveFailures < awayAfter {
				return fmt.Errorf("%d failures, %v", w.ConsecutiveFailures, err)
			}
			return nil
		})
		r.answer(func(Payload) int { return 200 })
		b.emit(206)
		b.have(w.ID, Delivered, 1+10+rejected+6)
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
		b.paused(w.ID)
		b.emit(2, 3)
		r.answer(func(Payload) int { return 200 })
		b.clock.Move(9 * time.Minute)
		b.paused(w.ID)
		if n := r.calls(); n != 1 {
			t.Errorf("%d calls during the pause", n)
		}
		b.clock.Move(time.Minute)
		b.have(w.ID, Delivered, 3)
	})
}

// TestChangeWhileSending checks that deliveries that are not sent yet when a subscription changes
// follow the change.
func TestChangeWhileSending(t *testing.T) {
	ctx := context.Background()
	off, elsewhere, now := false, "/elsewhere", 0
	for name, test := range map[string]struct {
		change func(b *bench, w Issued) error
		comes  int
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
				timetest.Eventually(b, time.Minute, func() error {
					if n := r.calls(); n < test.comes {
						return fmt.Errorf("%d calls", n)
					}
					return nil
				})
				// A second subscription shows when the lanes were checked again.
				second := newReceiver(t)
				other := b.subscribe(second.URL, Draft{Name: "second"})
				b.emit(8)
				b.have(other.ID, Delivered, 1)
				if test.comes == 1 && r.calls() != 1 {
					t.Errorf("%d calls", r.calls())
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				for i := 1; i < len(r.bodies); i++ {
					if !outbound.SignatureValid([]byte(test.secret), []byte(r.bodies[i]), r.header[i].Get("X-Service-Signature")) {
						t.Errorf("call %d is not signed with the %s secret", i, test.secret)
					}
					if name == "another URL" && r.paths[i] != "/elsewhere" {
						t.Errorf("call %d was to %s", i, r.paths[i])
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
		enable := func(on bool) {
			t.Helper()
			if _, err := b.Enable(context.Background(), admin, w.ID, on); err != nil {
				t.Fatal(err)
			}
		}
		b.raise(2)
		enable(false)
		b.raise(3)
		b.dispatch()
		b.raise(4)
		enable(true)
		b.raise(5)
		b.dispatch()
		b.deliver(1)
		b.have(w.ID, Delivered, 2)
		for _, p := range r.list() {
			if id := p.Data["policy_id"]; id != 2.0 && id != 5.0 {
				t.Errorf("the event of policy %v came", id)
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
		b.emit(numbers(20)...)
		b.deliver(1)
		b.have(w.ID, Delivered, 20)
		r.answer(func(Payload) int { return 500 })
		one := b.deliveries(w.ID, DeliveryFilter{}).Deliveries[0].ID
		var single, many int64
		var mu sync.Mutex
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
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
		asking.Wait()
		if single != 1 || many != 19 {
			t.Errorf("queued %d by its id and %d by the period", single, many)
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
		timetest.Eventually(b, time.Minute, func() error {
			if n := r.calls(); n != 3 {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		rename("away", "webhook_deliveries")
		b.have(w.ID, Delivered, 3)
		if n := r.calls(); n != 3 {
			t.Errorf("%d calls for 3 events", n)
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
					t.Errorf("a lease for another %s: taken is %v", ahead, got)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
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
				t.Errorf("%s with %q: %v", how, secret, err)
			}
		}
	}
}
