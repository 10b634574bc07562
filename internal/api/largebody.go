package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Bodies up to smallBody are read as they come. Larger ones share largeBodies
// bytes until they are answered: a hundred at once would else take the memory of
// the process, and four times that again before its garbage is collected.
// Who finds no room waits for largeWait.
const (
	smallBody   = 64 << 10
	largeBodies = 40 << 20
	largeWait   = 10 * time.Second
)

// read reads the whole body of the request into the exchange's buffer, or into
// one of its own where fresh is set. Faults: TooLarge, BadRequest, Unavailable.
func (x *exchange) read(req *http.Request, fresh bool) ([]byte, error) {
	limit := x.route.op.MaxBody
	if req.ContentLength > limit {
		return nil, tooLarge(limit)
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
		if err := x.room(req.Context(), want); err != nil {
			return nil, err
		}
		buf = append(x.r.largeBuffer(want+1), buf...)
		buf, err = readTo(buf, req.Body, limit)
	}
	if !fresh {
		x.body = buf // finish gives it back
	}
	switch {
	case errors.Is(err, errMore):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, fault.New(fault.BadRequest, "unreadable_body", "the body could not be read to its end").Because(err)
	}
	return buf, nil
}

// errMore says that a body goes on beyond the bound.
var errMore = errors.New("more bytes than the bound")

// readTo reads to the end, or to one byte beyond limit: then the error is errMore.
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

// largeBuffer gives an empty buffer for n bytes, one that was used before if
// there is one: garbage of this size piles up faster than it is collected.
func (r *Router) largeBuffer(n int64) []byte {
	if b, ok := r.buffers.Get().(*[]byte); ok && int64(cap(*b)) >= n {
		return (*b)[:0]
	}
	return make([]byte, 0, n)
}

// room takes n of the bytes for large bodies until the exchange is finished.
func (x *exchange) room(ctx context.Context, n int64) error {
	if x.held > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, largeWait)
	defer cancel()
	if err := x.r.large.Acquire(ctx, n); err != nil {
		return fault.New(fault.Unavailable, "busy", "too many large bodies are being worked on").After(time.Second).Because(err)
	}
	x.held = n
	return nil
}

// leaveRoom gives back what room took; the body is not to be looked at any more.
func (x *exchange) leaveRoom() {
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
