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
)

// streaming is an application that echoes on /ws and on /events sends an event
// at once and then whenever it is told to.
func streaming(next chan string) http.HandlerFunc {
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

// TestStreams: WebSocket and events pass through a bouncer as they come, are
// decided on, and Ctrl-C ends the bouncer within ten seconds though they go on.
func TestStreams(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	next := make(chan string)
	app := apptest.NewBackend(t, streaming(next))
	apptest.Enforce(t, s.Admin, "sandbox")
	apptest.Activate(t, s.Admin, "not below closed", "sandbox", "package p\n\nallow if not startswith(input.resource.path, \"/closed\")\n", nil)
	b := s.Bouncer(t, s.Admin, body{"name": "streams", "environment": "sandbox"}, app.Addr)
	apptest.WaitForStatus(t, &apptest.Client{Base: b.URL}, "/closed/events", 403, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	if _, res, err := websocket.Dial(ctx, b.URL+"/closed/ws", nil); err == nil || res == nil || res.StatusCode != 403 {
		t.Errorf("a denied handshake: %v, %v", res, err)
	}
	socket, _, err := websocket.Dial(ctx, b.URL+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	echo := func(text string) {
		t.Helper()
		if err := socket.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := socket.Read(ctx); err != nil || string(data) != "echo "+text {
			t.Fatalf("%q came back as %q, %v", text, data, err)
		}
	}
	echo("one")
	req, _ := http.NewRequestWithContext(ctx, "GET", b.URL+"/events", nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	arrives := func(text string) {
		t.Helper()
		line, err := events.ReadString('\n')
		if _, also := events.ReadString('\n'); err != nil || also != nil || line != "data: "+text+"\n" {
			t.Fatalf("the event %q came as %q, %v", text, line, err)
		}
	}
	arrives("first")
	for _, text := range []string{"second", "third"} { // each is sent once the one before it arrived
		next <- text
		arrives(text)
	}
	echo("two")
	began := time.Now()
	b.Interrupt()
	if code := b.Wait(10 * time.Second); code != 0 {
		t.Errorf("Ctrl-C ended the bouncer with %d:\n%s", code, b.Log)
	}
	t.Logf("with a socket and a stream open, the bouncer ended in %s", time.Since(began).Round(time.Millisecond))
	if _, err := events.ReadString('\n'); err == nil {
		t.Error("the stream goes on without its bouncer")
	}
	if _, _, err := socket.Read(ctx); err == nil {
		t.Error("the socket goes on without its bouncer")
	}
}

// TestServerStopsWithParkedPolls: Ctrl-C ends the server within ten seconds
// while bouncers' polls are parked at it.
func TestServerStopsWithParkedPolls(t *testing.T) {
	t.Parallel()
	s := apptest.StartServer(t, dbtest.SQLite)
	fleet := newFleet(t, s, 20)
	fleet.fetch(t)
	polls := fleet.park(t, 60)
	began := time.Now()
	s.Interrupt()
	if code := s.Wait(10 * time.Second); code != 0 {
		t.Errorf("Ctrl-C ended the server with %d:\n%s", code, s.Log)
	}
	t.Logf("with %d polls parked, the server ended in %s", len(fleet.pollers), time.Since(began).Round(time.Millisecond))
	polls.Wait()
}
