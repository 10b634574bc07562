package estate

import (
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/bridge"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type revisionsIn struct{ EnvironmentPath }

// deployments registers the operation that lists the revision that each bouncer runs.
func (h *Handler) deployments(r *rest.Router) {
	tags := []string{"Bridge"}
	rest.Raw(r, rest.Op{
		ID: "get-revisions", Method: http.MethodGet, Path: "/deployments/revisions/{environment}", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary:     "List the revision that each bouncer runs",
		Description: "A publication is complete when all connected bouncers run the revision that they should.",
	},
		rest.RawDocs{Params: reflect.TypeFor[revisionsIn](), Response: reflect.TypeFor[bridge.Revisions]()},
		func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
			out, err := h.Bridge.Revisions(req.Context(), sc, scope.Env(req.PathValue("environment")))
			if err != nil {
				rest.Fail(w, err)
				return
			}
			rest.WriteJSON(w, http.StatusOK, out)
		})
}
