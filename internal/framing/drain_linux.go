package framing

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Drain makes a TCP listener ignore new handshakes. Connections whose handshake has begun can still
// be accepted, so that the listener can then be closed without resetting them: the kernel resets
// connections that are not accepted. A client that comes later retries, and is refused once the
// listener is closed. Drain returns false if the system cannot do it.
func Drain(l net.Listener) bool {
	raw, ok := l.(syscall.Conn)
	if !ok {
		return false
	}
	conn, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	// Drop segments with SYN and without ACK. The filter sees the TCP header, whose byte 13 holds the flags.
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: 0x02},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return err == nil && failed == nil
}
