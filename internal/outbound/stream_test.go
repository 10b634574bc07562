package outbound

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/freeport"
)

// TestStreamIsGuarded checks that a stream reaches no internal network, not even if a name changes to
// an internal address after it was saved.
func TestStreamIsGuarded(t *testing.T) {
	var connected atomic.Int64
	t.Cleanup(func() { // after the server has ended
		if n := connected.Load(); n != 0 {
			t.Errorf("%d connections reached the internal server, want none", n)
		}
	})
	server := netip.MustParseAddrPort(freeport.Accept(t, func(net.Conn) { connected.Add(1) }))
	lookups := 0
	c := New(Config{Resolve: func(context.Context, string) ([]netip.Addr, error) {
		if lookups++; lookups == 1 {
			return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	port := server.Port()
	rebinding := StreamServer{Host: "siem.example.com", Port: port}
	if err := c.CheckStream(context.Background(), "/endpoint", rebinding); err != nil {
		t.Errorf("CheckStream of a public name: %v", err)
	}
	for _, host := range []string{"siem.example.com", "127.0.0.1", "::1", "::ffff:127.0.0.1", "2130706433", "localhost."} {
		if notified, err := c.SendStream(context.Background(), StreamServer{Host: host, Port: port}, []byte("x")); err == nil || notified {
			t.Errorf("SendStream to %s: no error", host)
		}
	}
}
