package api

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// documentation registers the OpenAPI document, in all its languages.
func (s *Server) documentation(r *rest.Router) {
	tags := []string{"Documentation"}
	docs := rest.RawDocs{Response: reflect.TypeFor[map[string]any]()}
	rest.Raw(r, rest.Op{
		ID: "get-openapi", Method: http.MethodGet, Path: "/openapi.json", Public: true, Tags: tags,
		Summary: "This document",
	}, docs, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
		r.ServeDocument(w, req, Languages[0])
	})
	for _, lang := range Languages {
		rest.Raw(r, rest.Op{
			ID: "get-openapi-" + lang, Method: http.MethodGet, Path: "/docs-assets/openapi/" + lang + ".json", Public: true, Tags: tags,
			Summary: "This document, its texts in English, Spanish or French",
		}, docs, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
			r.ServeDocument(w, req, lang)
		})
	}
}
