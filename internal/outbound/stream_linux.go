package outbound

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes were written to a connection and not yet acknowledged by its
// peer.
func unacknowledged(conn net.Conn) (n int, err error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if err == nil {
		err = failed
	}
	return n, err
}
