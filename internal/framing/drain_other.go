//go:build !linux

package framing

import "net"

// Drain makes a TCP listener deaf to new connections. False: the system cannot do it.
func Drain(net.Listener) bool { return false }
