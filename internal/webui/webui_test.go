package webui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestShortPage: a build without the console serves a page about the running service.
func TestShortPage(t *testing.T) {
	c, err := New(About{Version: "1.2.3", Database: "SQLite", URL: "http://localhost:8080"})
	errtest.Must(t, err)
	c.built = nil
	for _, tc := range []struct {
		method, path string
		status       int
		media, has   string
	}{
		{"GET", "/", 200, "text/html", "version 1.2.3, on SQLite"},
		{"HEAD", "/", 200, "text/html", ""},
		{"GET", "/console.css", 200, "text/css", "color-scheme"},
		{"GET", "/nothing", 404, "text/plain", "nothing"},
		{"POST", "/", 405, "text/plain", ""},
	} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		if w.Code != tc.status || !strings.HasPrefix(w.Header().Get("Content-Type"), tc.media) || !strings.Contains(w.Body.String(), tc.has) {
			t.Errorf("%s %s = %d, type %s, want %d, %s with %q\n%s", tc.method, tc.path, w.Code, w.Header().Get("Content-Type"), tc.status, tc.media, tc.has, w.Body)
		}
		if p := w.Header().Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("%s %s: policy = %q, want nothing unsafe", tc.method, tc.path, p)
		}
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, banned := range []string{"<script", "style=", "http://fonts", "https://"} {
		if strings.Contains(w.Body.String(), banned) {
			t.Errorf("the page contains %q, want not", banned)
		}
	}
}
