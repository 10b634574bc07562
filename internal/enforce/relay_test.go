package enforce

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// TestBodyDeadlineEnds checks that the next answer on a connection gets its full time, and not the
// rest of the previous body's time.
func TestBodyDeadlineEnds(t *testing.T) {
	fulltest.Only(t)
	t.Parallel()
	const idle = time.Second
	app := newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-time.After(2 * idle):
			case <-r.Context().Done():
			}
		}
		_ = http.NewResponseController(w).Flush() // a body of unknown length has deadlines of its own
		fmt.Fprint(w, "whole")
	})
	_, b := startPublished(t, app.URL, enforcing(allowAll), func(c *Config) { c.BodyIdle, c.UpstreamConns = idle, 1 })
	for _, path := range []string{"/fast", "/slow", "/fast"} {
		res, err := http.Get(b.url + path)
		errtest.Must(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || string(body) != "whole" {
			t.Errorf("GET %s = %s %q %v, want the whole body", path, res.Status, body, err)
		}
	}
}
