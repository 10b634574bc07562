// Package webui serves the console to browsers: the built application of web/, which
// the binary embeds. Where it was left out, one page says what runs and what to do.
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

// dist is the built console. The prefix all: takes names with _ and . too.
//
//go:embed all:dist
var dist embed.FS

// pagePolicy lets the short page load its style sheet and nothing else.
const pagePolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// About is what the page says of the running service.
type About struct {
	// Version is the build's, Database what kind of store it runs on.
	Version, Database string
	// URL is how callers reach the service, without a slash at its end.
	URL string
	// Demo is set where the service runs to be tried out.
	Demo bool
}

// Console serves the built console, or the short page. Make one with New.
type Console struct {
	page, style []byte
	built       *bundle // nil: the console was not built
}

// New reads the built console and renders the short page: neither changes while
// the process runs.
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

// Built reports whether the console is there, and not the short page alone.
func (c *Console) Built() bool { return c.built != nil }

// noPage are the paths below which no screen of the console lies: what is missing
// there is missing, and not answered with a page.
var noPage = []string{"/api", "/assets", "/v1", "/access", "/bridge", "/health", "/metrics", "/devdocs", "/docs-assets", "/openapi.json", "/.well-known"}

// screen is the form of a screen's address: words in lower case, then ids. Other
// spellings of a path, such as /API/v1, are no screens.
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
	h.Set("Cache-Control", "no-store") // files say otherwise: what is missing today may be there tomorrow
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

// answer writes a whole answer, without its body to a HEAD request.
func answer(w http.ResponseWriter, req *http.Request, status int, media string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer may have gone
	}
}
