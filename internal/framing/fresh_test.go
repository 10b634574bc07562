package framing

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestDrainWaitsForFreshConnections checks that the request on a connection accepted before the stop
// is answered, and that a connection without a request does not delay the stop.
func TestDrainWaitsForFreshConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the kernel must help")
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", nil)
	errtest.Must(t, err)
	var fresh FreshConns
	srv := &http.Server{Handler: http.NotFoundHandler(), ConnState: func(c net.Conn, s http.ConnState) { fresh.Note(c, s == http.StateNew) }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	errtest.Must(t, err)
	defer c.Close()
	for deadline := time.Now().Add(30 * time.Second); !fresh.hasAny(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the server did not accept the connection")
		}
	}
	began := time.Now()
	fresh.Drain(t.Context(), l) // no request comes
	if took := time.Since(began); took < freshTimeout/2 {
		t.Errorf("Drain waited %s for a fresh connection, want at least %s", took, freshTimeout/2)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); fresh.Drain(context.Background(), l) }()
	errtest.Must(t, errtest.Of(c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))))
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 404 {
		t.Errorf("the request after the stop: %v, %v, want 404", res, err)
	}
	<-drained
	if fresh.hasAny() {
		t.Error("a connection with a request counts as fresh")
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-served
}
