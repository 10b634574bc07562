package framing

import (
	"context"
	"net"
	"time"
)

// DrainTime is how long handshakes that have begun may take after Drain, before the
// listener is closed.
const DrainTime = 50 * time.Millisecond

// Listen listens on a TCP address, so that Drain works: Linux filters nothing on
// the multipath sockets that package net would make. limit counts the connections, and may be that
// of several listeners; nil for no limit.
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
