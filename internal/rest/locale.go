package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
)

// rendered is the OpenAPI document in one language.
type rendered struct {
	body []byte
	etag []string
	// missing are the texts that the catalog of the language lacks.
	missing []string
}

// Finish closes the document. Nothing may be registered after it.
func (r *Router) Finish() error {
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
	r.docs = map[string]rendered{}
	languages := r.cfg.Document.Languages
	for _, lang := range languages {
		var tree any
		if err := json.Unmarshal(english, &tree); err != nil {
			return err
		}
		catalog, err := Catalog(r.cfg.Document.Catalogs, lang)
		if err != nil {
			return err
		}
		missing := map[string]bool{}
		if lang != languages[0] {
			translation{catalog, r.cfg.Document.Title, missing}.apply(tree)
		}
		body, err := json.Marshal(tree)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		r.docs[lang] = rendered{
			body: body, etag: []string{`"` + hex.EncodeToString(sum[:8]) + `"`},
			missing: slices.Sorted(maps.Keys(missing)),
		}
	}
	return nil
}

// Catalog reads the translations into a language, from all its files.
func Catalog(files fs.FS, lang string) (map[string]string, error) {
	all := map[string]string{}
	if files == nil {
		return all, nil
	}
	names, err := fs.Glob(files, path.Join(lang, "*.json"))
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

// translation replaces the texts for people in a document, and collects those
// that the catalog lacks.
type translation struct {
	catalog map[string]string
	title   string // of the document: the same in all languages
	missing map[string]bool
}

// apply translates below a node. A member that is merely called description, as a
// property of a schema may be, holds no string or stands below an example.
func (t translation) apply(node any) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			t.apply(item)
		}
	case map[string]any:
		for name, member := range n {
			switch name {
			case "example", "examples", "default", "enum", "const":
				continue
			case "summary", "description", "title":
				if text, ok := member.(string); ok {
					if to := t.catalog[text]; to != "" {
						n[name] = to
					} else if text != t.title {
						t.missing[text] = true
					}
					continue
				}
			}
			t.apply(member)
		}
	}
}

// Rendered is the finished document in a language, and the texts of it that the
// catalog of the language lacks. Call it after Finish.
func (r *Router) Rendered(lang string) (document []byte, missing []string) {
	d := r.docs[lang]
	return d.body, d.missing
}

// ServeDocument answers with the document in a language. Clients may keep it and
// ask for changes by ETag.
func (r *Router) ServeDocument(w http.ResponseWriter, req *http.Request, lang string) {
	d := r.docs[lang]
	h := w.Header()
	h["Cache-Control"] = []string{"no-cache"}
	h["Etag"] = d.etag
	if slices.Contains(req.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	WriteBytes(w, http.StatusOK, JSONMedia, d.body)
}
