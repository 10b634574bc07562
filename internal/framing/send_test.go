package framing

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// serve answers each request on app with the next answer, until there are no more.
func serve(app net.Conn, request string, answers ...string) {
	for _, answer := range answers {
		if _, err := io.ReadFull(app, make([]byte, len(request))); err != nil {
			return
		}
		_, _ = io.WriteString(app, answer)
	}
}

// TestSendRequest alternates requests and answers on one connection, also with a request that is
// longer than the socket accepts at once.
func TestSendRequest(t *testing.T) {
	long := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 8<<20) + "\r\n\r\n"
	for name, request := range map[string]string{"short": get, "long": long} {
		t.Run(name, func(t *testing.T) {
			c, app, lost := pair(t)
			go serve(app, request, sound, sound, sound)
			for range 3 {
				errtest.Must(t, c.SendRequest([]byte(request)))
				got := make([]byte, len(sound))
				if _, err := io.ReadFull(c, got); err != nil || string(got) != sound {
					t.Fatalf("the answer is %q, %v, want %q", got, err, sound)
				}
			}
			if *lost != 0 || !c.Reusable() {
				t.Errorf("trust was lost %d times, reusable %v, want never and true", *lost, c.Reusable())
			}
		})
	}
}

// TestSendRequestOnBusyConnection checks that nothing is sent on a connection that received bytes,
// or was closed by the peer, while it was idle.
func TestSendRequestOnBusyConnection(t *testing.T) {
	for name, upset := range map[string]func(net.Conn){
		"bytes":   func(app net.Conn) { _, _ = io.WriteString(app, sound) },
		"the end": func(app net.Conn) { _ = app.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			c, app, lost := pair(t)
			if got, err := ask(t, c, app, sound); got != sound || err != nil {
				t.Fatalf("the first answer is %q, %v", got, err)
			}
			upset(app)
			for deadline := time.Now().Add(10 * time.Second); c.socket.peek() == noData && time.Now().Before(deadline); {
				_ = c.socket.wait()
			}
			if err := c.SendRequest([]byte(get)); !errors.Is(err, errUnsolicited) {
				t.Fatalf("SendRequest: %v, want errUnsolicited", err)
			}
			if c.Reusable() || (*lost == 1) != (name == "bytes") {
				t.Errorf("reusable %v, trust was lost %d times, want it lost by bytes alone", c.Reusable(), *lost)
			}
			_ = c.Close()
			if n, _ := io.Copy(io.Discard, app); n != 0 {
				t.Errorf("the application gets %d bytes, want none", n)
			}
		})
	}
}

// TestSendRequestEnds checks that a deadline and a concurrent Close end the wait, and that a refused
// request is not sent.
func TestSendRequestEnds(t *testing.T) {
	c, _, _ := pair(t)
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if err := c.SendRequest([]byte(get)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a deadline: %v, want ErrDeadlineExceeded", err)
	}
	c, app, _ := pair(t)
	go func() {
		_, _ = io.ReadFull(app, make([]byte, len(get)))
		_ = c.Close()
	}()
	if err := c.SendRequest([]byte(get)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
	c, _, _ = pair(t)
	if err := c.SendRequest([]byte("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")); !errors.Is(err, ErrFraming) {
		t.Errorf("an ambiguous request: %v, want ErrFraming", err)
	}
}
