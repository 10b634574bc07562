package upstream

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// BenchmarkDo compares the fast path with http.Transport.
func BenchmarkDo(b *testing.B) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	for name, fastPath := range map[string]bool{"fast path": true, "transport": false} {
		b.Run(name, func(b *testing.B) {
			u, err := New(app.URL, nil, time.Minute, 10, time.Now, func() {})
			errtest.Must(b, err)
			u.fastPath = fastPath
			r := httptest.NewRequest(http.MethodGet, "/x", http.NoBody)
			for b.Loop() {
				answer, err := u.Do(r, &Request{Method: http.MethodGet, Host: "app", Path: "/x"}, &header.Outgoing{}, nil)
				errtest.Must(b, err)
				_, err = io.Copy(io.Discard, answer.Response.Body)
				answer.Finish(err == nil)
			}
		})
	}
}
