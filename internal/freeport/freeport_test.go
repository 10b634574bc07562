package freeport

import (
	"net"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestAddr: addresses can be listened on, and none is given twice.
func TestAddr(t *testing.T) {
	given := map[string]bool{}
	for range 200 {
		addr := Addr(t)
		if given[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		given[addr] = true
		l, err := net.Listen("tcp", addr)
		errtest.Must(t, err)
		defer l.Close()
	}
}
