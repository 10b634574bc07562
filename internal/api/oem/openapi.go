package oem

import (
	"cmp"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type documentIn struct {
	Language string `query:"language" enum:"en,es,fr" doc:"Language of the texts; English by default"`
}

// openapi registers the document of the family.
func (h *Handler) openapi(r *rest.Router) {
	rest.Raw(r, rest.Op{
		ID: "oem-get-openapi", Method: http.MethodGet, Family: Family, Path: "/openapi.json", Public: true, Tags: tags,
		Summary: "This document",
	}, rest.RawDocs{Params: reflect.TypeFor[documentIn](), Response: reflect.TypeFor[map[string]any]()}, func(w http.ResponseWriter, req *http.Request, _ scope.Scope) {
		r.ServeDocument(w, req, Family, cmp.Or(req.URL.Query().Get("language"), h.Languages[0]))
	})
}
