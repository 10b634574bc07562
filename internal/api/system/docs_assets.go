package system

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// docsAssets registers the OpenAPI document in each of its languages.
func (h *Handler) docsAssets(r *rest.Router) {
	for _, lang := range h.Languages {
		rest.Raw(r, rest.Op{
			ID: "get-openapi-" + lang, Method: http.MethodGet, Path: "/docs-assets/openapi/" + lang + ".json", Public: true, Tags: []string{"Documentation"},
			Summary: "This document, its texts in English, Spanish or French",
		}, rest.RawDocs{Response: reflect.TypeFor[map[string]any]()}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
			r.ServeDocument(w, req, "", lang)
		})
	}
}
