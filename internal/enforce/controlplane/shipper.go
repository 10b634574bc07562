package controlplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Limits on one chunk of the decision log: small enough for any receiver, large enough to
// ship at little cost.
const (
	chunkEvents = 1000
	chunkBytes  = 512 << 10
	RetryMin    = 500 * time.Millisecond
	RetryMax    = 30 * time.Second
	// shipLinger is how long events collect after a chunk, which cuts the cost to a
	// tenth.
	shipLinger = 25 * time.Millisecond
	// FlushTimeout is how long a stopping bouncer goes on shipping.
	FlushTimeout = 2 * time.Second
)

// Shipper sends the decision log to the control plane.
type Shipper struct {
	spool      *spool.Log
	client     *Client
	ids        *ids.Source
	count      *metrics.Counters
	log        *slog.Logger
	now        func() time.Time
	unreadable func()
	zip        *gzip.Writer // its tables are 800 KB
	failing    atomic.Bool
}

// NewShipper returns a shipper of the events in the spool. unreadable is called each time the spool
// cannot be read.
func NewShipper(from *spool.Log, to *Client, chance *ids.Source, count *metrics.Counters, log *slog.Logger, now func() time.Time, unreadable func()) (*Shipper, error) {
	zip, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &Shipper{spool: from, client: to, ids: chance, count: count, log: log, now: now, unreadable: unreadable, zip: zip}, nil
}

// Failing reports whether the last chunk could not be sent.
func (s *Shipper) Failing() bool { return s.failing.Load() }

// Run sends spooled events to the bridge, in order. It repeats each chunk until it is
// acknowledged with a 2xx. When ctx ends, it goes on for FlushTimeout. What is left stays
// on disk until the next start.
func (s *Shipper) Run(ctx context.Context) {
	grace, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		late := time.NewTimer(FlushTimeout)
		defer late.Stop()
		select {
		case <-late.C:
			end()
		case <-grace.Done():
		}
	})()
	pace := spool.NewPace(s.spool, s.now, busyEvents, restFactor, deepEvents)
	for {
		until := ctx
		if ctx.Err() != nil {
			if s.spool.Depth() == 0 {
				return
			}
			until = grace
		}
		batch, err := s.spool.Next(until, chunkEvents)
		switch {
		case err == nil:
			began := s.now()
			if !s.deliver(grace, batch.Records) {
				return
			}
			took := s.now().Sub(began)
			if err := s.spool.Ack(batch); err != nil {
				s.log.Warn("the decision log cannot be trimmed", "error", err)
			}
			s.count.LogsShipped.Add(uint64(len(batch.Records)))
			pause.For(ctx, shipLinger)
			pace.Wait(ctx, took, len(batch.Records))
		case grace.Err() != nil || until == grace:
			return
		case ctx.Err() == nil:
			s.log.Warn("the decision log cannot be read", "error", err)
			s.unreadable()
			pause.For(ctx, RetryMax)
		}
	}
}

// While requests arrive faster than busyEvents a second, the shipper pauses after each chunk,
// unless the backlog is large. Shipping an event costs about as much as its request, here and at
// the server.
const (
	busyEvents = 2000
	restFactor = 15 // a pause is 15 times as long as the chunk took
	deepEvents = 500_000
)

// deliver sends records in chunks of limited size. It returns false if ctx ended first.
func (s *Shipper) deliver(ctx context.Context, records [][]byte) bool {
	limit := chunkBytes
	wait := RetryMin
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && (n == 0 || size+len(records[n]) <= limit) {
			size += len(records[n]) + 1
			n++
		}
		err := s.postEvents(ctx, records[:n])
		if err == nil {
			records, wait = records[n:], RetryMin
			s.failing.Store(false)
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		if no, ok := errors.AsType[*StatusError](err); ok && no.Code == http.StatusRequestEntityTooLarge {
			if n > 1 {
				limit = max(limit/2, 1)
				continue
			}
			// The bridge will never accept this event, and it must not block the others.
			s.count.LogsDropped.Add(1)
			s.log.WarnContext(ctx, "the event is too large for the bridge and was dropped", "bytes", size)
			records = records[1:]
			continue
		}
		s.failing.Store(true)
		s.log.DebugContext(ctx, "the decision log could not be sent", "error", err)
		if !pause.For(ctx, s.ids.Jitter(max(wait, RetryAfter(err)))) {
			return false
		}
		wait = min(2*wait, RetryMax)
	}
	return true
}

func (s *Shipper) postEvents(ctx context.Context, records [][]byte) error {
	var body bytes.Buffer
	z := s.zip
	z.Reset(&body)
	sep := []byte{'['}
	for _, r := range records {
		_, _ = z.Write(sep)
		_, _ = z.Write(r)
		sep[0] = ','
	}
	_, _ = z.Write([]byte{']'})
	if err := z.Close(); err != nil {
		return err
	}
	return s.client.Post(ctx, "/bridge/logs", body.Bytes(), true)
}
