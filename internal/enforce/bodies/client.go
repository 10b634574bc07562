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

// The pace that a client must keep with its body.
const (
	// ClientPace is how long the client may take for the next bytes of its body.
	ClientPace = 30 * time.Second
	// ClientWrite is how long one write to the client may take.
	ClientWrite = time.Minute
	// minBodyRate is the least rate, in bytes a second, that a body must keep
	// after its first ClientPace: a byte a second holds a connection for days.
	minBodyRate = 256
)

// FromClient is the body of a request that came at began, read under a deadline that
// moves with it.
func FromClient(w http.ResponseWriter, body io.ReadCloser, now func() time.Time, began time.Time) *Client {
	return &Client{ReadCloser: body, rc: http.NewResponseController(w), now: now, began: began}
}

// Client reads the client's body under a deadline that moves with it.
type Client struct {
	io.ReadCloser
	rc    *http.ResponseController
	now   func() time.Time
	began time.Time     // when the request came; zero once that was counted
	took  time.Duration // how long the client was waited for
	read  int64
	slow  bool
	ended bool

	mu   sync.Mutex
	left bool // the handler returned: the connection is the server's alone
}

// Detach ends the moving of the deadline. The transport may read the body for longer
// than the request is served, while the server waits for its own reads under a
// deadline of its own.
func (c *Client) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
}

// until bounds the next read; the zero time lifts the bound.
func (c *Client) until(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		_ = c.rc.SetReadDeadline(t) // a connection that is gone says so when it is read
	}
}

// wait counts the time that the client was waited for. No read lasts longer than its
// deadline: what a clock says beyond that is a step of the clock.
func (c *Client) wait(d time.Duration) {
	if d > 0 && d <= ClientPace+time.Second {
		c.took += d
	}
}

// Read implements io.Reader. Once the body is at its end it is not asked again:
// the transport looks for one more byte, and by then the server may have closed
// the body, since the answer's head is out. That would break off the answer.
func (c *Client) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	now := c.now()
	if !c.began.IsZero() {
		c.wait(now.Sub(c.began))
		c.began = time.Time{}
	}
	// The least rate decides when the next bytes must be here, not only whether those
	// that came were in time.
	left := max(ClientPace, time.Duration(c.read/minBodyRate)*time.Second) - c.took
	if left <= 0 {
		c.slow = true
		return 0, ErrSlow
	}
	c.until(now.Add(min(left, ClientPace)))
	n, err := c.ReadCloser.Read(p)
	c.wait(c.now().Sub(now))
	c.read += int64(n)
	if err != nil {
		c.slow = IsTimeout(err)
		c.ended = errors.Is(err, io.EOF)
		// The deadline must not outlive the body: the server goes on reading to see the client
		// leave. A body that was too slow is not over, and the server reads the rest of it
		// before it sends the answer: without the deadline both would wait for ever.
		if !c.slow {
			c.until(time.Time{})
		}
	}
	return n, err
}

// TooSlow reports whether the body ended for the client's pace.
func (c *Client) TooSlow() bool { return c.slow }

// ErrSlow says that a client sends its body too slowly.
var ErrSlow = errors.New("the client sends its body too slowly")

// Bound bounds a body that nobody reads, too: that of a request which is refused.
func Bound(w http.ResponseWriter, r *http.Request, began time.Time) {
	if r.Body != nil && r.Body != http.NoBody {
		_ = http.NewResponseController(w).SetReadDeadline(began.Add(ClientPace))
	}
}

// IsTimeout reports whether an exchange ran out of time.
func IsTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}
