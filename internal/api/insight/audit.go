package insight

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type auditEventsIn struct {
	rest.InEnvironment
	rest.Window
	rest.Scroll
	Type     string `query:"type" maxLength:"100" doc:"Only entries of this type, such as RESOURCE_UPDATED"`
	Object   string `query:"object" maxLength:"100" doc:"Only entries about this kind of object, such as policy"`
	ObjectID string `query:"object_id" maxLength:"200" doc:"Only entries about the object with this id"`
	ActorID  string `query:"actor_id" maxLength:"200" doc:"Only entries by this actor"`
}

// audit registers the administrative log, and the check of both hash chains.
func (h *Handler) audit(r *rest.Router) {
	tags := []string{"Audit"}
	rest.Register(r, rest.Op{
		ID: "list-audit-events", Method: http.MethodGet, Path: "/audit/events", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "Read the administrative log",
		Description: "Who changed what, newest first. An entry is written in the same transaction as its change, so neither exists without the other.",
	}, func(ctx context.Context, sc scope.Scope, in *auditEventsIn) (*rest.JSON[audit.EventPage], error) {
		f := audit.EventFilter{Type: in.Type, Object: in.Object, ObjectID: in.ObjectID, ActorID: in.ActorID, Limit: in.Limit, Cursor: in.Cursor}
		var err error
		if f.Start, f.End, err = in.Period(); err != nil {
			return nil, err
		}
		return rest.Answer(h.Audit.Events(ctx, sc, f))
	})
	rest.Register(r, rest.Op{
		ID: "verify-audit", Method: http.MethodGet, Path: "/audit/verify", Permission: "audit:read", Tags: tags, Slow: true,
		Summary:     "Verify the hash chains of the logs",
		Description: "Both logs are hash chains. This reads them from end to end, and reports the position of every entry that was edited, removed or moved.",
	}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*rest.JSON[audit.Report], error) {
		return rest.Answer(h.Audit.Verify(ctx, sc))
	})
}
