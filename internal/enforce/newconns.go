package enforce

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
)

// freshTimeout is how long a bouncer that stops waits for the first requests of
// connections that it accepted. Some clients connect and ask nothing.
const freshTimeout = time.Second

// newConns are a server's connections of which no request was read. net/http closes
// them without an answer if it reads their request after Shutdown began.
type newConns struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// note is an http.Server's ConnState.
func (n *newConns) note(c net.Conn, state http.ConnState) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state != http.StateNew {
		delete(n.open, c)
		return
	}
	if n.open == nil {
		n.open = map[net.Conn]struct{}{}
	}
	n.open[c] = struct{}{}
}

// wait returns once there are none, or after most.
func (n *newConns) wait(most time.Duration) {
	const step = 10 * time.Millisecond
	for waited := time.Duration(0); waited < most && n.any(); waited += step {
		ids.Pause(context.Background(), step)
	}
}

func (n *newConns) any() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.open) > 0
}
