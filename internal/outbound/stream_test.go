package outbound

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// TestStreamIsGuarded checks that a stream reaches no internal network, not even if a name changes to
// an internal address after it was saved.
func TestStreamIsGuarded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connected atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connected.Add(1)
			_ = conn.Close()
		}
	}()
	asked := 0
	c := New(Config{Resolve: func(context.Context, string) ([]netip.Addr, error) {
		if asked++; asked == 1 {
			return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	rebinding := StreamServer{Host: "siem.example.com", Port: port}
	if err := c.CheckStream(context.Background(), "/endpoint", rebinding); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"siem.example.com", "127.0.0.1", "::1", "::ffff:127.0.0.1", "2130706433", "localhost."} {
		if notified, err := c.SendStream(context.Background(), StreamServer{Host: host, Port: port}, []byte("x")); err == nil || notified {
			t.Errorf("%s was called", host)
		}
	}
	_ = l.Close()
	<-done
	if n := connected.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}
