package apptest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Application is a protected application: it counts what reaches it.
func Application(t *testing.T) (addr string, seen func() int) {
	t.Helper()
	count := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		count++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":1,"name":"Ada","ssn":"900-12-3456","salary":98000}`)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), func() int { return count }
}

// Backend is a protected application that remembers what reached it.
type Backend struct {
	Addr string

	Mu   sync.Mutex
	Seen []*http.Request
}

// NewBackend starts a protected application; without a handler it answers what was asked.
func NewBackend(t testing.TB, h http.HandlerFunc) *Backend {
	b := &Backend{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.Mu.Lock()
		b.Seen = append(b.Seen, r)
		b.Mu.Unlock()
		if h != nil {
			h(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI)
	}))
	t.Cleanup(s.Close)
	b.Addr = strings.TrimPrefix(s.URL, "http://")
	return b
}

// Take gives the requests since the last call.
func (b *Backend) Take() []*http.Request {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	out := b.Seen
	b.Seen = nil
	return out
}
