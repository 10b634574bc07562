package webhook

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// slowSink is a Sink that calls taken before its transaction is committed.
type slowSink struct {
	Sink
	taken func(ctx context.Context, tx *db.Tx)
}

// Take implements event.Sink.
func (s slowSink) Take(ctx context.Context, tx *db.Tx, tenant scope.TenantID, o event.Occurrence) error {
	err := s.Sink.Take(ctx, tx, tenant, o)
	s.taken(ctx, tx)
	return err
}

// TestEventsQueuedWhileResultsAreStored checks that an event gets the time of the earlier events of
// its object, although it is queued by one replica while another one stores a result that changes
// those times. Only on PostgreSQL can both happen at once.
func TestEventsQueuedWhileResultsAreStored(t *testing.T) {
	ctx := context.Background()
	setup := func(t *testing.T) (*bench, *receiver, Issued, *Deliverer, func()) {
		b, r := newBench(t, dbtest.Open(t, dbtest.Postgres)), newReceiver(t)
		w := b.subscribe(r.URL, Draft{})
		d := &Deliverer{Service: b.Service, Holder: "replica", Logger: slog.New(slog.DiscardHandler)}
		turn := func() {
			_, err := d.runLane(ctx, job.LaneKey{Tenant: scope.DefaultTenant, Lane: w.ID}, func() {})
			if err != nil {
				t.Error(err)
			}
		}
		return b, r, w, d, turn
	}
	// during queues the next event, and runs a turn between its insertion and its commit.
	during := func(b *bench, turn func()) {
		ended := make(chan struct{})
		b.events.Sinks = []event.Sink{slowSink{taken: func(ctx context.Context, tx *db.Tx) {
			go func() { defer close(ended); turn() }()
			timetest.Eventually(b, 10*time.Second, func() error {
				select {
				case <-ended:
					return nil
				default:
				}
				waiting, err := db.One[int64](ctx, tx, `SELECT COUNT(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
					WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted`)
				if err == nil && waiting == 0 {
					err = errors.New("the turn neither ended nor waits")
				}
				return err
			})
		}}}
		b.dispatch()
		<-ended
	}
	t.Run("a failure", func(t *testing.T) {
		b, r, w, _, turn := setup(t)
		r.answer(func(Payload) int { return 500 })
		b.emit(7)
		b.raise(7)
		during(b, turn)
		got := b.deliveries(w.ID, DeliveryFilter{}).Deliveries
		if len(got) != 2 || got[0].NextAttemptAt == nil || got[1].NextAttemptAt == nil || got[0].NextAttemptAt.Before(*got[1].NextAttemptAt) {
			t.Errorf("the later event is due at %v and the earlier one at %v, want the later one not before", got[0].NextAttemptAt, got[1].NextAttemptAt)
		}
	})
	t.Run("the end of an outage", func(t *testing.T) {
		b, r, w, d, turn := setup(t)
		d.Backoff = func(int) time.Duration { return time.Hour }
		r.answer(func(Payload) int { return 0 })
		b.emit(countTo(10)...)
		turn()
		b.waitForPause(w.ID)
		r.answer(func(Payload) int { return 204 })
		b.clock.Move(2 * time.Hour)
		waits := b.deliveries(w.ID, DeliveryFilter{Status: Pending}).Deliveries
		// One delivery waits for longer, as after many failures.
		errtest.Must(t, b.stores.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			return postpone(ctx, tx, w.ID, "policy:10", b.Now().Add(12*time.Hour))
		}))
		b.raise(10)
		during(b, turn)
		for range 5 {
			turn()
		}
		if left := b.deliveries(w.ID, DeliveryFilter{Status: Pending}).Deliveries; len(left) != 0 {
			t.Errorf("%d of %d deliveries wait until %v although the receiver is back, want none", len(left), len(waits)+1, left[0].NextAttemptAt)
		}
	})
}
