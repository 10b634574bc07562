// Package freeport gives tests addresses on loopback: free ones, and servers of raw connections.
package freeport

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// The ports lie below 32768, where Linux begins to take ports for outgoing
// connections: a port of that range can be gone again before its server starts.
const (
	first = 10000
	last  = 32000
)

// next is the port to try next. Its random start keeps apart the processes of
// tests that run at the same time.
var next atomic.Int64

// Addr returns an address on loopback whose port is free, as host:port. A process
// gets each port once in 22,000 calls.
func Addr(t testing.TB) string {
	t.Helper()
	next.CompareAndSwap(0, rand.Int64N(last-first))
	for range last - first {
		addr := net.JoinHostPort("127.0.0.1", strconv.FormatInt(first+next.Add(1)%(last-first), 10))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return addr
	}
	t.Fatal("no free port on loopback")
	return ""
}
