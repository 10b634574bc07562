package job

import (
	"context"
	"sync"
	"time"
)

// places decides which lanes may send. Lanes whose receivers answer share the quick places. Lanes
// whose receivers hang share the slow places. Each kind is served in the order of arrival. A lane
// that becomes slow releases its quick place while it waits for its receiver, so receivers that
// hang never delay the others.
type places struct {
	// slowAfter is the time after which a turn is slow. A call of renew restarts it.
	slowAfter time.Duration
	// serve runs a turn. done is called after it; then the lane can be queued again.
	serve func(ctx context.Context, key LaneKey, renew func()) (again time.Time)
	done  func(key LaneKey, again time.Time)

	running sync.WaitGroup
	mu      sync.Mutex
	known   map[LaneKey]bool // lanes that are queued or have a turn
	hanging map[LaneKey]bool // lanes whose last turn was slow
	quick   queue
	slow    queue
}

// queue holds the lanes of one kind. free is negative if more lanes have a turn than there are
// places, because quick lanes became slow.
type queue struct {
	free    int
	waiting []LaneKey
}

// turn is the current turn of a lane.
type turn struct {
	key   LaneKey
	queue *queue
	late  bool
	ended bool
}

// enqueue queues a lane, unless it is queued already or has a turn.
func (p *places) enqueue(ctx context.Context, key LaneKey) {
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
	p.startTurns(ctx, q)
}

// startTurns starts turns while places are free. The caller holds mu.
func (p *places) startTurns(ctx context.Context, q *queue) {
	for q.free > 0 && len(q.waiting) > 0 && ctx.Err() == nil {
		t := &turn{key: q.waiting[0], queue: q}
		q.waiting = q.waiting[1:]
		q.free--
		p.running.Go(func() { p.runTurn(ctx, t) })
	}
}

// runTurn runs a turn and releases its place.
func (p *places) runTurn(ctx context.Context, t *turn) {
	timer := time.AfterFunc(p.slowAfter, func() { p.moveToSlow(ctx, t) })
	again := p.serve(ctx, t.key, func() { timer.Reset(p.slowAfter) })
	timer.Stop()
	p.mu.Lock()
	t.ended = true
	if !t.late {
		delete(p.hanging, t.key)
	}
	delete(p.known, t.key)
	t.queue.free++
	p.startTurns(ctx, t.queue)
	p.mu.Unlock()
	p.done(t.key, again)
}

// moveToSlow moves a turn to the slow places, even if none is free.
func (p *places) moveToSlow(ctx context.Context, t *turn) {
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
		p.startTurns(ctx, &p.quick)
	}
}
