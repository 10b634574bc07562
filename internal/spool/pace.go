package spool

import (
	"context"
	"time"
)

// Pace tells a Log's consumer when to rest. Storing a record costs many times
// what making it does, on the same processors, and the log keeps it safe
// meanwhile: so in a burst the consumer works a part of the time only. The part
// grows with the backlog, up to all of it, and when the burst is over nothing
// holds the consumer back.
type Pace struct {
	Log *Log
	Now func() time.Time
	// Busy is the rate of appends, in records a second, above which there is a burst.
	Busy float64
	// Share is how much of a processor storing may take before a slower rate counts
	// as a burst too, by what the records of the last batch cost; 0: any.
	Share float64
	// Rests is how many times as long as a batch took the consumer rests after it
	// in a burst, while there is no backlog; none is left of it at Deep records.
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
	// paceLook is how long appends are counted for a rate to be known.
	paceLook = 20 * time.Millisecond
	// paceMost is the longest rest: what was decided may be looked for.
	paceMost = 3 * time.Second
	// paceBatch is how many records a batch has whose cost counts: small ones
	// are mostly the cost of a transaction, and nothing waits behind them.
	paceBatch = 500
)

// NewPace makes the pace of log's consumer.
func NewPace(log *Log, now func() time.Time, busy, rests float64, deep int64) *Pace {
	return &Pace{Log: log, Now: now, Busy: busy, Rests: rests, Deep: deep, most: paceMost, hurry: make(chan struct{}, 1), since: now(), seen: log.written()}
}

// Hurry ends the rest that is being taken, or else the next one: somebody waits
// for what is in the log. It may be called by anybody.
func (p *Pace) Hurry() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// Rest is called by the consumer after a batch of n records that took so long. It
// returns when the next one is due, at once where there is no burst.
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

// rest is how long the consumer may rest at a backlog.
func (p *Pace) rest(took time.Duration, backlog int64) time.Duration {
	room := 1 - float64(backlog)/float64(p.Deep)
	return min(p.most, time.Duration(float64(took)*p.Rests*max(room, 0)))
}

// updateRate works out the rate since the last time, unless that was just now.
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
