package upstream

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/framing"
)

// deadlineConn is a connection that records its deadlines.
type deadlineConn struct {
	net.Conn
	set []time.Time
}

func (n *deadlineConn) SetDeadline(t time.Time) error { n.set = append(n.set, t); return nil }

// An exchange has at most its time and at least 63/64 of it. Exchanges that follow closely share a
// deadline.
func TestDeadlinesAreShared(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	conn := &deadlineConn{}
	l := &pooledConn{conn: framing.NewClientConn(conn, framing.NewTrust(time.Now, func() {}))}
	const long = 64 * time.Second
	exchange := func(after, long time.Duration) {
		t.Helper()
		now := start.Add(after)
		errtest.Must(t, l.extendDeadline(now, long))
		left := conn.set[len(conn.set)-1].Sub(now)
		if left > long || left < long-long/64 {
			t.Errorf("an exchange after %s has %s, want %s or up to 1/64 less", after, left, long)
		}
	}
	for _, after := range []time.Duration{0, time.Millisecond, 900 * time.Millisecond, time.Second, 1500 * time.Millisecond, 3 * time.Second} {
		exchange(after, long)
	}
	exchange(3*time.Second, time.Second) // a shorter time is set at once
	exchange(3*time.Second, long)
	l.until = time.Time{} // a body set another deadline
	exchange(3*time.Second, long)
	want := []time.Time{start.Add(64 * time.Second), start.Add(65 * time.Second), start.Add(67 * time.Second), start.Add(4 * time.Second), start.Add(67 * time.Second), start.Add(67 * time.Second)}
	if !slices.Equal(conn.set, want) {
		t.Errorf("the deadlines are %v, want %v", conn.set, want)
	}
}
