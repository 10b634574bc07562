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
	// minBodyRate is the lowest rate, in bytes a second, after the first ClientPace. At a
	// byte a second, a body would hold its connection for days.
	minBodyRate = 256
)

// FromClient returns the body of a request that arrived at began. Each read gets a deadline.
func FromClient(w http.ResponseWriter, body io.ReadCloser, now func() time.Time, began time.Time) *Client {
	return &Client{ReadCloser: body, rc: http.NewResponseController(w), now: now, began: began}
}

// Client reads a client's body. Each read gets a deadline.
type Client struct {
	io.ReadCloser
	rc    *http.ResponseController
	now   func() time.Time
	began time.Time     // when the request arrived; zero once that was counted
	took  time.Duration // how long the server waited for the client
	read  int64
	slow  bool
	ended bool

	mu   sync.Mutex
	left bool // the handler has returned, so the connection belongs to the server
}

// Detach stops moving the deadline. The transport may still read the body after the
// handler has returned, while the server waits for its own reads under its own deadline.
func (c *Client) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
}

// setDeadline sets the deadline of the next read; the zero time removes it.
func (c *Client) setDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		_ = c.rc.SetReadDeadline(t) // a connection that is gone fails when it is read
	}
}

// addWait adds the time that the server waited for the client. No read takes longer than
// its deadline, so a larger difference is a change of the clock.
func (c *Client) addWait(d time.Duration) {
	if d > 0 && d <= ClientPace+time.Second {
		c.took += d
	}
}

// Read implements io.Reader. After the end it does not read the body again. The transport looks for
// one more byte, and by then the server may have closed the body, because the answer has begun.
// Another read would abort the answer.
func (c *Client) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	now := c.now()
	if !c.began.IsZero() {
		c.addWait(now.Sub(c.began))
		c.began = time.Time{}
	}
	// The rate also bounds the next read, not only those that are done.
	left := max(ClientPace, time.Duration(c.read/minBodyRate)*time.Second) - c.took
	if left <= 0 {
		c.slow = true
		return 0, ErrSlow
	}
	c.setDeadline(now.Add(min(left, ClientPace)))
	n, err := c.ReadCloser.Read(p)
	c.addWait(c.now().Sub(now))
	c.read += int64(n)
	if err != nil {
		c.slow = IsTimeout(err)
		c.ended = errors.Is(err, io.EOF)
		// The deadline must not outlive the body, because the server goes on reading to
		// notice when the client leaves. The body of a slow client is not over, though:
		// the server reads the rest of it before it answers, and without the deadline
		// both would wait for ever.
		if !c.slow {
			c.setDeadline(time.Time{})
		}
		if !c.slow && !c.ended {
			err = brokenBody{err}
		}
	}
	return n, err
}

// TooSlow reports whether the body ended because the client was too slow.
func (c *Client) TooSlow() bool { return c.slow }

// brokenBody is the error of a body that ends early, or is not what its head says.
type brokenBody struct{ cause error }

// Error implements error.
func (e brokenBody) Error() string { return "the client's body is incomplete: " + e.cause.Error() }

// Unwrap returns the cause.
func (e brokenBody) Unwrap() error { return e.cause }

// IsBroken reports whether an exchange failed because the client's body is incomplete.
func IsBroken(err error) bool { return errors.As(err, new(brokenBody)) }

// ErrSlow says that a client sends its body too slowly.
var ErrSlow = errors.New("the client sends its body too slowly")

// Bound also bounds a body that nobody reads, such as that of a refused request.
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
