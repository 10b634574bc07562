package bodies

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// closing is a body that the server closes with its last byte, as it does when the answer begins.
type closing struct{ left string }

func (c *closing) Read(p []byte) (int, error) {
	if c.left == "" {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, c.left)
	if c.left = c.left[n:]; c.left == "" {
		return n, io.EOF
	}
	return n, nil
}

func (c *closing) Close() error { return nil }

// After the end, a body returns io.EOF again. The transport reads once more, and on an error it
// would abort the answer.
func TestBodyEndsOnce(t *testing.T) {
	body := NewClientBody(httptest.NewRecorder(), &closing{"abc"}, time.Now, time.Now())
	data, err := io.ReadAll(body)
	if string(data) != "abc" || err != nil {
		t.Fatalf("the body is %q %v, want abc", data, err)
	}
	if n, err := body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("a read after the end: %d bytes, %v, want EOF", n, err)
	}
}

// trickle is a body that yields a byte after some time on the test's clock.
type trickle struct {
	now   *time.Time
	after time.Duration
}

func (t *trickle) Read(p []byte) (int, error) {
	*t.now = t.now.Add(t.after)
	p[0] = 'x'
	return 1, nil
}

func (t *trickle) Close() error { return nil }

// A body that arrives too slowly ends after thirty seconds in all, and not only at the deadline of
// the read that is in progress. A clock that is set forward does not end a body.
func TestSlowBody(t *testing.T) {
	start := time.Now()
	now := start
	w := &deadlines{}
	from := &trickle{now: &now, after: 29 * time.Second}
	body := NewClientBody(w, from, func() time.Time { return now }, now)
	buf := make([]byte, 1)
	errtest.Must(t, errtest.Of(body.Read(buf)))
	from.after = time.Second
	if _, err := body.Read(buf); err != nil || w.last.After(start.Add(ClientReadTimeout)) {
		t.Fatalf("%v; the read after 29 s may last until %v, want at most %v", err, w.last.Sub(start), ClientReadTimeout)
	}
	if _, err := body.Read(buf); !errors.Is(err, ErrSlow) || !body.slow {
		t.Errorf("two bytes in half a minute: %v, want ErrSlow", err)
	}
	from.after = 10 * time.Hour
	body = NewClientBody(w, from, func() time.Time { return now }, now)
	for range 3 {
		if _, err := body.Read(buf); err != nil {
			t.Errorf("the clock goes forward: %v, want no error", err)
		}
	}
}

// The transport may read a body for longer than the handler runs. Then it must not remove the
// deadline under which the server reads: the connection would wait for ever.
func TestBodyOutlivesItsRequest(t *testing.T) {
	w := &deadlines{}
	body := NewClientBody(w, io.NopCloser(strings.NewReader("ab")), time.Now, time.Now())
	if _, err := body.Read(make([]byte, 1)); err != nil || w.set != 1 {
		t.Fatalf("the first read: %v, %d deadlines, want one", err, w.set)
	}
	body.Detach()
	if _, err := io.ReadAll(body); err != nil || w.set != 1 {
		t.Errorf("after the request: %v, %d more deadlines, want none", err, w.set-1)
	}
}

// deadlines is a writer that takes deadlines.
type deadlines struct {
	http.ResponseWriter
	set  int
	last time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.set++; d.last = t; return nil }
