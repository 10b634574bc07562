package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/negotiate"
)

// nonceMark is the placeholder for the nonce of the answer in the built page.
const nonceMark = "__CSP_NONCE__"

// media has the media types of the built files, by extension. It replaces the host's table, which
// differs from host to host.
var media = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": htmlMedia,
	".json": "application/json", ".map": "application/json", ".txt": textMedia, ".webmanifest": "application/manifest+json",
	".woff2": "font/woff2", ".png": "image/png", ".ico": "image/x-icon", ".wasm": "application/wasm",
}

// bundle is the built console, in memory.
type bundle struct {
	index [][]byte // parts of index.html between the nonces
	files map[string]*file
}

// file is one file of the console, other than index.html.
type file struct {
	media string
	// packed is the body with gzip, or nil. plain is the body without it, or nil if there is packed.
	packed, plain []byte
	size          int    // size of the uncompressed body in bytes
	tag           string // for the ETag, without the suffix for gzip
	cache         string
}

// readBundle reads a built console. It returns nil if there is none.
func readBundle(dir fs.FS) (*bundle, error) {
	index, err := fs.ReadFile(dir, "index.html")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := &bundle{index: bytes.Split(index, []byte(nonceMark)), files: map[string]*file{}}
	if len(b.index) < 2 {
		return nil, fmt.Errorf("webui: index.html has no place for a nonce")
	}
	err = fs.WalkDir(dir, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "index.html" || name == "manifest.json" {
			return err
		}
		body, err := fs.ReadFile(dir, name)
		if err != nil {
			return err
		}
		return b.add(name, body)
	})
	return b, err
}

func (b *bundle) add(name string, body []byte) error {
	sum := sha256.Sum256(body)
	f := &file{plain: body, size: len(body), tag: base64.RawURLEncoding.EncodeToString(sum[:12]), cache: "no-cache"}
	if base, ok := strings.CutSuffix(name, ".gz"); ok {
		name, f.packed, f.plain = base, body, nil
		plain, err := unpack(body)
		if err != nil {
			return fmt.Errorf("webui: %s: %w", name, err)
		}
		f.size = len(plain)
	}
	if f.media = media[path.Ext(name)]; f.media == "" {
		return fmt.Errorf("webui: %s: files of this kind have no media type here", name)
	}
	if strings.HasPrefix(name, "assets/") { // the name changes with the content
		f.cache = "public, max-age=31536000, immutable"
	}
	b.files["/"+name] = f
	return nil
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// serve answers with a file. It ignores Range, because ranges would refer to the compressed body.
func (f *file) serve(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", f.cache)
	body, tag := f.plain, `"`+f.tag+`"`
	if f.packed != nil {
		h.Set("Vary", "Accept-Encoding")
		if negotiate.TakesGzip(req.Header.Values("Accept-Encoding")) {
			body, tag = f.packed, `"`+f.tag+`-gz"`
			h.Set("Content-Encoding", "gzip")
		}
	}
	h.Set("ETag", tag)
	if negotiate.Matches(req.Header.Values("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if body != nil {
		answer(w, req, http.StatusOK, f.media, body)
		return
	}
	h.Set("Content-Type", f.media)
	h.Set("Content-Length", strconv.Itoa(f.size))
	w.WriteHeader(http.StatusOK)
	if req.Method == http.MethodHead {
		return
	}
	if r, err := gzip.NewReader(bytes.NewReader(f.packed)); err == nil { // cannot fail: add unpacked it
		_, _ = io.Copy(w, r) // the peer may have gone
	}
}

// servePage answers with index.html, which is the page of all screens. Each answer has its own
// nonce, so it must not be stored.
func (b *bundle) servePage(w http.ResponseWriter, req *http.Request) {
	nonce := rand.Text()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types default")
	answer(w, req, http.StatusOK, htmlMedia, bytes.Join(b.index, []byte(nonce)))
}
