package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	errtest.Must(t, errtest.Of(w.Write([]byte(text))))
	errtest.Must(t, w.Close())
	return out.Bytes()
}

func small(t *testing.T) *Console {
	t.Helper()
	b, err := readBundle(fstest.MapFS{
		"index.html":          {Data: []byte(`<script nonce="__CSP_NONCE__" src="/assets/a-1.js"></script><meta nonce="__CSP_NONCE__">`)},
		"manifest.json":       {Data: []byte(`{}`)},
		"assets/a-1.js.gz":    {Data: pack(t, "run()")},
		"assets/_b-1.css.gz":  {Data: pack(t, "a{}")},
		"assets/font-1.woff2": {Data: []byte("font")},
		"theme.js.gz":         {Data: pack(t, "theme()")},
	})
	errtest.Must(t, err)
	return &Console{built: b}
}

func get(c *Console, method, path string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, req)
	return w
}

// TestPaths: files are served unchanged, the address of each screen gets the page, and unknown
// addresses below the paths of other parts of the service get 404.
func TestPaths(t *testing.T) {
	c := small(t)
	for _, tc := range []struct {
		method, path string
		status       int
		media, cache string
	}{
		{"GET", "/", 200, htmlMedia, "no-store"},
		{"GET", "/index.html", 200, htmlMedia, "no-store"},
		{"GET", "/policies/7", 200, htmlMedia, "no-store"},
		{"GET", "/api-keys", 200, htmlMedia, "no-store"},
		{"GET", "/API/v1/policies", 404, textMedia, "no-store"},
		{"GET", "//api/v1/policies", 404, textMedia, "no-store"},
		{"GET", "/policies.json", 404, textMedia, "no-store"},
		{"GET", "/policies;x", 404, textMedia, "no-store"},
		{"GET", "/x/../api/v1/policies", 404, textMedia, "no-store"},
		{"GET", "/healthy", 200, htmlMedia, "no-store"},
		{"HEAD", "/login", 200, htmlMedia, "no-store"},
		{"HEAD", "/assets/a-1.js", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"HEAD", "/assets/a-0.js", 404, textMedia, "no-store"},
		{"GET", "/assets/../index.html", 404, textMedia, "no-store"},
		{"GET", "/assets/..\\index.html", 404, textMedia, "no-store"},
		{"GET", "/manifest.json", 404, textMedia, "no-store"},
		{"OPTIONS", "/", 405, textMedia, "no-store"},
		{"GET", "/assets/a-1.js", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"GET", "/assets/_b-1.css", 200, "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"GET", "/assets/font-1.woff2", 200, "font/woff2", "public, max-age=31536000, immutable"},
		{"GET", "/theme.js", 200, "text/javascript; charset=utf-8", "no-cache"},
		{"GET", "/assets/a-0.js", 404, textMedia, "no-store"},
		{"GET", "/assets/a-1.js.gz", 404, textMedia, "no-store"},
		{"GET", "/assets/", 404, textMedia, "no-store"},
		{"GET", "/api/v1/nothing", 404, textMedia, "no-store"},
		{"GET", "/v1/x", 404, textMedia, "no-store"},
		{"GET", "/access/v1", 404, textMedia, "no-store"},
		{"GET", "/bridge/x", 404, textMedia, "no-store"},
		{"GET", "/health/x", 404, textMedia, "no-store"},
		{"GET", "/metrics/x", 404, textMedia, "no-store"},
		{"GET", "/devdocs", 404, textMedia, "no-store"},
		{"GET", "/.well-known/x", 404, textMedia, "no-store"},
		{"POST", "/", 405, textMedia, "no-store"},
		{"DELETE", "/assets/a-1.js", 405, textMedia, "no-store"},
	} {
		w := get(c, tc.method, tc.path)
		h := w.Header()
		if w.Code != tc.status || h.Get("Content-Type") != tc.media || h.Get("Cache-Control") != tc.cache {
			t.Errorf("%s %s = %d, type %q, cache %q, want %d, %q, %q", tc.method, tc.path, w.Code, h.Get("Content-Type"), h.Get("Cache-Control"), tc.status, tc.media, tc.cache)
		}
		if tc.method == "HEAD" {
			if same := get(c, "GET", tc.path); w.Body.Len() > 0 || h.Get("Content-Length") != strconv.Itoa(same.Body.Len()) {
				t.Errorf("%s %s = %d bytes, length %s, want none and the length %d of GET", tc.method, tc.path, w.Body.Len(), h.Get("Content-Length"), same.Body.Len())
			}
		}
		for _, name := range []string{"X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy", "Content-Security-Policy"} {
			if h.Get(name) == "" {
				t.Errorf("%s %s has no header %s", tc.method, tc.path, name)
			}
		}
	}
}

// TestNonce: each page has its own nonce, in its tags and in its policy.
func TestNonce(t *testing.T) {
	c, seen := small(t), map[string]bool{}
	for range 3 {
		w := get(c, "GET", "/")
		found := regexp.MustCompile(`nonce="([^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1)
		if len(found) != 2 || found[0][1] != found[1][1] || seen[found[0][1]] || len(found[0][1]) < 26 {
			t.Fatalf("nonces = %v, want a new one in both places", found)
		}
		seen[found[0][1]] = true
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self' 'nonce-" + found[0][1] + "'", "require-trusted-types-for 'script'", "trusted-types default", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("policy = %s, want %q in it", policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("policy = %s, want nothing unsafe", policy)
		}
	}
}

// TestEncodings: clients that accept gzip get it, all others get the plain text. Each encoding has
// its own ETag, which If-None-Match recognises.
func TestEncodings(t *testing.T) {
	c := small(t)
	for accept, want := range map[string]bool{
		"gzip": true, "": false, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0, *": false, "*": true, "*;q=0": false,
		strings.Repeat(",", 60_000) + "gzip": true, strings.Repeat("br;q=1,", 10_000): false, "gzip;q=NaN": false, "gzip;q=-1": false,
		"identity": false, "GZIP": true, "gzip;q=nonsense": false, "deflate,br": false, "xgzip": false,
	} {
		w := get(c, "GET", "/assets/a-1.js", "Accept-Encoding", accept)
		body := w.Body.Bytes()
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: gzip %v", accept, got)
		} else if got {
			var err error
			if body, err = unpack(body); err != nil {
				t.Fatal(err)
			}
		}
		if string(body) != "run()" || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: body %q, Vary %q, want run() and Accept-Encoding", accept, body, w.Header().Get("Vary"))
		}
		tag := w.Header().Get("ETag")
		for held, status := range map[string]int{strings.Repeat(`"x", `, 10_000) + tag: 304, strings.Repeat(`"x", `, 10_000): 200, tag + "x": 200, tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, "": 200} {
			again := get(c, "GET", "/assets/a-1.js", "Accept-Encoding", accept, "If-None-Match", held)
			if again.Code != status || status == 304 && again.Body.Len() > 0 {
				t.Errorf("Accept-Encoding %q, If-None-Match %q = %d, want %d", accept, held, again.Code, status)
			}
		}
	}
	one, two := get(c, "GET", "/assets/a-1.js"), get(c, "GET", "/assets/a-1.js", "Accept-Encoding", "gzip")
	if one.Header().Get("ETag") == two.Header().Get("ETag") {
		t.Error("both encodings have the same ETag")
	}
}

// TestBrokenBuilds: a build that cannot be served is an error at the start.
func TestBrokenBuilds(t *testing.T) {
	for what, dir := range map[string]fstest.MapFS{
		"no nonce":      {"index.html": {Data: []byte("<html>")}},
		"no gzip":       {"index.html": {Data: []byte(nonceMark)}, "a.js.gz": {Data: []byte("run()")}},
		"unknown media": {"index.html": {Data: []byte(nonceMark)}, "a.exe": {Data: []byte("x")}},
	} {
		if _, err := readBundle(dir); err == nil {
			t.Errorf("readBundle of %s succeeds, want an error", what)
		}
	}
	if b, err := readBundle(fstest.MapFS{"assets/x": {}}); b != nil || err != nil {
		t.Errorf("readBundle without a build = %v, %v, want nil", b, err)
	}
}

// manifest is the manifest of the build.
type manifest struct {
	Source string
	Files  map[string]string
}

func readManifest(t *testing.T) manifest {
	t.Helper()
	var m manifest
	text, err := dist.ReadFile("dist/manifest.json")
	if err != nil {
		t.Skip("the console was not built")
	}
	errtest.Must(t, json.Unmarshal(text, &m))
	return m
}

// TestBuildIsWhole: the built files are those of the manifest, before compression.
func TestBuildIsWhole(t *testing.T) {
	m := readManifest(t)
	got := map[string]string{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == "dist/manifest.json" {
			return err
		}
		body, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "dist/")
		if base, ok := strings.CutSuffix(name, ".gz"); ok {
			name = base
			if body, err = unpack(body); err != nil {
				return err
			}
		}
		sum := sha256.Sum256(body)
		got[name] = hex.EncodeToString(sum[:])
		return nil
	})
	errtest.Must(t, err)
	for name, want := range m.Files {
		if got[name] != want {
			t.Errorf("%s is not what was built", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s was not built", name)
	}
}

// TestFirstLoad limits the compressed size of the scripts that the first load of a screen requests
// to about the present size. Other code belongs in a chunk that is loaded later; web/README.md says
// how.
func TestFirstLoad(t *testing.T) {
	readManifest(t)
	scripts, sizes := map[string]string{}, map[string]int{}
	entries, err := dist.ReadDir("dist/assets")
	errtest.Must(t, err)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".js.gz")
		if !ok {
			continue
		}
		body, err := dist.ReadFile("dist/assets/" + e.Name())
		errtest.Must(t, err)
		sizes[name] = len(body)
		text, err := unpack(body)
		errtest.Must(t, err)
		scripts[name] = string(text)
	}
	page, err := dist.ReadFile("dist/index.html")
	errtest.Must(t, err)
	first := regexp.MustCompile(`assets/([\w.-]+)\.js"`).FindAllStringSubmatch(string(page), -1)
	if len(first) == 0 {
		t.Fatal("the page requests no script")
	}
	imported := regexp.MustCompile(`(?:from|import)\s*"\./([\w.-]+)\.js"`)
	for _, x := range []struct {
		screen  string
		chunks  []string
		largest int
	}{
		{"the dashboard", []string{"Dashboard", "Charts", "en"}, 150_000},
		{"the dashboard of a new tenant", []string{"Dashboard", "Charts", "FirstSteps", "en"}, 180_000},
		{"the workbench", []string{"Workbench", "en"}, 270_000},
	} {
		asked := map[string]bool{}
		var ask func(name string)
		ask = func(name string) {
			if asked[name] {
				return
			}
			asked[name] = true
			if _, known := scripts[name]; !known {
				t.Fatalf("%s: there is no script %s", x.screen, name)
			}
			for _, m := range imported.FindAllStringSubmatch(scripts[name], -1) {
				ask(m[1])
			}
		}
		for _, m := range first {
			ask(m[1])
		}
		for _, chunk := range x.chunks {
			found := 0
			for name := range scripts {
				if regexp.MustCompile("^" + chunk + `-[\w-]{8}$`).MatchString(name) {
					found++
					ask(name)
				}
			}
			if found != 1 {
				t.Fatalf("%s: %d scripts are named %s", x.screen, found, chunk)
			}
		}
		sum := 0
		for name := range asked {
			sum += sizes[name]
		}
		t.Logf("%s requests %d bytes of script in %d files", x.screen, sum, len(asked))
		if sum > x.largest {
			t.Errorf("%s requests %d bytes of script, over %d", x.screen, sum, x.largest)
		}
	}
}

// TestBuildIsFresh: the console in the repository was built from the current sources.
func TestBuildIsFresh(t *testing.T) {
	m := readManifest(t)
	const root = "../../web"
	hashes := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains([]string{"node_modules", "dist", "coverage"}, d.Name()) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		sum := sha256.Sum256(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")))
		hashes[filepath.ToSlash(name)] = hex.EncodeToString(sum[:])
		return err
	})
	errtest.Must(t, err)
	all := sha256.New()
	names := make([]string, 0, len(hashes))
	for name := range hashes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		_, _ = all.Write([]byte(name + "\n" + hashes[name] + "\n"))
	}
	if got := hex.EncodeToString(all.Sum(nil)); got != m.Source {
		t.Errorf("the console was built from other sources (%s) than there are (%s): run make web", m.Source, got)
	}
}
