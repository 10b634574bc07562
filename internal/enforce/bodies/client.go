package bodies

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits on how slowly a client may send its body and read an answer.
const (
	// ClientReadTimeout is how long the client may take for the next bytes of its body.
	ClientReadTimeout = 30 * time.Second
	// ClientWriteTimeout is how long one write to the client may take.
	ClientWriteTimeout = time.Minute
	// minBodyRate is the lowest rate, in bytes a second, after the first ClientReadTimeout. At one
	// byte a second, a body could hold its connection for days.
	minBodyRate = 256
)

// NewClientBody returns the body of a request that arrived at this time. Each read gets a deadline.
func NewClientBody(w http.ResponseWriter, body io.ReadCloser, now func() time.Time, arrived time.Time) *ClientBody {
	return &ClientBody{ReadCloser: body, rc: http.NewResponseController(w), now: now, arrived: arrived}
}

// ClientBody reads a client's body. Each read gets a deadline.
type ClientBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	now     func() time.Time
	arrived time.Time     // when the request arrived; zero once the time since then was counted
	waited  time.Duration // how long the server waited for the client
	read    int64
	slow    bool
	ended   bool

	mu       sync.Mutex
	detached bool // the handler has returned, so the connection belongs to the server
}

// Detach stops setting deadlines. The transport may still read the body after the handler
// has returned, but then the server sets deadlines of its own.
func (c *ClientBody) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.detached = true
}

// setDeadline sets the deadline of the next read; the zero time removes it.
func (c *ClientBody) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.detached {
		_ = c.rc.SetReadDeadline(t) // on a closed connection, the read fails
	}
}

// addWait adds the time that the server waited for the client. No read takes longer than
// its deadline, so a larger difference is a change of the clock.
func (c *ClientBody) addWait(d time.Duration) {
	if d > 0 && d <= ClientReadTimeout+time.Second {
		c.waited += d
	}
}

// Read implements io.Reader. After the end, it does not read the body again: the transport tries to
// read one more byte, and by then the answer may have begun and the server may have closed the
// body. Another read would abort the answer.
func (c *ClientBody) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	now := c.now()
	if !c.arrived.IsZero() {
		c.addWait(now.Sub(c.arrived))
		c.arrived = time.Time{}
	}
	// The minimum rate also limits the time of the next read.
	remaining := max(ClientReadTimeout, time.Duration(c.read/minBodyRate)*time.Second) - c.waited
	if remaining <= 0 {
		c.slow = true
		return 0, ErrSlow
	}
	c.setDeadline(now.Add(min(remaining, ClientReadTimeout)))
	n, err := c.ReadCloser.Read(p)
	c.addWait(c.now().Sub(now))
	c.read += int64(n)
	if err != nil {
		c.slow = IsTimeout(err)
		c.ended = errors.Is(err, io.EOF)
		// Remove the deadline at the end of the body, because the server continues to read
		// to notice when the client leaves. The body of a slow client has not ended: the
		// server reads the rest of it before it answers, and without the deadline it would
		// wait for ever.
		if !c.slow {
			c.setDeadline(time.Time{})
		}
		if !c.slow && !c.ended {
			err = brokenBody{err}
		}
	}
	return n, err
}

// IsTooSlow reports whether the body ended because the client was too slow.
func (c *ClientBody) IsTooSlow() bool { return c.slow }

// brokenBody is the error of a body that ends early, or that contradicts its headers.
type brokenBody struct{ cause error }

// Error implements error.
func (e brokenBody) Error() string { return "the client's body is incomplete: " + e.cause.Error() }

// Unwrap returns the cause.
func (e brokenBody) Unwrap() error { return e.cause }

// IsBroken reports whether an exchange failed because the client's body is incomplete.
func IsBroken(err error) bool {
	_, broken := errors.AsType[brokenBody](err)
	return broken
}

// ErrSlow means that a client sends its body too slowly.
var ErrSlow = errors.New("the client sends its body too slowly")

// SetDeadline sets a read deadline for a body that is not read, such as that of a refused request.
func SetDeadline(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(arrived.Add(ClientReadTimeout))
	}
}

// IsTimeout reports whether an exchange ran out of time.
func IsTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
