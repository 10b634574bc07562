package job

import (
	"context"
	"sync"
	"time"
)

// places says which lanes may send. Lanes whose receivers answer share the quick places,
// those whose receivers hang share the slow ones, first come, first served. A lane that
// turns out to be slow gives its quick place back while it still waits for its receiver,
// so no number of receivers that hang holds up one that answers.
type places struct {
	// slowAfter is how long a turn lasts without being slow; renew begins it anew.
	slowAfter time.Duration
	// serve has a turn, and done is called after it, when the lane may be started again.
	serve func(ctx context.Context, key LaneKey, renew func()) (again time.Time)
	done  func(key LaneKey, again time.Time)

	running sync.WaitGroup
	mu      sync.Mutex
	known   map[LaneKey]bool // lanes that wait or have a turn
	hanging map[LaneKey]bool // lanes whose last turn was slow
	quick   queue
	slow    queue
}

// queue is the lanes of one kind. free is below zero while more have a turn than there
// are places: those that were quick before.
type queue struct {
	free    int
	waiting []LaneKey
}

// turn is a lane at work.
type turn struct {
	key   LaneKey
	queue *queue
	late  bool
	ended bool
}

// start gives a lane a turn when there is a place, unless it waits or has one already.
func (p *places) start(ctx context.Context, key LaneKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[key] {
		return
	}
	p.known[key] = true
	q := &p.quick
	if p.hanging[key] {
		q = &p.slow
	}
	q.waiting = append(q.waiting, key)
	p.admit(ctx, q)
}

// admit begins turns while there are places. The caller holds mu.
func (p *places) admit(ctx context.Context, q *queue) {
	for q.free > 0 && len(q.waiting) > 0 && ctx.Err() == nil {
		t := &turn{key: q.waiting[0], queue: q}
		q.waiting = q.waiting[1:]
		q.free--
		p.running.Go(func() { p.take(ctx, t) })
	}
}

// take has a turn.
func (p *places) take(ctx context.Context, t *turn) {
	timer := time.AfterFunc(p.slowAfter, func() { p.overdue(ctx, t) })
	again := p.serve(ctx, t.key, func() { timer.Reset(p.slowAfter) })
	timer.Stop()
	p.mu.Lock()
	t.ended = true
	if !t.late {
		delete(p.hanging, t.key)
	}
	delete(p.known, t.key)
	t.queue.free++
	p.admit(ctx, t.queue)
	p.mu.Unlock()
	p.done(t.key, again)
}

// overdue moves a turn to the slow places, whether or not one is free.
func (p *places) overdue(ctx context.Context, t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.ended {
		return
	}
	t.late, p.hanging[t.key] = true, true
	if t.queue == &p.quick {
		t.queue = &p.slow
		p.slow.free--
		p.quick.free++
		p.admit(ctx, &p.quick)
	}
}
