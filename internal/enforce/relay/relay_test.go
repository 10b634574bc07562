package relay

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/metrics"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/upstream"
)

// TestClientsConnectionCannotBeTakenOver: if the client's connection cannot become a socket, the
// answer breaks off, and the application is not blamed.
func TestClientsConnectionCannotBeTakenOver(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	var log bytes.Buffer
	l := &Relay{Count: &metrics.Counters{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now, NoteAppLost: func() { t.Error("the application counts as lost") }}
	finished := false
	ans := &upstream.Answer{
		Response: &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{"Upgrade": {"websocket"}}, Body: struct{ io.ReadWriteCloser }{ours}},
		Finish:   func(bool) { finished = true; ours.Close() },
		Extend:   func(time.Duration) error { return nil },
	}
	w := httptest.NewRecorder() // has no connection to take over
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("it ended with %v", v)
			}
		}()
		l.tunnel(w, httptest.NewRequest("GET", "/socket", nil), &request.Inbound{Upgrade: true}, nil, ans, nil)
	}()
	if !finished || w.Body.Len() > 0 || l.Count.UpstreamErrors.Load() != 0 || l.Count.Aborted.Load() != 1 {
		t.Errorf("finished %v, %q, %d errors of the application, %d answers that broke off", finished, w.Body, l.Count.UpstreamErrors.Load(), l.Count.Aborted.Load())
	}
	if text := log.String(); strings.Contains(text, "application") || !strings.Contains(text, "the client's connection") {
		t.Errorf("the log says %q", text)
	}
}
