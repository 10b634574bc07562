package estate

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PepPath identifies a bouncer below /peps, its other name.
type PepPath struct {
	rest.InEnvironment
	ID int64 `path:"pep_id" minimum:"1" doc:"Id of the bouncer"`
}

// peps registers the operations on a bouncer under its other name.
func (h *Handler) peps(r *rest.Router) {
	tags := []string{"Bouncers"}
	rest.Register(r, rest.Op{
		ID: "get-sync-status", Method: http.MethodGet, Path: "/peps/{pep_id}/sync-status", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary: "Get the delivery state of a bouncer's policies",
	}, func(ctx context.Context, sc scope.Scope, in *PepPath) (*rest.JSON[bouncer.SyncStatus], error) {
		return rest.Answer(h.Bouncers.SyncStatus(ctx, sc, in.ID))
	})
}
