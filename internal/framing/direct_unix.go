//go:build unix && (!linux || race)

package framing

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// withDirectIO returns c. It uses the system calls of package net here, which the race detector
// knows.
func withDirectIO(c net.Conn) net.Conn { return c }

// peekSocket reads received bytes without consuming them.
func peekSocket(fd uintptr, into []byte) (n int, s state) {
	for {
		n, _, err := syscall.Recvfrom(int(fd), into, syscall.MSG_PEEK)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, noData
		case err != nil || n <= 0:
			return 0, peerClosed
		}
		return n, hasData
	}
}

// send writes as much as the socket accepts without blocking.
func send(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("write", err)
		}
		return n, nil
	}
}
