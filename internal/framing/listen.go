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
// the multipath sockets that package net would make.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	return config.Listen(ctx, "tcp", address)
}
