package spool

import (
	"context"
	"time"
)

// Pace makes the consumer of a Log rest during a burst of records. Storing a record costs many
// times as much as making it, on the same processors, and the record is safe in the log meanwhile.
// The rests get shorter when the backlog grows, and after the burst there are none.
type Pace struct {
	Log *Log
	Now func() time.Time
	// Busy is the rate of appends, in records a second, above which there is a burst.
	Busy float64
	// Share is the part of a processor's time that storing may take. If it would take more at
	// the current rate, judged by the cost of the last batch, that counts as a burst too. 0 means
	// no limit.
	Share float64
	// Rests is the length of a rest without a backlog, as a multiple of the time of the last
	// batch. With a backlog it is shorter, down to 0 at Deep records.
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
	// paceLook is the shortest time over which the rate of appends is measured.
	paceLook = 20 * time.Millisecond
	// paceMost is the longest rest, because a user may look for a recent decision.
	paceMost = 3 * time.Second
	// paceBatch is the smallest batch whose cost counts, in records. For smaller ones most of the
	// cost is that of the transaction, and there is no backlog.
	paceBatch = 500
)

// NewPace makes the pace of log's consumer.
func NewPace(log *Log, now func() time.Time, busy, rests float64, deep int64) *Pace {
	return &Pace{Log: log, Now: now, Busy: busy, Rests: rests, Deep: deep, most: paceMost, hurry: make(chan struct{}, 1), since: now(), seen: log.written()}
}

// Wake ends the current rest, or the next one if there is none now. Call it if somebody waits for
// records to be stored. It is safe for concurrent use.
func (p *Pace) Wake() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// Wait waits until the consumer should process the next batch. The consumer calls it after a batch
// of n records that took this long. Without a burst, it returns at once.
func (p *Pace) Wait(ctx context.Context, took time.Duration, n int) {
	p.cost = 0
	if n >= paceBatch {
		p.cost = took.Seconds() / float64(n)
	}
	p.updateRate()
	if !p.burst {
		return
	}
	for left := p.restTime(took, p.Log.Depth()); left > 0 && p.burst; left -= paceLook {
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

// restTime returns how long the consumer may rest at this backlog, in records.
func (p *Pace) restTime(took time.Duration, backlog int64) time.Duration {
	room := 1 - float64(backlog)/float64(p.Deep)
	return min(p.most, time.Duration(float64(took)*p.Rests*max(room, 0)))
}

// updateRate measures the rate of appends since the last measurement, if that is long enough ago.
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
