package spool

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// newPace returns a Pace with its own log, and a clock that the test moves.
func newPace(t *testing.T) (*Pace, *time.Time) {
	t.Helper()
	l, err := Open(Config{Dir: t.TempDir(), Sync: SyncNever})
	errtest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	now := time.Unix(1000, 0)
	p := NewPace(l, func() time.Time { return now }, 1000, 15, 1000)
	p.most = time.Hour // so that a test which waits for the end of a rest fails
	return p, &now
}

// appendOver appends n records while the clock moves on by a period.
func appendOver(t *testing.T, p *Pace, now *time.Time, n int, while time.Duration) {
	t.Helper()
	for range n {
		errtest.Must(t, p.Log.Append([]byte("x")))
	}
	*now = now.Add(while)
	p.updateRate()
}

// More records than the rate allows are a burst, until the rate falls.
func TestPaceKnowsABurst(t *testing.T) {
	p, now := newPace(t)
	appendOver(t, p, now, 100, 100*time.Millisecond)
	if p.burst {
		t.Error("burst = true at the rate, want false")
	}
	appendOver(t, p, now, 101, 100*time.Millisecond)
	if !p.burst {
		t.Error("burst = false above the rate, want true")
	}
	appendOver(t, p, now, 0, paceLook-1)
	if !p.burst {
		t.Error("burst = false after a period that is too short, want true")
	}
	appendOver(t, p, now, 0, 1)
	if p.burst {
		t.Error("burst = true after a period without records, want false")
	}
}

// The deeper the backlog, the shorter the rest.
func TestPaceRestsLessTheDeeperTheBacklog(t *testing.T) {
	p, _ := newPace(t)
	for _, c := range []struct {
		took    time.Duration
		backlog int64
		want    time.Duration
	}{
		{10 * time.Millisecond, 0, 150 * time.Millisecond},
		{10 * time.Millisecond, 500, 75 * time.Millisecond},
		{10 * time.Millisecond, 1000, 0},
		{10 * time.Millisecond, 5000, 0},
		{time.Hour, 0, time.Hour},
		{0, 0, 0},
	} {
		if got := p.restTime(c.took, c.backlog); got != c.want {
			t.Errorf("rest(%v, %d) = %v, want %v", c.took, c.backlog, got, c.want)
		}
	}
}

// A rest ends when somebody waits for the records, or the consumer stops.
func TestPaceEndsARest(t *testing.T) {
	for name, end := range map[string]func(p *Pace, cancel func()){
		"somebody waits":     func(p *Pace, _ func()) { p.Wake(); p.Wake() },
		"the consumer stops": func(_ *Pace, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			p, now := newPace(t)
			appendOver(t, p, now, 10, time.Millisecond)
			appendOver(t, p, now, 190, paceLook)
			if !p.burst {
				t.Fatal("burst = false, want true")
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			rested := make(chan struct{})
			go func() { // the clock stands, so nothing else ends the burst
				defer close(rested)
				p.Wait(ctx, time.Hour, 1)
			}()
			end(p, cancel)
			select {
			case <-rested:
			case <-time.After(30 * time.Second):
				t.Fatal("the rest does not end")
			}
		})
	}
}

// Without a burst there is no rest.
func TestPaceDoesNotRestWithoutABurst(t *testing.T) {
	p, now := newPace(t)
	appendOver(t, p, now, 1, time.Second)
	p.Wait(context.Background(), 100*time.Hour, 1)
	if p.burst {
		t.Error("burst = true at one record a second, want false")
	}
}

// If records cost much to store, a lower rate counts as a burst. The cost of a small batch does not
// count, because most of it is that of the transaction.
func TestPaceWeighsTheCost(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		n    int
		want bool
	}{
		{10 * time.Millisecond, 1000, false},   // 100 records a second of 10 us each: 0.1 %
		{1900 * time.Millisecond, 1000, false}, // of 1.9 ms: 19 %
		{3 * time.Second, 1000, true},
		{3 * time.Second, paceBatch - 1, false},
	} {
		p, now := newPace(t)
		p.Share = 0.2
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Wait(ctx, c.took, c.n)
		appendOver(t, p, now, 10, 100*time.Millisecond)
		if p.burst != c.want {
			t.Errorf("a batch of %d in %v: burst = %v, want %v", c.n, c.took, p.burst, c.want)
		}
	}
}
