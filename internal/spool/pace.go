package spool

import (
	"context"
	"time"
)

// Pace tells the consumer of a Log when to rest. Storing a record costs many times as much
// as making it, on the same processors, and the log keeps it safe meanwhile. So in a burst
// the consumer works only a part of the time. The part grows with the backlog, up to all of
// it; after the burst, nothing delays the consumer.
type Pace struct {
	Log *Log
	Now func() time.Time
	// Busy is the rate of appends, in records a second, above which there is a burst.
	Busy float64
	// Share is how much of a processor storing may take before a lower rate counts as a
	// burst too, judged by the cost of the last batch; 0: any.
	Share float64
	// Rests is the length of a rest in a burst, as a multiple of the time of the last
	// batch, while there is no backlog; it falls to 0 at Deep records.
	Rests float64
	Deep  int64

	most  time.Duration // the longest rest
	hurry chan struct{}
	since time.Time
	seen  uint64
	cost  float64 // seconds to store a record
	burst bool
}

const (
	// paceLook is how long appends are counted to measure a rate.
	paceLook = 20 * time.Millisecond
	// paceMost is the longest rest: somebody may look for a decision.
	paceMost = 3 * time.Second
	// paceBatch is the smallest batch whose cost counts: in small ones the transaction
	// dominates, and nothing waits behind them.
	paceBatch = 500
)

// NewPace makes the pace of log's consumer.
func NewPace(log *Log, now func() time.Time, busy, rests float64, deep int64) *Pace {
	return &Pace{Log: log, Now: now, Busy: busy, Rests: rests, Deep: deep, most: paceMost, hurry: make(chan struct{}, 1), since: now(), seen: log.written()}
}

// Hurry ends the current rest, or else the next one, because somebody waits for records. It
// is safe for concurrent use.
func (p *Pace) Hurry() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// Rest is called by the consumer after a batch of n records that took this long. It returns
// when the next one is due; at once when there is no burst.
func (p *Pace) Rest(ctx context.Context, took time.Duration, n int) {
	p.cost = 0
	if n >= paceBatch {
		p.cost = took.Seconds() / float64(n)
	}
	p.updateRate()
	if !p.burst {
		return
	}
	for left := p.rest(took, p.Log.Depth()); left > 0 && p.burst; left -= paceLook {
		timer := time.NewTimer(min(left, paceLook))
		select {
		case <-timer.C:
		case <-p.hurry:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		p.updateRate()
	}
}

// rest is how long the consumer may rest at this backlog.
func (p *Pace) rest(took time.Duration, backlog int64) time.Duration {
	room := 1 - float64(backlog)/float64(p.Deep)
	return min(p.most, time.Duration(float64(took)*p.Rests*max(room, 0)))
}

// updateRate measures the rate since the last time, unless that was just now.
func (p *Pace) updateRate() {
	now := p.Now()
	passed := now.Sub(p.since)
	if passed < paceLook {
		return
	}
	written := p.Log.written()
	rate := float64(written-p.seen) / passed.Seconds()
	p.burst = rate > p.Busy || p.Share > 0 && rate*p.cost > p.Share
	p.since, p.seen = now, written
}
