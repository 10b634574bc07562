package spool

import (
	"context"
	"testing"
	"time"
)

// paced is a Pace with its own log and a clock that the test moves.
func paced(t *testing.T) (*Pace, *time.Time) {
	t.Helper()
	l, err := Open(Config{Dir: t.TempDir(), Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := p.Log.Append([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	*now = now.Add(while)
	p.updateRate()
}

func TestPaceKnowsABurst(t *testing.T) {
	p, now := paced(t)
	appendOver(t, p, now, 100, 100*time.Millisecond)
	if p.burst {
		t.Error("as many as the rate allows are taken for a burst")
	}
	appendOver(t, p, now, 101, 100*time.Millisecond)
	if !p.burst {
		t.Error("more than the rate allows are no burst")
	}
	appendOver(t, p, now, 0, paceLook-1)
	if !p.burst {
		t.Error("a look that is too short ended the burst")
	}
	appendOver(t, p, now, 0, 1)
	if p.burst {
		t.Error("silence does not end a burst")
	}
}

func TestPaceRestsLessTheDeeperTheBacklog(t *testing.T) {
	p, _ := paced(t)
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
			t.Errorf("after %v with %d waiting it rests %v, not %v", c.took, c.backlog, got, c.want)
		}
	}
}

func TestPaceEndsARest(t *testing.T) {
	for name, end := range map[string]func(p *Pace, cancel func()){
		"when somebody waits":       func(p *Pace, _ func()) { p.Wake(); p.Wake() },
		"when the consumer is over": func(_ *Pace, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			p, now := paced(t)
			appendOver(t, p, now, 10, time.Millisecond)
			appendOver(t, p, now, 190, paceLook)
			if !p.burst {
				t.Fatal("no burst")
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
				t.Fatal("it goes on resting")
			}
		})
	}
}

func TestPaceDoesNotRestWithoutABurst(t *testing.T) {
	p, now := paced(t)
	appendOver(t, p, now, 1, time.Second)
	p.Wait(context.Background(), 100*time.Hour, 1)
	if p.burst {
		t.Error("one record a second is no burst")
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
		p, now := paced(t)
		p.Share = 0.2
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.Wait(ctx, c.took, c.n)
		appendOver(t, p, now, 10, 100*time.Millisecond)
		if p.burst != c.want {
			t.Errorf("a batch of %d in %v: burst %v", c.n, c.took, p.burst)
		}
	}
}
