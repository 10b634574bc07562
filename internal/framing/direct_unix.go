//go:build unix && (!linux || race)

package framing

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// directly is c, which uses the system calls of package net: the race detector has to see
// them.
func directly(c net.Conn) net.Conn { return c }

// peekSocket reads what the socket has received without taking it.
func peekSocket(fd uintptr, into []byte) (n int, s state) {
	for {
		n, _, err := syscall.Recvfrom(int(fd), into, syscall.MSG_PEEK)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return 0, silent
		case err != nil || n <= 0:
			return 0, ended
		}
		return n, speaking
	}
}

// send writes what the socket takes at once.
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
