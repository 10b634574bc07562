package framing

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// dialFrom connects to l from a loopback address.
func dialFrom(t *testing.T, l net.Listener, ip string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.DialContext(t.Context(), "tcp4", l.Addr().String())
	errtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wantEnded fails unless the peer closes c.
func wantEnded(t *testing.T, what string, c net.Conn) {
	t.Helper()
	errtest.Must(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: a read ends with %v, want the end of the connection", what, err)
	}
}

// wantServed fails unless what the server writes arrives.
func wantServed(t *testing.T, what string, server, client net.Conn) {
	t.Helper()
	_, err := server.Write([]byte("x"))
	if err == nil {
		_, err = client.Read(make([]byte, 1))
	}
	if err != nil {
		t.Errorf("%s is not served: %v", what, err)
	}
}

// safeLog is a log that can be read while it is written.
type safeLog struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (r *safeLog) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *safeLog) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// TestLimit checks that, at the limit, the address with most connections loses its oldest one to
// another address, gets no new one itself, and gets new ones after its own close. Direct connections
// behave alike.
func TestLimit(t *testing.T) {
	var logged safeLog
	l, err := Listen(t.Context(), "127.0.0.1:0", NewLimit(4, time.Now, slog.New(slog.NewTextHandler(&logged, nil))))
	errtest.Must(t, err)
	defer func() { _ = l.Close() }()
	accepted := make(chan net.Conn, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- NewServerConn(c, nil)
		}
	}()
	var clients, served []net.Conn
	for range 4 {
		clients = append(clients, dialFrom(t, l, "127.0.0.1"))
		served = append(served, <-accepted)
	}
	wantEnded(t, "a fifth connection of the address", dialFrom(t, l, "127.0.0.1"))
	other := dialFrom(t, l, "127.0.0.2")
	wantServed(t, "another address", <-accepted, other)
	wantEnded(t, "the oldest connection", clients[0])
	wantServed(t, "the next one", served[1], clients[1])
	for _, c := range served[1:] {
		errtest.Must(t, c.Close())
	}
	for range 3 {
		dialFrom(t, l, "127.0.0.1")
		<-accepted
	}
	wantEnded(t, "one more after others have closed", dialFrom(t, l, "127.0.0.1"))
	if got := logged.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "limit=4") {
		t.Errorf("the log is %q, want one warning with the limit", got)
	}
}
