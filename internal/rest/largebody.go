package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Bodies up to smallBody are read directly. Larger ones share largeBodies bytes until they are
// answered, because a hundred at once could use all memory of the process. If there is no room, a
// request waits up to largeWait.
const (
	smallBody   = 64 << 10
	largeBodies = 40 << 20
	largeWait   = 10 * time.Second
)

// read reads the whole body of the request, into the exchange's buffer or, if fresh is true, into a
// new one. Faults: TooLarge, BadRequest, Unavailable.
func (x *exchange) read(req *http.Request, fresh bool) ([]byte, error) {
	limit := x.route.op.MaxBody
	if req.ContentLength > limit {
		return nil, TooLarge(limit)
	}
	var buf []byte
	if !fresh {
		buf = x.body[:0]
	}
	if n := req.ContentLength; n > 0 && n <= smallBody && int64(cap(buf)) < n {
		buf = make([]byte, 0, n+1)
	}
	buf, err := readTo(buf, req.Body, min(limit, smallBody))
	if errors.Is(err, errMore) && limit > smallBody {
		want := limit
		if req.ContentLength > 0 {
			want = req.ContentLength
		}
		if err := x.reserveRoom(req.Context(), want); err != nil {
			return nil, err
		}
		buf = append(x.r.largeBuffer(want+1), buf...)
		buf, err = readTo(buf, req.Body, limit)
	}
	if !fresh {
		x.body = buf // finish recycles it
	}
	switch {
	case errors.Is(err, errMore):
		return nil, TooLarge(limit)
	case err != nil:
		return nil, fault.New(fault.BadRequest, "unreadable_body", "the body could not be read to its end").Because(err)
	}
	return buf, nil
}

// errMore is the error for a body that exceeds the limit.
var errMore = errors.New("more bytes than the bound")

// readTo reads to the end. If there is more, it stops one byte after limit and returns errMore.
func readTo(buf []byte, body io.Reader, limit int64) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		room := buf[len(buf):cap(buf)]
		if most := limit + 1 - int64(len(buf)); int64(len(room)) > most {
			room = room[:most]
		}
		n, err := body.Read(room)
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return buf, errMore
		}
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// largeBuffer returns an empty buffer for n bytes, and reuses one if it can: garbage of this size
// grows faster than it is collected.
func (r *Router) largeBuffer(n int64) []byte {
	if b, ok := r.buffers.Get().(*[]byte); ok && int64(cap(*b)) >= n {
		return (*b)[:0]
	}
	return make([]byte, 0, n)
}

// reserveRoom reserves n of the bytes for large bodies until the exchange is finished.
func (x *exchange) reserveRoom(ctx context.Context, n int64) error {
	if x.held > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	if err := x.r.large.Acquire(ctx, n); err != nil {
		return fault.New(fault.Unavailable, "busy", "too many large bodies are being processed").After(time.Second).Because(err)
	}
	x.held = n
	return nil
}

// releaseRoom frees the reservation of reserveRoom. The body must not be used afterwards.
func (x *exchange) releaseRoom() {
	if x.held == 0 {
		return
	}
	if large := x.body; cap(large) > smallBody {
		x.r.buffers.Put(&large)
		x.body = nil
	}
	x.r.large.Release(x.held)
	x.held = 0
}
