package system

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type portalParams struct {
	Lang string `query:"lang" doc:"Language: en, es or fr; absent: the browser's preference"`
}

type portalPageParams struct {
	Page string `path:"page" doc:"Path of the page below /devdocs, such as reference/policies"`
	portalParams
}

// devdocs registers the pages of the developer portal. The portal itself answers unknown
// paths, with a page.
func (h *Handler) devdocs(r *rest.Router) {
	html := func(params reflect.Type) rest.RawDocs {
		return rest.RawDocs{Params: params, Response: reflect.TypeFor[string](), ResponseType: "text/html"}
	}
	serve := func(w http.ResponseWriter, req *http.Request, _ scope.Scope) { h.Portal.ServeHTTP(w, req) }
	rest.Raw(r, rest.Op{
		ID: "get-devdocs", Method: http.MethodGet, Path: "/devdocs", Public: true, Tags: []string{"Documentation"},
		Summary:     "Open the developer portal",
		Description: "An interactive reference of all operations, guides and errors, as pages for people, at `/devdocs` of the host.",
	}, html(reflect.TypeFor[portalParams]()), serve)
	rest.Raw(r, rest.Op{
		ID: "get-devdocs-page", Method: http.MethodGet, Path: "/devdocs/{page...}", Public: true, Tags: []string{"Documentation"},
		Summary: "Open a page of the developer portal",
	}, html(reflect.TypeFor[portalPageParams]()), serve)
}
