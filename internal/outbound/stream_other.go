//go:build !linux

package outbound

import "net"

// unacknowledged returns 0, because this system cannot tell. A reset by the server is still noticed.
func unacknowledged(net.Conn) (int, error) { return 0, nil }
