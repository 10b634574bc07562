package enforce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/spool"
)

// Bounds on one chunk of the decision log: few enough bytes for any intake,
// enough events that shipping costs little.
const (
	chunkEvents  = 1000
	chunkBytes   = 512 << 10
	shipRetryMin = 500 * time.Millisecond
	shipRetryMax = 30 * time.Second
	// shipLinger lets events gather after a chunk, which costs a tenth then.
	shipLinger = 25 * time.Millisecond
)

// ship sends spooled events to the bridge, in order, each chunk until it is
// acknowledged with a 2xx. When ctx ends it has flushTimeout to send what is
// spooled already; what stays is on disk and goes out after the next start.
func (b *Bouncer) ship(ctx context.Context) {
	grace, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		late := time.NewTimer(flushTimeout)
		defer late.Stop()
		select {
		case <-late.C:
			end()
		case <-grace.Done():
		}
	})()
	pace := spool.NewPace(b.spool, b.cfg.Now, busyEvents, shipRests, deepEvents)
	for {
		until := ctx
		if ctx.Err() != nil {
			if b.spool.Depth() == 0 {
				return
			}
			until = grace
		}
		batch, err := b.spool.Next(until, chunkEvents)
		switch {
		case err == nil:
			began := b.cfg.Now()
			if !b.deliver(grace, batch.Records) {
				return
			}
			took := b.cfg.Now().Sub(began)
			if err := b.spool.Ack(batch); err != nil {
				b.log.Warn("the decision log cannot be trimmed", "error", err)
			}
			b.count.LogsShipped.Add(uint64(len(batch.Records)))
			b.pause(ctx, shipLinger)
			pace.Rest(ctx, took, len(batch.Records))
		case grace.Err() != nil || until == grace:
			return
		case ctx.Err() == nil:
			b.log.Warn("the decision log cannot be read", "error", err)
			b.logsFailing.Store(true)
			b.pause(ctx, shipRetryMax)
		}
	}
}

// While requests come faster than busyEvents a second, the shipper rests after
// each chunk, until the backlog is deep: shipping an event costs about what its
// request did, here and at the server.
const (
	busyEvents = 2000
	shipRests  = 15
	deepEvents = 500_000
)

// deliver sends records as chunks of bounded size; false when ctx ended first.
func (b *Bouncer) deliver(ctx context.Context, records [][]byte) bool {
	limit := chunkBytes
	wait := shipRetryMin
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && (n == 0 || size+len(records[n]) <= limit) {
			size += len(records[n]) + 1
			n++
		}
		err := b.postEvents(ctx, records[:n])
		if err == nil {
			records, wait = records[n:], shipRetryMin
			b.shipFailing.Store(false)
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		var no *statusError
		if errors.As(err, &no) && no.code == http.StatusRequestEntityTooLarge {
			if n > 1 {
				limit = max(limit/2, 1)
				continue
			}
			// One event alone that the intake will never take: it must not hold up the rest.
			b.count.LogsDropped.Add(1)
			b.log.WarnContext(ctx, "the bridge takes no event of this size; it is dropped", "bytes", size)
			records = records[1:]
			continue
		}
		b.shipFailing.Store(true)
		b.log.DebugContext(ctx, "the decision log could not be sent", "error", err)
		if !b.pause(ctx, b.ids.Jitter(max(wait, retryAfter(err)))) {
			return false
		}
		wait = min(2*wait, shipRetryMax)
	}
	return true
}

func (b *Bouncer) postEvents(ctx context.Context, records [][]byte) error {
	var body bytes.Buffer
	z := b.zip
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
	return b.post(ctx, "/bridge/logs", body.Bytes(), true)
}

// statusError is an answer of the control plane that was no success.
type statusError struct {
	code  int
	after time.Duration
}

// Error implements error.
func (e *statusError) Error() string {
	said := "the control plane answered " + strconv.Itoa(e.code)
	if e.code == http.StatusUnauthorized {
		said += ": this token is not known there. Check GATEHOUSE_BOUNCER_TOKEN and GATEHOUSE_URL, or register the bouncer again"
	}
	return said
}

func retryAfter(err error) time.Duration {
	var no *statusError
	if errors.As(err, &no) {
		return no.after
	}
	return 0
}

// failedStatus makes an error of an answer.
func failedStatus(resp *http.Response) error {
	e := &statusError{code: resp.StatusCode}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.after = time.Duration(min(n, 60)) * time.Second
	}
	return e
}

// post sends JSON to the bridge.
func (b *Bouncer) post(ctx context.Context, path string, body []byte, zipped bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := b.request(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if zipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return fmt.Errorf("the control plane cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode/100 != 2 {
		return failedStatus(resp)
	}
	return nil
}

// request makes a request to the control plane with our credential.
func (b *Bouncer) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.cfg.Token)
	req.Header.Set("User-Agent", "gatehouse-bouncer/"+b.cfg.Version)
	return req, nil
}

// pause waits; false when ctx ended first.
func (b *Bouncer) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
