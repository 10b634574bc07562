//go:build !linux

package framing

import "net"

// Drain makes a TCP listener ignore new handshakes. It returns false, because this system cannot do
// it.
func Drain(net.Listener) bool { return false }
