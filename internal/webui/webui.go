// Package webui answers people's browsers at the host's root: for now one page
// that says what runs and where to go on. It needs no script and loads nothing
// from elsewhere.
package webui

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strconv"
)

//go:embed page
var files embed.FS

// policy lets a page of ours load its style sheet and nothing else.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// About is what the page says of the running service.
type About struct {
	// Version is the build's, Database what kind of store it runs on.
	Version, Database string
	// URL is how callers reach the service, without a slash at its end.
	URL string
	// Demo is set where the service runs to be tried out.
	Demo bool
}

// Console serves the page. Make one with New.
type Console struct {
	page, style []byte
}

// New renders the page once: what it says does not change while the process runs.
func New(about About) (*Console, error) {
	t, err := template.ParseFS(files, "page/index.html")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := t.Execute(&page, about); err != nil {
		return nil, err
	}
	style, err := files.ReadFile("page/console.css")
	if err != nil {
		return nil, err
	}
	return &Console{page: page.Bytes(), style: style}, nil
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	status, media, body := http.StatusOK, "text/html; charset=utf-8", c.page
	switch req.URL.Path {
	case "/":
	case "/console.css":
		media, body = "text/css; charset=utf-8", c.style
	default:
		status, media, body = http.StatusNotFound, "text/plain; charset=utf-8", []byte("There is nothing at this address.\n")
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		status, media, body = http.StatusMethodNotAllowed, "text/plain; charset=utf-8", []byte("This address answers GET and HEAD only.\n")
	}
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer may have gone
	}
}
