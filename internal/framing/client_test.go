package framing

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// pair returns a connection to an application, the application's end of it, and the number of times
// that the trust was revoked.
func pair(t *testing.T) (*ClientConn, *net.TCPConn, *int) {
	t.Helper()
	c, app := tcpPair(t)
	lost := 0
	conn := NewClientConn(c, NewTrust(time.Now, func() { lost++ }))
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn, app, &lost
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// ask writes a request, has the application answer, and reads as many bytes as the answer has, or up to
// the end.
func ask(t *testing.T, c *ClientConn, app net.Conn, answer string) (string, error) {
	t.Helper()
	errtest.Must(t, errtest.Of(io.WriteString(c, get)))
	errtest.Must(t, errtest.Of(io.ReadFull(app, make([]byte, len(get)))))
	_, _ = io.WriteString(app, answer)
	var out strings.Builder
	buf := make([]byte, 4096)
	for out.Len() < len(answer) {
		n, err := c.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String(), err
		}
	}
	return out.String(), nil
}

const sound = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A connection is used again after any complete answer, with or without a body.
func TestIdleConnectionIsReused(t *testing.T) {
	c, app, lost := pair(t)
	for range 3 {
		for _, answer := range []string{sound, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n" + sound, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"} {
			got, err := ask(t, c, app, answer)
			if got != answer || err != nil || !c.Reusable() {
				t.Fatalf("%q is read as %q %v, reusable %v, want it whole and reusable", answer, got, err, c.Reusable())
			}
		}
	}
	if *lost != 0 {
		t.Errorf("trust was lost %d times, want never", *lost)
	}
}

// TestUnsolicitedBytes checks that no request is written on a connection that received bytes while
// idle, and that no reader gets those bytes.
func TestUnsolicitedBytes(t *testing.T) {
	for sent, loses := range map[string]bool{
		sound: true, "x": true, "\r\n": true, "HTTP/1.1 100 Continue\r\n\r\n": true,
		"HTTP/1.1 408 Request Timeout\r\n\r\n": false, "HTTP/1.0 408 x\r\n\r\n": false,
	} {
		for _, first := range []string{"write", "read"} {
			c, app, lost := pair(t)
			errtest.Must(t, errtest.Of(ask(t, c, app, sound)))
			_, _ = io.WriteString(app, sent)
			errtest.Must(t, c.socket.wait())
			if first == "read" {
				if n, err := c.Read(make([]byte, 100)); n != 0 || err == nil {
					t.Errorf("%q: %d bytes are read, %v, want none and an error", sent, n, err)
				}
			}
			if n, err := io.WriteString(c, get); n != 0 || err == nil {
				t.Errorf("%q: %d bytes of a request are written, %v, want none and an error", sent, n, err)
			}
			if c.Reusable() || (*lost > 0) != loses || *lost > 1 {
				t.Errorf("%q: reusable %v, trust lost %d times, want it lost: %v", sent, c.Reusable(), *lost, loses)
			}
		}
	}
}

// TestLastAnswers checks that an answer that no request may follow ends the connection in the read
// that returns its last byte, as net/http requires.
func TestLastAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"204": "HTTP/1.1 204 No Content\r\n\r\n", "304": "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
		"HTTP/1.0": "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "bare LF": "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"close": "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok", "408": "HTTP/1.1 408 Request Timeout\r\nContent-Length: 2\r\n\r\nok",
	} {
		c, app, _ := pair(t)
		if got, err := ask(t, c, app, answer+" "); got != answer || !errors.Is(err, io.EOF) || c.Reusable() {
			t.Errorf("%s: %q %v, reusable %v, want the answer and the end", name, got, err, c.Reusable())
		}
	}
	c, app, _ := pair(t)
	errtest.Must(t, errtest.Of(ask(t, c, app, sound)))
	if got, err := ask(t, c, app, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 2\r\n\r\nok"); got != "" || !errors.Is(err, io.EOF) {
		t.Errorf("a 408 on a used connection: %q %v, want the end alone", got, err)
	}
}

// An application that sent unsolicited bytes is trusted again after a while.
func TestDistrustEnds(t *testing.T) {
	now := time.Unix(0, 0)
	trust := NewTrust(func() time.Time { return now }, func() {})
	if trust.singleUse() {
		t.Error("singleUse = true at the start, want false")
	}
	trust.revoke()
	if !trust.singleUse() {
		t.Error("singleUse = false after revoke, want true")
	}
	if now = now.Add(distrustTime); trust.singleUse() {
		t.Error("singleUse = true after the time of distrust, want false")
	}
}

// FuzzAnswers checks that an answer ends at the same byte however it is split, and that nothing
// after it is passed on.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{sound, sound + sound, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\nX: y\r\n\r\nrest", "HTTP/1.1 100 Continue\r\n\r\n" + sound, "HTTP/1.0 200 OK\n\nx"} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, wire string, step uint8) {
		end, done, err := followAnswer(wire, len(wire))
		cutEnd, cutDone, cutErr := followAnswer(wire, int(step)+1)
		if done != cutDone || (err == nil) != (cutErr == nil) || err == nil && end != cutEnd {
			t.Fatalf("in one piece: %d %v %v; in pieces: %d %v %v", end, done, err, cutEnd, cutDone, cutErr)
		}
	})
}

// followAnswer scans an answer in steps, and returns its end.
func followAnswer(wire string, step int) (end int, done bool, err error) {
	var a answers
	a.begin()
	for i := 0; i < len(wire); i += step {
		n, done, err := a.scan([]byte(wire[i:min(i+step, len(wire))]))
		if done || err != nil {
			return i + n, done, err
		}
	}
	return len(wire), false, nil
}
