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
	"github.com/gatehouse-dev/gatehouse/internal/rest/edition"
	"github.com/gatehouse-dev/gatehouse/internal/rest/resttest"
)

var (
	update  = flag.Bool("update", false, "write testdata/openapi.json anew")
	publish = flag.Bool("release", false, "keep the document as that of a release, in internal/contract/released")
)

const (
	golden   = "testdata/openapi.json"
	released = "../contract/released"
)

// whole returns the API as it is served, but without services.
func whole(t *testing.T) *API {
	t.Helper()
	r, err := New(Config{Kit: kit()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func indented(t *testing.T, doc []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, doc, "", " "); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.Validate(t.Context(), openapi3.DisableExamplesValidation()); err != nil {
			t.Errorf("not a valid document: %v", err)
		}
		checkRoutes(t, r, family, spec)
		if *update {
			if err := os.WriteFile(goldenOf(family), doc, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(goldenOf(family))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(doc, want) {
			t.Errorf("the document is not %s: if the change is meant, run go test ./internal/api -run Document -update", goldenOf(family))
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

// TestTranslations: no text of the documents is left in English.
func TestTranslations(t *testing.T) {
	r := whole(t)
	for _, lang := range Languages[1:] {
		for _, family := range families {
			if missing := r.Edition(family, lang).Missing; len(missing) > 0 {
				list, err := json.MarshalIndent(missing, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				t.Errorf("%d texts have no translation in locales/%s:\n%s", len(missing), lang, list)
			}
		}
		described, err := document()
		if err != nil {
			t.Fatal(err)
		}
		catalog, err := edition.Catalog(described.Catalogs, lang)
		if err != nil {
			t.Fatal(err)
		}
		for text, to := range catalog {
			if strings.TrimSpace(to) == "" {
				t.Errorf("locales/%s: %q is translated to nothing", lang, text)
			}
		}
	}
}

// TestCompatible: no document has changes that break clients of the last release, unless
// its api_version has a new major number.
func TestCompatible(t *testing.T) {
	for _, family := range families {
		now := whole(t).Edition(family, "en").Body
		is := decoded(t, now)
		if *publish {
			keep(t, indented(t, now), family, contract.Version(is))
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

func major(doc contract.Document) string {
	m, _, _ := strings.Cut(contract.Version(doc), ".")
	return m
}

// keep writes the document of a release.
func keep(t *testing.T, doc []byte, family, version string) {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(doc); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(released, family, version+".json.gz"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func decoded(t *testing.T, doc []byte) contract.Document {
	t.Helper()
	tree, err := contract.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestServedDocuments: the document is served in three languages and with an ETag.
func TestServedDocuments(t *testing.T) {
	g := newRig(t, nil)
	for _, path := range []string{"/openapi.json", "/api/v1/openapi.json", "/docs-assets/openapi/en.json", "/docs-assets/openapi/es.json", "/docs-assets/openapi/fr.json"} {
		w := g.Do(t, resttest.Call{Method: "GET", Path: path}.Request())
		if w.Code != 200 || contract.Version(decoded(t, w.Body.Bytes())) != APIVersion {
			t.Errorf("%s: %d", path, w.Code)
		}
		again := g.Do(t, resttest.Call{Method: "GET", Path: path, Headers: []string{"If-None-Match", w.Header().Get("ETag")}}.Request())
		if again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	for _, query := range []string{"", "?language=en", "?language=es", "?language=fr"} {
		w := g.Do(t, resttest.Call{Method: "GET", Path: oem.Root + "/openapi.json" + query}.Request())
		if w.Code != 200 || contract.Version(decoded(t, w.Body.Bytes())) != OEMVersion {
			t.Errorf("the document for vendors %s: %d", query, w.Code)
		}
	}
	if w := g.Do(t, resttest.Call{Method: "GET", Path: oem.Root + "/openapi.json?language=de"}.Request()); w.Code != 400 {
		t.Errorf("a language that the vendors' document does not have: %d", w.Code)
	}
	if w := g.Do(t, resttest.Call{Method: "GET", Path: "/docs-assets/openapi/de.json"}.Request()); w.Code != 404 {
		t.Errorf("a language that is not there: %d", w.Code)
	}
}
