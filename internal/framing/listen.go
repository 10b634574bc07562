package framing

import (
	"context"
	"net"
	"time"
)

// DrainTime is how long handshakes that have begun may take after Drain, before the listener is
// closed.
const DrainTime = 50 * time.Millisecond

// Listen listens on a TCP address. Unlike package net, it does not use multipath TCP, because Linux
// does not filter those sockets, so that Drain would not work. limit counts the connections, and
// may be shared by several listeners; nil means no limit.
func Listen(ctx context.Context, address string, limit *Limit) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.(*net.TCPListener); ok && limit != nil {
		return limited{tcp, limit}, nil
	}
	return l, nil
}
