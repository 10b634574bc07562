//go:build unix

package framing

import (
	"errors"
	"syscall"
)

// look reads what the socket has received without taking it.
func look(fd uintptr, into []byte) (n int, s state) {
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
