package system

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// openapi registers the OpenAPI document in its original language.
func (h *Handler) openapi(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "get-openapi", Method: http.MethodGet, Path: "/openapi.json", Public: true, Tags: []string{"Documentation"},
		Summary: "This document",
	}, rest.RawDocs{Response: reflect.TypeFor[map[string]any]()}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
		r.ServeDocument(w, req, "", h.Languages[0])
	})
}
