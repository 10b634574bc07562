package devdocs_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/api"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// whole is the API with the portal, without services behind it.
var whole = sync.OnceValues(func() (*api.API, error) {
	return api.New(api.Config{PublicURL: "https://gatehouse.example.com", Kit: rest.Config{
		Version: "test", Now: time.Now, Log: slog.New(slog.DiscardHandler), Panics: &fault.Panics{Add: func(string) {}},
		NewID: func() string { return "made" },
		Authenticate: func(context.Context, rest.Credential) (scope.Scope, rest.Principal, error) {
			return scope.Scope{}, rest.Principal{}, fault.New(fault.Unauthenticated, "invalid_credentials", "no")
		},
	}})
})

func served(t *testing.T) *api.API {
	t.Helper()
	a, err := whole()
	errtest.Must(t, err)
	return a
}

// get requests a path. headers are pairs of name and value.
func get(t *testing.T, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	served(t).ServeHTTP(w, req)
	return w
}

// page returns the text of a page that must exist.
func page(t *testing.T, path string) string {
	t.Helper()
	w := get(t, path)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s = %d, want 200: %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// operation is the part of an operation that the tests need.
type operation struct {
	ID, Method, Path, Area, Summary string
}

// operations returns the operations of the document in a language.
func operations(t *testing.T, lang string) []operation {
	t.Helper()
	body := served(t).Edition("", lang).Body
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID, Summary string
			Tags                 []string
		}
	}
	errtest.Must(t, json.Unmarshal(body, &doc))
	var out []operation
	for path, item := range doc.Paths {
		for method, op := range item {
			out = append(out, operation{ID: op.OperationID, Method: strings.ToUpper(method), Path: path, Area: strings.ReplaceAll(strings.ToLower(op.Tags[0]), " ", "-"), Summary: op.Summary})
		}
	}
	if len(out) < 100 {
		t.Fatalf("the document has %d operations, want at least 100", len(out))
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// languages returns the languages whose pages this run checks. In the inner loop it is only
// English.
func languages() []string {
	if fulltest.Inner() {
		return api.Languages[:1]
	}
	return api.Languages
}

// TestEveryOperation: the pages show each operation of the document, in each language.
func TestEveryOperation(t *testing.T) {
	for _, lang := range languages() {
		index := unquoted(page(t, "/devdocs?lang="+lang))
		if again := page(t, "/devdocs/reference?lang="+lang); !strings.Contains(again, `<html lang="`+lang+`">`) {
			t.Errorf("GET /devdocs/reference in %s is in another language", lang)
		}
		details := map[string]string{}
		for _, op := range operations(t, lang) {
			at := fmt.Sprintf("/devdocs/reference/%s?lang=%s", op.Area, lang)
			row := fmt.Sprintf(`<code>%s</code></td><td><a href="%s#%s">%s</a>`, op.Path, at, op.ID, op.Summary)
			if !strings.Contains(index, row) {
				t.Errorf("the overview in %s lacks %s: %s", lang, op.ID, row)
			}
			if details[at] == "" {
				details[at] = page(t, at)
			}
			_, section, _ := strings.Cut(details[at], `<section class="operation" id="`+op.ID+`"`)
			section, _, _ = strings.Cut(section, "<section class=\"operation\"")
			for _, want := range []string{">" + op.Method + "</span>", "<code>" + html.EscapeString(op.Path) + "</code>", `data-sample="curl"`} {
				if !strings.Contains(section, want) {
					t.Errorf("%s: %s lacks %s", lang, op.ID, want)
				}
			}
		}
	}
}

// unquoted returns the text of a page without HTML escapes.
func unquoted(s string) string { return html.UnescapeString(s) }

var (
	hrefs   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anchors = regexp.MustCompile(`\bid="([^"]*)"`)
)

// TestLinks follows all links from the first page, in all languages. Each leads to a page or place
// that exists, and the pages of all languages are linked.
func TestLinks(t *testing.T) {
	fulltest.Only(t)
	ids := map[string]map[string]bool{} // by page
	fragments := map[string]string{}    // page#fragment → page with the link
	queue := []string{"/devdocs?lang=en"}
	seen := map[string]bool{queue[0]: true}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		w := get(t, at)
		if w.Code != http.StatusOK {
			t.Errorf("GET %s = %d, want 200", at, w.Code)
			continue
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
			continue
		}
		ids[at] = map[string]bool{"": true}
		for _, m := range anchors.FindAllStringSubmatch(w.Body.String(), -1) {
			if ids[at][m[1]] {
				t.Errorf("%s: two elements have the id %q", at, m[1])
			}
			ids[at][m[1]] = true
		}
		for _, m := range hrefs.FindAllStringSubmatch(w.Body.String(), -1) {
			to := html.UnescapeString(m[1])
			if to == "/" || strings.HasPrefix(to, "https://") {
				continue // the console, or a page of another site
			}
			target, fragment, _ := strings.Cut(to, "#")
			if target == "" {
				target = at
			}
			fragments[target+"#"+fragment] = at
			if !seen[target] {
				seen[target] = true
				if _, lang, ok := strings.Cut(target, "lang="); ok && !slices.Contains(languages(), lang) {
					continue
				}
				queue = append(queue, target)
			}
		}
	}
	for to, from := range fragments {
		target, fragment, _ := strings.Cut(to, "#")
		if ids[target] != nil && !ids[target][fragment] {
			t.Errorf("a link of %s leads to %s, which has no such id", from, to)
		}
	}
	for _, lang := range api.Languages {
		if !seen["/devdocs?lang="+lang] || !seen["/devdocs/changes?lang="+lang] {
			t.Errorf("no link leads to the pages in %s", lang)
		}
	}
	t.Logf("%d pages and files", len(seen))
}

// TestLanguage: the address decides the language, then the browser, then it is English.
func TestLanguage(t *testing.T) {
	for _, tc := range []struct{ query, accept, want string }{
		{"", "", "en"},
		{"?lang=es", "fr", "es"},
		{"?lang=fr", "", "fr"},
		{"?lang=de", "fr;q=0.8, es;q=0.9", "es"},
		{"", "es-MX,es;q=0.9,en;q=0.8", "es"},
		{"", "fr-CA", "fr"},
		{"", "ja, en;q=0.5", "en"},
		{"", "ja", "en"},
		{"", "nonsense;;;q=x", "en"},
		{"?lang=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "", "en"},
		{"?lang=ES", "", "en"},
		{"?utm_source=x", "fr", "fr"},
	} {
		for _, path := range []string{"/devdocs", "/devdocs/", "/api/v1/devdocs", "/devdocs/errors", "/devdocs/nowhere"} {
			w := get(t, path+tc.query, "Accept-Language", tc.accept)
			if got := w.Header().Get("Content-Language"); got != tc.want || !strings.Contains(w.Body.String(), `<html lang="`+tc.want+`">`) {
				t.Errorf("%s%s, %q: %d in %q, want %q", path, tc.query, tc.accept, w.Code, got, tc.want)
			}
			if strings.Contains(w.Body.String(), "alert(1)") {
				t.Errorf("GET %s%s echoes the query", path, tc.query)
			}
		}
	}
}

// TestHeaders: pages have the right headers for browsers and caches.
func TestHeaders(t *testing.T) {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	for path, status := range map[string]int{
		"/devdocs": 200, "/devdocs?lang=fr": 200, "/devdocs/reference/policies?lang=es": 200, "/devdocs/guides/webhooks": 200,
		"/devdocs/nowhere": 404, "/devdocs/%3Cscript%3E": 404, "/devdocs/assets/nothing.js": 404,
	} {
		w := get(t, path)
		h := w.Header()
		if w.Code != status {
			t.Errorf("%s: %d, want %d", path, w.Code, status)
		}
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("GET %s: header = %v, want the policy, nosniff and same-origin", path, h)
		}
		if strings.Contains(w.Body.String(), "<script>") || regexp.MustCompile(`(?i)\s(style|on[a-z]+)="`).MatchString(w.Body.String()) {
			t.Errorf("GET %s has an inline script or style, which the policy blocks", path)
		}
		if status != 200 {
			continue
		}
		for _, encoding := range []string{"", "gzip", "br, gzip;q=0.5", "gzip;q=0", "identity"} {
			first := get(t, path, "Accept-Encoding", encoding)
			packed := first.Header().Get("Content-Encoding") == "gzip"
			if want := strings.Contains(encoding, "gzip") && !strings.Contains(encoding, "q=0") || strings.Contains(encoding, "0.5"); packed != want {
				t.Errorf("GET %s with the encoding %q: compressed = %v, want %v", path, encoding, packed, want)
			}
			if !strings.Contains(first.Header().Get("Vary"), "Accept-Encoding") || !strings.Contains(first.Header().Get("Vary"), "Accept-Language") {
				t.Errorf("GET %s: Vary = %q, want Accept-Encoding and Accept-Language", path, first.Header().Get("Vary"))
			}
			if got := plain(t, first); got != w.Body.String() {
				t.Errorf("GET %s with the encoding %q differs from the plain page", path, encoding)
			}
			again := get(t, path, "Accept-Encoding", encoding, "If-None-Match", first.Header().Get("ETag"))
			if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
				t.Errorf("GET %s with the encoding %q and its ETag = %d, want 304", path, encoding, again.Code)
			}
		}
	}
}

func plain(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		r, err := gzip.NewReader(w.Body)
		errtest.Must(t, err)
		body = r
	}
	out, err := io.ReadAll(body)
	errtest.Must(t, err)
	return string(out)
}

// TestSize: the first load of each kind of page transfers few bytes.
func TestSize(t *testing.T) {
	for path, most := range map[string]int{
		"/devdocs?lang=en": 40_000, "/devdocs/guides/first-control?lang=es": 30_000,
		"/devdocs/reference/compliance?lang=fr": 70_000, "/devdocs/reference/policies?lang=es": 70_000,
	} {
		all := 0
		first := get(t, path, "Accept-Encoding", "gzip")
		all += first.Body.Len()
		for _, m := range hrefs.FindAllStringSubmatch(plain(t, first), -1) {
			if strings.Contains(m[1], "/assets/") {
				all += get(t, m[1], "Accept-Encoding", "gzip").Body.Len()
			}
		}
		if all > most {
			t.Errorf("GET %s is %d bytes with what it loads, want at most %d", path, all, most)
		}
		t.Logf("%s: %d bytes", path, all)
	}
}

// TestHead: the answer to HEAD is that to GET without the body.
func TestHead(t *testing.T) {
	req := httptest.NewRequest(http.MethodHead, "/devdocs?lang=en", nil)
	w := httptest.NewRecorder()
	served(t).ServeHTTP(w, req)
	if w.Code != http.StatusOK || w.Body.Len() > 0 || w.Header().Get("Content-Length") == "" || w.Header().Get("ETag") != get(t, "/devdocs?lang=en").Header().Get("ETag") {
		t.Errorf("HEAD = %d with %d bytes and %v, want 200 with the header of GET", w.Code, w.Body.Len(), w.Header())
	}
}

// TestAssets: the files that pages load exist and may be cached, and the icon is that of the
// console.
func TestAssets(t *testing.T) {
	found := 0
	for _, m := range hrefs.FindAllStringSubmatch(page(t, "/devdocs"), -1) {
		if !strings.Contains(m[1], "/assets/") {
			continue
		}
		found++
		w := get(t, m[1])
		if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("GET %s = %d %v, want 200, immutable", m[1], w.Code, w.Header())
		}
		if strings.HasSuffix(m[1], ".svg") {
			mark, err := os.ReadFile("../../web/public/favicon.svg")
			if err != nil || w.Body.String() != string(mark) {
				t.Errorf("the icon differs from the console's: %v", err)
			}
		}
	}
	if found != 3 {
		t.Errorf("a page loads %d files, want 3", found)
	}
}

// TestContract: the pages show the contract's metadata, its changes and its downloads.
func TestContract(t *testing.T) {
	for _, lang := range api.Languages {
		text := page(t, "/devdocs/changes?lang="+lang)
		for _, want := range []string{"<code>api_version</code></dt><dd>" + api.APIVersion, "<code>schema_version</code></dt><dd>" + api.SchemaVersion, "deprecation_policy", "/docs-assets/openapi/" + lang + ".json", "from-1-0-0-to-" + strings.ReplaceAll(api.APIVersion, ".", "-")} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the changes lack %s", lang, want)
			}
		}
	}
	var doc struct {
		Info struct {
			Contract api.Contract `json:"x-gatehouse-contract"`
		}
	}
	body := served(t).Edition("", "en").Body
	errtest.Must(t, json.Unmarshal(body, &doc))
	if policy := doc.Info.Contract.DeprecationPolicy; !strings.Contains(html.UnescapeString(page(t, "/devdocs?lang=en")), policy) {
		t.Errorf("the overview lacks the deprecation policy of the document: %s", policy)
	}
}

// TestCredentialsForm: the form offers exactly the permissions that operations require.
func TestCredentialsForm(t *testing.T) {
	body := served(t).Edition("", "en").Body
	want := map[string]bool{}
	for _, m := range regexp.MustCompile(`"x-permission(?:-also)?":"([^"]+)"`).FindAllStringSubmatch(string(body), -1) {
		want[m[1]] = true
	}
	got := map[string]bool{}
	for _, m := range regexp.MustCompile(`name="scopes" value="([^"]+)"`).FindAllStringSubmatch(page(t, "/devdocs/credentials"), -1) {
		got[html.UnescapeString(m[1])] = true
	}
	if len(got) < 10 || len(got) != len(want) {
		t.Errorf("%d scopes, want %d", len(got), len(want))
	}
}
