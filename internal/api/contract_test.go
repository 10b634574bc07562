package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/gatehouse-dev/gatehouse/internal/api/oem"
	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rest/edition"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

var (
	update  = flag.Bool("update", false, "write testdata/openapi.json again")
	publish = flag.Bool("release", false, "store the document as that of a release, in internal/contract/released")
)

const (
	golden   = "testdata/openapi.json"
	released = "../contract/released"
)

// whole returns the API as it is served, but without services.
func whole(t *testing.T) *API {
	t.Helper()
	r, err := New(Config{Kit: kit()})
	errtest.Must(t, err)
	return r
}

// indented returns a document with one member a line.
func indented(t *testing.T, doc []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	errtest.Must(t, json.Indent(&out, doc, "", " "))
	out.WriteByte('\n')
	return out.Bytes()
}

// families are the parts of the API that have their own documents. The empty name is for all
// other operations.
var families = []string{"", oem.Family}

// goldenOf returns the name of the file with the document of a family.
func goldenOf(family string) string {
	if family == "" {
		return golden
	}
	return "testdata/openapi-" + family + ".json"
}

// TestDocument: each document is valid, equals the golden one, and describes exactly the routes
// of its family.
func TestDocument(t *testing.T) {
	r := whole(t)
	for _, family := range families {
		document := r.Edition(family, "en").Body
		doc := indented(t, document)
		spec, err := openapi3.NewLoader().LoadFromData(doc)
		errtest.Must(t, err)
		if err := spec.Validate(t.Context(), openapi3.DisableExamplesValidation()); err != nil {
			t.Errorf("the document %s is not valid: %v", goldenOf(family), err)
		}
		checkRoutes(t, r, family, spec)
		if *update {
			errtest.Must(t, os.WriteFile(goldenOf(family), doc, 0o644))
		}
		want, err := os.ReadFile(goldenOf(family))
		errtest.Must(t, err)
		if !bytes.Equal(doc, want) {
			t.Errorf("the document differs from %s: if the change is intended, run make docs", goldenOf(family))
		}
	}
}

// checkRoutes compares a document with the routes of its family.
func checkRoutes(t *testing.T, r *API, family string, spec *openapi3.T) {
	t.Helper()
	seen := map[string]bool{}
	for _, op := range r.Routes() {
		if op.Family != family {
			continue
		}
		path := strings.ReplaceAll(op.Path, "...}", "}")
		item := spec.Paths.Value(path)
		if item == nil || item.GetOperation(op.Method) == nil {
			t.Errorf("%s %s is served but not documented", op.Method, op.Path)
			continue
		}
		seen[op.Method+" "+path] = true
		if op.Summary == "" || len(op.Tags) == 0 {
			t.Errorf("%s has no summary or tag", op.ID)
		}
		if !op.Public && op.Permission == "" && !op.Optional && op.Caller == "" {
			t.Logf("%s needs a credential, but no permission", op.ID)
		}
	}
	for path, item := range spec.Paths.Map() {
		for method := range item.Operations() {
			if !seen[method+" "+path] {
				t.Errorf("%s %s is documented but not served", method, path)
			}
		}
	}
}

// TestTranslations: every text of the documents is translated.
func TestTranslations(t *testing.T) {
	r := whole(t)
	for _, lang := range Languages[1:] {
		for _, family := range families {
			if missing := r.Edition(family, lang).Missing; len(missing) > 0 {
				list, err := json.MarshalIndent(missing, "", "  ")
				errtest.Must(t, err)
				t.Errorf("%d texts have no translation in locales/%s:\n%s", len(missing), lang, list)
			}
		}
		described, err := document()
		errtest.Must(t, err)
		catalogue, err := edition.Catalogue(described.Catalogues, lang)
		errtest.Must(t, err)
		for text, to := range catalogue {
			if strings.TrimSpace(to) == "" {
				t.Errorf("locales/%s: %q is translated to nothing", lang, text)
			}
		}
	}
}

// TestCompatible: no document has changes that break clients of the last release, unless
// its api_version has a new major number.
func TestCompatible(t *testing.T) {
	fulltest.Only(t)
	for _, family := range families {
		now := whole(t).Edition(family, "en").Body
		is := decoded(t, now)
		if *publish {
			store(t, indented(t, now), family, contract.Version(is))
		}
		all, err := contract.Released(family)
		if err != nil || len(all) == 0 {
			t.Fatalf("%d releases: %v", len(all), err)
		}
		was := all[len(all)-1]
		breaks := slices.DeleteFunc(contract.Compare(was, is), func(c contract.Change) bool { return !c.Kind.Breaking() })
		if len(breaks) > 0 && major(is) == major(was) {
			t.Errorf("breaking changes without a new major api_version:\n%v", breaks)
		}
	}
}

// major returns the major number of a document's version.
func major(doc contract.Document) string {
	m, _, _ := strings.Cut(contract.Version(doc), ".")
	return m
}

// store writes the document of a release.
func store(t *testing.T, doc []byte, family, version string) {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	errtest.Must(t, err)
	errtest.Must(t, errtest.Of(w.Write(doc)))
	errtest.Must(t, w.Close())
	errtest.Must(t, os.WriteFile(filepath.Join(released, family, version+".json.gz"), out.Bytes(), 0o644))
}

// decoded returns a document as a tree.
func decoded(t *testing.T, doc []byte) contract.Document {
	t.Helper()
	tree, err := contract.Decode(doc)
	errtest.Must(t, err)
	return tree
}

// TestServedDocuments: the document is served in three languages and with an ETag.
func TestServedDocuments(t *testing.T) {
	fulltest.Only(t)
	g := newRig(t, nil)
	for _, path := range []string{"/openapi.json", "/api/v1/openapi.json", "/docs-assets/openapi/en.json", "/docs-assets/openapi/es.json", "/docs-assets/openapi/fr.json"} {
		w := g.Do(t, resttest.Call{Method: "GET", Path: path}.Request())
		if w.Code != 200 || contract.Version(decoded(t, w.Body.Bytes())) != APIVersion {
			t.Errorf("GET %s = %d, want 200 with version %s", path, w.Code, APIVersion)
		}
		again := g.Do(t, resttest.Call{Method: "GET", Path: path, Headers: []string{"If-None-Match", w.Header().Get("ETag")}}.Request())
		if again.Code != http.StatusNotModified {
			t.Errorf("GET %s with its ETag = %d, want 304", path, again.Code)
		}
	}
	for _, query := range []string{"", "?language=en", "?language=es", "?language=fr"} {
		w := g.Do(t, resttest.Call{Method: "GET", Path: oem.Root + "/openapi.json" + query}.Request())
		if w.Code != 200 || contract.Version(decoded(t, w.Body.Bytes())) != OEMVersion {
			t.Errorf("GET of the vendors' document %s = %d, want 200 with version %s", query, w.Code, OEMVersion)
		}
	}
	if w := g.Do(t, resttest.Call{Method: "GET", Path: oem.Root + "/openapi.json?language=de"}.Request()); w.Code != 400 {
		t.Errorf("GET of the vendors' document in German = %d, want 400", w.Code)
	}
	if w := g.Do(t, resttest.Call{Method: "GET", Path: "/docs-assets/openapi/de.json"}.Request()); w.Code != 404 {
		t.Errorf("GET of the document in German = %d, want 404", w.Code)
	}
}
