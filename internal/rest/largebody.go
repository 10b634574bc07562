package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
)

// smallBody is the size, in bytes, up to which bodies are read directly. Larger ones take memory
// from a pool (package memory), because a hundred at once could use all memory of the process.
const smallBody = 64 << 10

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
		size := limit
		if req.ContentLength > 0 {
			size = req.ContentLength
		}
		want := size
		if fresh {
			want *= 2 // the handler reads a copy
		}
		if err := x.take(req.Context(), memory.Bodies, want); err != nil {
			return nil, err
		}
		buf = append(x.r.largeBuffer(size+1), buf...)
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
	if x.route.op.Slow {
		x.slowDown(true)
	}
	return buf, x.take(req.Context(), memory.Decoded, memory.Cost(buf, x.route.bodyType != nil))
}

// errMore is the error for a body that exceeds the limit.
var errMore = errors.New("more bytes than the bound")

// readTo reads to the end. If there is more, it stops one byte after limit and returns errMore.
func readTo(buf []byte, body io.Reader, limit int64) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		free := buf[len(buf):cap(buf)]
		if most := limit + 1 - int64(len(buf)); int64(len(free)) > most {
			free = free[:most]
		}
		n, err := body.Read(free)
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

// holder returns whose part of a pool the request takes: its tenant's, or that of all requests
// without a credential. A tenant that such a request only names does not pay for it.
func (x *exchange) holder() (name string, stranger bool) {
	if !x.authenticated {
		return "", true
	}
	return string(x.scope.Tenant), false
}

// take takes memory until the exchange is finished, once for each of the two. Brief operations have
// pools of their own, so that no upload holds up a decision.
func (x *exchange) take(ctx context.Context, which int, n int64) error {
	pools := &x.r.bodyPools
	if x.route.op.Brief {
		pools = &x.r.briefBodyPools
	}
	if n == 0 || x.free[which] != nil {
		return nil
	}
	name, stranger := x.holder()
	free, err := pools[which].Take(ctx, name, n, stranger)
	if err != nil {
		return fault.New(fault.Unavailable, "busy", "too many large bodies are being processed").After(time.Second).Because(err)
	}
	x.free[which] = free
	return nil
}

// releaseRoom frees what take took. The body must not be used afterwards.
func (x *exchange) releaseRoom() {
	if large := x.body; x.free[memory.Bodies] != nil && cap(large) > smallBody {
		x.r.buffers.Put(&large)
		x.body = nil
	}
	for i, free := range x.free {
		if free != nil {
			x.free[i] = nil // drain and finish both release
			free()
		}
	}
}
