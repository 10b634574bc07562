package outbound

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged is how many bytes that were written to a connection its peer has not yet
// acknowledged.
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
