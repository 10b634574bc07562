package freeport

import (
	"net"
	"sync"
	"testing"
)

// Accept listens on loopback, passes each connection to handle in a goroutine of its own, and
// closes it when handle returns. It returns the address, as host:port. When the test ends it
// stops listening, and waits for the goroutines.
func Accept(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
	return l.Addr().String()
}
