package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/negotiate"
	"github.com/gatehouse-dev/gatehouse/internal/rest/edition"
)

// Finish closes the documents. Nothing may be registered after it.
func (r *Router) Finish() error {
	var err error
	if r.idem, err = newIdempotency(r); err != nil {
		return err
	}
	api := r.api.OpenAPI()
	for name := range api.Components.Schemas.Map() {
		if strings.HasSuffix(name, "ErrorModel") || strings.HasSuffix(name, "ErrorDetail") {
			delete(api.Components.Schemas.Map(), name) // huma's own type, which we never use
		}
	}
	d := r.cfg.Document
	r.docs = edition.New(edition.Source{
		English: func() ([]byte, error) { return json.Marshal(api) },
		Title:   d.Title, Languages: d.Languages, Catalogues: d.Catalogues, Families: d.Families,
	})
	return nil
}

// Edition returns the document of a family (empty: of all other operations) in a language.
// Call it after Finish. It panics on a family or language that the API does not have, and
// on a document that cannot be encoded.
func (r *Router) Edition(family, lang string) edition.Edition {
	e, err := r.docs.Get(family, lang)
	if err != nil {
		panic(fmt.Sprintf("rest: the document of the API: %v", err))
	}
	return e
}

// ServeDocument answers with the document of a family (empty: of all other operations) in
// a language. Clients may keep it and ask for changes by ETag.
func (r *Router) ServeDocument(w http.ResponseWriter, req *http.Request, family, lang string) {
	e := r.Edition(family, lang)
	h := w.Header()
	h["Cache-Control"] = []string{"no-cache"}
	h["Etag"] = []string{e.ETag}
	if negotiate.Matches(req.Header["If-None-Match"], e.ETag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	WriteBytes(w, http.StatusOK, JSONMedia, e.Body)
}
