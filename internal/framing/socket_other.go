//go:build !unix

package framing

import (
	"errors"
	"net"
)

func withDirectIO(c net.Conn) net.Conn { return c }

// peekSocket returns peerClosed, because this system cannot peek. So each connection serves only
// one request.
func peekSocket(uintptr, []byte) (n int, s state) { return 0, peerClosed }

func send(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
