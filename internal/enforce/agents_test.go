package enforce

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestStoppedAgentLosesItsSocket checks that the open sockets of an agent close when it is stopped, those
// of others do not, and that forward-auth refuses the agent, too.
func TestStoppedAgentLosesItsSocket(t *testing.T) {
	t.Parallel()
	is, app := newIssuer(t), newApplication(t, echo)
	set := enforcing("package open\n\nallow := true\n")
	set.config = map[string]any{"identity": is.config()}
	p, b := startPublished(t, app.URL, set, trustLoopback)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	bearer := func(user string, act any) http.Header {
		return http.Header{"Authorization": {"Bearer " + is.token(t, "rsa", map[string]any{"sub": user, "act": act})}}
	}
	open := func(of http.Header) *websocket.Conn {
		t.Helper()
		c, _, err := websocket.Dial(ctx, b.url+"/ws", &websocket.DialOptions{HTTPHeader: of})
		errtest.Must(t, err)
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	says := func(c *websocket.Conn) error {
		err := c.Write(ctx, websocket.MessageText, []byte("x"))
		if err == nil {
			_, _, err = c.Read(ctx)
		}
		return err
	}
	stopped, other := bearer("ann", map[string]any{"sub": "agent:7"}), bearer("ann", map[string]any{"sub": "agent:8"})
	one, two := open(stopped), open(other)
	for name, c := range map[string]*websocket.Conn{"agent 7": one, "agent 8": two} {
		if err := says(c); err != nil {
			t.Fatalf("%s: %v, want its socket to pass", name, err)
		}
	}
	set.revision, set.agents = 2, actor.NewAgents([]int64{1, 2, 3, 4, 5, 6}, 7, nil)
	p.publish(set)
	if _, _, err := one.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("agent 7: a read ends with %v, want a closed socket", err)
	}
	if err := says(two); err != nil {
		t.Errorf("agent 8: %v, want its socket to stay open", err)
	}
	for name, c := range map[string]struct {
		of   http.Header
		want int
	}{"agent 7": {stopped, 403}, "agent 8": {other, 200}} {
		got := fetch(t, "GET", b.url+"/_bouncer/auth", func(r *http.Request) {
			forwardHead("GET", "app.test", "/x")(r)
			r.Header.Set("Authorization", c.of.Get("Authorization"))
		})
		if got.status != c.want || c.want == 403 && !strings.Contains(got.body, "agent:7 is not active") {
			t.Errorf("forward-auth for %s: %s, want %d", name, got, c.want)
		}
	}
}
