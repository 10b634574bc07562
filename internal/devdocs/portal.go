// Package devdocs renders the developer portal, /devdocs: a reference of all operations from the
// OpenAPI document, guides, errors, and the changes between versions of the contract. The pages
// have no data of tenants, so all readers get the same ones. A page is rendered when it is first
// requested.
package devdocs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/text/language"

	"github.com/gatehouse-dev/gatehouse/internal/negotiate"
)

// Root is the path of the portal.
const Root = "/devdocs"

//go:embed messages errors guides page static
var files embed.FS

// policy is the Content-Security-Policy of the pages. They can load their script, style sheet and
// icon, and call the API of this origin. Scripts cannot write HTML (trusted types).
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Portal serves the pages. Create it with New.
type Portal struct {
	languages []string
	url       string
	document  func(lang string) []byte
	matcher   language.Matcher
	editions  map[string]*edition
	assets    func() (*assets, error)
}

// New returns a portal in these languages. document returns the OpenAPI document in a language.
// Readers whose language is not there get the first one. url is the address of the service for
// callers, without a final slash.
func New(languages []string, url string, document func(lang string) []byte) *Portal {
	p := &Portal{languages: languages, url: url, document: document, editions: map[string]*edition{}, assets: sync.OnceValues(readAssets)}
	var tags []language.Tag
	for _, lang := range languages {
		p.editions[lang] = &edition{portal: p, lang: lang, pages: map[string]*page{}}
		tags = append(tags, language.Make(lang))
	}
	p.matcher = language.NewMatcher(tags)
	return p
}

// language returns the language of an answer: the one in the address or, if there is none, the one
// that the browser prefers.
func (p *Portal) language(req *http.Request) string {
	if lang := req.URL.Query().Get("lang"); slices.Contains(p.languages, lang) {
		return lang
	}
	_, at := language.MatchStrings(p.matcher, req.Header.Get("Accept-Language"))
	return p.languages[at]
}

// ServeHTTP implements http.Handler for /devdocs and all paths below it. It ignores a prefix before
// /devdocs.
func (p *Portal) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", policy)
	_, at, _ := strings.Cut(req.URL.Path, Root)
	at = strings.Trim(at, "/")
	if name, ok := strings.CutPrefix(at, "assets/"); ok {
		p.serveAsset(w, req, name)
		return
	}
	lang := p.language(req)
	page, status, err := p.editions[lang].page(at)
	if err != nil {
		http.Error(w, "The page cannot be shown.", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Language", lang)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Language, Accept-Encoding")
	page.serve(w, req, status)
}

func (p *Portal) serveAsset(w http.ResponseWriter, req *http.Request, name string) {
	all, err := p.assets()
	if err != nil {
		http.Error(w, "The file cannot be shown.", http.StatusInternalServerError)
		return
	}
	file := all.files[name]
	if file == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable") // the name changes with the content
	w.Header().Set("Vary", "Accept-Encoding")
	file.serve(w, req, http.StatusOK)
}

// page is a complete answer: its media type, the hash of its body for the ETag, and its body with
// gzip.
type page struct {
	media, tag string
	packed     []byte
}

// pack returns the answer with a body.
func pack(media string, body []byte) (*page, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return &page{media: media, tag: hex.EncodeToString(sum[:10]), packed: out.Bytes()}, nil
}

func (p *page) serve(w http.ResponseWriter, req *http.Request, status int) {
	h := w.Header()
	body, tag := p.packed, `"`+p.tag+`-gz"`
	gz := negotiate.TakesGzip(req.Header.Values("Accept-Encoding"))
	if !gz {
		tag = `"` + p.tag + `"`
	}
	h.Set("ETag", tag)
	if status == http.StatusOK && negotiate.Matches(req.Header.Values("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if gz {
		h.Set("Content-Encoding", "gzip")
	} else {
		r, err := gzip.NewReader(bytes.NewReader(p.packed))
		if err == nil {
			body, err = io.ReadAll(r)
		}
		if err != nil { // cannot happen: pack compressed it
			http.Error(w, "The page cannot be shown.", http.StatusInternalServerError)
			return
		}
	}
	h.Set("Content-Type", p.media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = w.Write(body) // the peer may have gone
	}
}

// assets are the script, the style sheet and the icon. names maps the name of a file to its name in
// addresses, which changes with the content.
type assets struct {
	files map[string]*page
	names map[string]string
}

func readAssets() (*assets, error) {
	out := &assets{files: map[string]*page{}, names: map[string]string{}}
	media := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	entries, err := files.ReadDir("static")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		body, err := files.ReadFile(path.Join("static", e.Name()))
		if err != nil {
			return nil, err
		}
		ext := path.Ext(e.Name())
		if media[ext] == "" {
			return nil, fmt.Errorf("devdocs: %s: files of this kind have no media type here", e.Name())
		}
		file, err := pack(media[ext], body)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(e.Name(), ext) + "-" + file.tag[:10] + ext
		out.files[name], out.names[e.Name()] = file, name
	}
	return out, nil
}
