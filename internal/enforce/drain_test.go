package enforce

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestNoConnectionIsReset checks that a bouncer that stops under load answers each request on a
// connection that it accepted. Only later connections are refused.
func TestNoConnectionIsReset(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	if runtime.GOOS != "linux" {
		t.Skip("the kernel must help")
	}
	app, p := newApplication(t, nil), newPlane(t)
	p.publish(enforcing(allowAll))
	for range 3 {
		b := start(t, p, app.URL, func(c *Config) { c.StopDelay = 100 * time.Millisecond }).at(t, 1)
		begun := time.Now()
		addr := strings.TrimPrefix(b.url, "http://")
		var answered, broken atomic.Int64
		var why atomic.Value
		var clients sync.WaitGroup
		over, end := context.WithTimeout(t.Context(), 20*time.Second)
		for range 64 {
			clients.Go(func() {
				dial := net.Dialer{Timeout: 300 * time.Millisecond}
				for over.Err() == nil {
					c, err := dial.DialContext(over, "tcp", addr)
					if errors.Is(err, syscall.ECONNREFUSED) {
						return // the bouncer has stopped
					}
					if err != nil {
						continue // the handshake did not begin
					}
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
					_, err = c.Write([]byte("POST /x HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
					var res *http.Response
					if err == nil {
						res, err = http.ReadResponse(bufio.NewReader(c), nil)
					}
					if err != nil {
						broken.Add(1)
						why.Store(err.Error() + " at " + time.Since(begun).String())
					} else {
						res.Body.Close()
						answered.Add(1)
					}
					c.Close()
				}
			})
		}
		eventually(t, "load", func() bool { return answered.Load() > 300 })
		stopped := time.Since(begun)
		b.stop()
		t.Logf("stopped from %s to %s", stopped, time.Since(begun))
		clients.Wait()
		end()
		app.take()
		if broken.Load() > 0 {
			t.Errorf("%d requests broke and %d were answered, want all answered: %v", broken.Load(), answered.Load(), why.Load())
		}
	}
}
