// Package webui serves the console to browsers. The console is the built application of web/, which
// the binary embeds. If it was not built, the package serves one short page about the running
// service.
package webui

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

//go:embed page
var files embed.FS

// dist is the built console. The prefix all: includes names that begin with _ or a dot.
//
//go:embed all:dist
var dist embed.FS

// pagePolicy is the Content-Security-Policy of the short page. The page can load only its style
// sheet and images of this origin.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// About is what the short page says about the running service.
type About struct {
	// Version is the version of the build. Database is the kind of store.
	Version, Database string
	// URL is the address of the service for callers, without a final slash.
	URL string
	// Demo means that the service runs as a demo.
	Demo bool
}

// Console serves the built console, or the short page. Create it with New.
type Console struct {
	page, style []byte
	built       *bundle // nil if the console was not built
}

// New reads the built console and renders the short page. Neither changes while the process runs.
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
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	built, err := readBundle(sub)
	return &Console{page: page.Bytes(), style: style, built: built}, err
}

// Built reports whether the binary contains the built console.
func (c *Console) Built() bool { return c.built != nil }

// noPage are the paths below which the console has no screens. Unknown addresses there get 404, and
// not the page.
var noPage = []string{"/api", "/assets", "/v1", "/access", "/bridge", "/health", "/metrics", "/devdocs", "/docs-assets", "/openapi.json", "/.well-known"}

// screen matches the addresses of screens: a word in lower case, then words or ids. Other spellings
// of a path, such as /API/v1, are not screens.
var screen = regexp.MustCompile(`^/([a-z][a-z-]*(/[A-Za-z0-9_-]+)*/?)?$`)

func isPage(path string) bool {
	if path != "/index.html" && !screen.MatchString(path) {
		return false
	}
	for _, prefix := range noPage {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return false
		}
	}
	return true
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-store") // files replace this; a missing address may exist later
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		answer(w, req, http.StatusMethodNotAllowed, textMedia, []byte("This address answers GET and HEAD only.\n"))
		return
	}
	path := req.URL.Path
	if c.built != nil {
		if f := c.built.files[path]; f != nil {
			f.serve(w, req)
			return
		}
		if isPage(path) {
			c.built.servePage(w, req)
			return
		}
	}
	switch {
	case c.built == nil && path == "/":
		answer(w, req, http.StatusOK, htmlMedia, c.page)
	case c.built == nil && path == "/console.css":
		answer(w, req, http.StatusOK, "text/css; charset=utf-8", c.style)
	default:
		answer(w, req, http.StatusNotFound, textMedia, []byte("There is nothing at this address.\n"))
	}
}

const (
	textMedia = "text/plain; charset=utf-8"
	htmlMedia = "text/html; charset=utf-8"
)

// answer writes a complete answer. It leaves out the body for a HEAD request.
func answer(w http.ResponseWriter, req *http.Request, status int, media string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer may have gone
	}
}
