package api

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// catalogs hold the translations: locales/<language>/<segment>.json maps each
// English text of the document to its translation.
//
//go:embed locales
var catalogs embed.FS

// Languages are those of the document. The first is the one that it is written in.
var Languages = []string{"en", "es", "fr"}

// documents are the finished OpenAPI documents.
type documents map[string]document

type document struct {
	body []byte
	etag []string
	// missing are the texts that the catalog of the language lacks.
	missing []string
}

// finish closes the document: nothing is registered after it.
func (r *Router) finish() error {
	var err error
	if r.idem, err = newIdempotency(r); err != nil {
		return err
	}
	api := r.api.OpenAPI()
	for name := range api.Components.Schemas.Map() {
		if strings.HasSuffix(name, "ErrorModel") || strings.HasSuffix(name, "ErrorDetail") {
			delete(api.Components.Schemas.Map(), name) // huma's own, which we never answer
		}
	}
	english, err := json.Marshal(api)
	if err != nil {
		return err
	}
	r.docs = documents{}
	for _, lang := range Languages {
		var tree any
		if err := json.Unmarshal(english, &tree); err != nil {
			return err
		}
		catalog, err := catalogOf(catalogs, lang)
		if err != nil {
			return err
		}
		missing := map[string]bool{}
		if lang != Languages[0] {
			translate(tree, catalog, missing)
		}
		body, err := json.Marshal(tree)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		r.docs[lang] = document{
			body: body, etag: []string{`"` + hex.EncodeToString(sum[:8]) + `"`},
			missing: slices.Sorted(maps.Keys(missing)),
		}
	}
	return nil
}

// catalogOf reads the files of a language into one map.
func catalogOf(files fs.FS, lang string) (map[string]string, error) {
	all := map[string]string{}
	names, err := fs.Glob(files, path.Join("locales", lang, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var texts map[string]string
		if err := json.Unmarshal(data, &texts); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		maps.Copy(all, texts)
	}
	return all, nil
}

// translate replaces the texts for people in a document and notes those that
// the catalog lacks. What merely has such a name is no string there, or stands
// below a member that is left alone.
func translate(node any, catalog map[string]string, missing map[string]bool) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			translate(item, catalog, missing)
		}
	case map[string]any:
		for name, member := range n {
			switch name {
			case "example", "examples", "default", "enum", "const":
				continue
			case "summary", "description", "title":
				if text, ok := member.(string); ok {
					if to := catalog[text]; to != "" {
						n[name] = to
					} else if text != productName {
						missing[text] = true
					}
					continue
				}
			}
			translate(member, catalog, missing)
		}
	}
}

// documentation serves the OpenAPI document.
func (s *Server) documentation(r *Router) {
	tags := []string{"Documentation"}
	Raw(r, Op{
		ID: "get-openapi", Method: http.MethodGet, Path: "/openapi.json", Public: true, Tags: tags,
		Summary: "This document",
	}, RawDocs{Response: objectType}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
		r.docs[Languages[0]].serve(w, req)
	})
	for _, lang := range Languages {
		Raw(r, Op{
			ID: "get-openapi-" + lang, Method: http.MethodGet, Path: "/docs-assets/openapi/" + lang + ".json", Public: true, Tags: tags,
			Summary: "This document, its texts in English, Spanish or French",
		}, RawDocs{Response: objectType}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
			r.docs[lang].serve(w, req)
		})
	}
}

// serve answers with the document; it may be kept, and asked for anew by ETag.
func (d document) serve(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h["Cache-Control"] = []string{"no-cache"}
	h["Etag"] = d.etag
	if slices.Contains(req.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	WriteBytes(w, http.StatusOK, jsonMedia, d.body)
}
