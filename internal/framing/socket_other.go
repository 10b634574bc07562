//go:build !unix

package framing

import (
	"errors"
	"net"
)

func withDirectIO(c net.Conn) net.Conn { return c }

// peekSocket returns peerClosed: this system cannot peek, so no connection is known to be idle.
func peekSocket(uintptr, []byte) (n int, s state) { return 0, peerClosed }

func send(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
