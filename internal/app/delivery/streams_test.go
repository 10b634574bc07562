package delivery_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// streamHandler returns an application that echoes on /ws. On /events it sends an event at once and
// one for each text in next.
func streamHandler(next chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/ws") {
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer c.CloseNow()
			for {
				kind, data, err := c.Read(r.Context())
				if err != nil || c.Write(r.Context(), kind, append([]byte("echo "), data...)) != nil {
					return
				}
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for text := "first"; ; {
			fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
			select {
			case text = <-next:
			case <-r.Context().Done():
				return
			}
		}
	}
}

// TestStreams checks that a bouncer decides on WebSockets and event streams and forwards them without
// delay, and that Ctrl-C ends it within ten seconds while they are open.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	next := make(chan string)
	app := apptest.NewBackend(t, streamHandler(next))
	apptest.Enforce(t, s.Admin, "sandbox")
	apptest.Activate(t, s.Admin, "not below closed", "sandbox", "package p\n\nallow if not startswith(input.resource.path, \"/closed\")\n", nil)
	b := s.Bouncer(t, s.Admin, body{"name": "streams", "environment": "sandbox"}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/closed/events", 403, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if _, res, err := websocket.Dial(ctx, b.URL+"/closed/ws", nil); err == nil || res == nil || res.StatusCode != 403 {
		t.Errorf("a denied handshake = %v, %v, want 403", res, err)
	}
	socket, _, err := websocket.Dial(ctx, b.URL+"/ws", nil)
	errtest.Must(t, err)
	defer socket.CloseNow()
	echo := func(text string) {
		t.Helper()
		errtest.Must(t, socket.Write(ctx, websocket.MessageText, []byte(text)))
		if _, data, err := socket.Read(ctx); err != nil || string(data) != "echo "+text {
			t.Fatalf("the echo of %q = %q, %v", text, data, err)
		}
	}
	echo("one")
	req, _ := http.NewRequestWithContext(ctx, "GET", b.URL+"/events", nil)
	res, err := http.DefaultClient.Do(req)
	errtest.Must(t, err)
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	wantEvent := func(text string) {
		t.Helper()
		line, err := events.ReadString('\n')
		if _, also := events.ReadString('\n'); err != nil || also != nil || line != "data: "+text+"\n" {
			t.Fatalf("the event is %q, %v, want %q", line, err, text)
		}
	}
	wantEvent("first")
	for _, text := range []string{"second", "third"} { // each is sent after the one before it arrived
		next <- text
		wantEvent(text)
	}
	echo("two")
	b.Interrupt()
	if code := b.Wait(10 * time.Second); code != 0 {
		t.Errorf("Ctrl-C ended the bouncer with %d, want 0:\n%s", code, b.Log)
	}
	if _, err := events.ReadString('\n'); err == nil {
		t.Error("the stream has another event after the bouncer ended")
	}
	if _, _, err := socket.Read(ctx); err == nil {
		t.Error("the socket has another message after the bouncer ended")
	}
}

// TestServerStopsWithParkedPolls checks that Ctrl-C ends the server within ten seconds while polls of
// bouncers wait.
func TestServerStopsWithParkedPolls(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	fleet := newFleet(t, s, 20)
	fleet.fetch(t)
	polls := fleet.park(t, 60)
	s.Interrupt()
	if code := s.Wait(10 * time.Second); code != 0 {
		t.Errorf("Ctrl-C ended the server with %d, want 0:\n%s", code, s.Log)
	}
	polls.Wait()
}
