package estate

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ResourcePath names a resource.
type ResourcePath struct {
	rest.InEnvironment
	ID int64 `path:"resource_id" minimum:"1" doc:"Id of the resource"`
}

type resourceListIn struct {
	rest.InEnvironment
	rest.Page
	Type string `query:"type" maxLength:"64" doc:"Only resources of this type"`
}

type resourceOut struct {
	ETag string `header:"ETag" doc:"Version of the resource"`
	Body resource.Resource
}

// ResourceCreated is the answer to POST /resources.
type ResourceCreated struct {
	ID        int64     `json:"id" doc:"Id of the new resource"`
	Name      string    `json:"name" doc:"Its name"`
	CreatedAt time.Time `json:"created_at" doc:"When it was created"`
	Message   string    `json:"message" doc:"What was done"`

	Warnings []resource.Warning `json:"warnings,omitempty" doc:"Effects of the resource that you may not expect"`
}

type resourceCreatedOut struct {
	ETag string `header:"ETag" doc:"Version of the resource"`
	Body ResourceCreated
}

type resourceUpdateIn struct {
	ResourcePath
	rest.IfMatch
	Body resource.Change
}

type resourceEnrichIn struct {
	ResourcePath
	rest.IfMatch
	Body resource.EnrichmentChange
}

type resourceEnrichedOut struct {
	ETag string `header:"ETag" doc:"Version of the resource"`
	Body resource.Enriched
}

type resourceDeleteIn struct {
	ResourcePath
	rest.IfMatch
}

// resources registers the protected resources.
func (h *Handler) resources(r *rest.Router) {
	tags, record := []string{"Resources"}, reflect.TypeFor[resource.Resource]()
	rest.Register(r, rest.Op{
		ID: "list-resources", Method: http.MethodGet, Path: "/resources", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary: "List protected resources", Description: "Sorted by id.",
	}, func(ctx context.Context, sc scope.Scope, in *resourceListIn) (*rest.JSON[resource.Page], error) {
		return rest.Answer(h.Resources.List(ctx, sc, resource.Filter{Type: in.Type, Skip: int64(in.Skip), Limit: int64(in.Limit)}))
	})
	rest.Register(r, rest.Op{
		ID: "create-resource", Method: http.MethodPost, Path: "/resources", Reach: rest.ReachEnvironment, Permission: "resources:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Register a protected resource",
		Description: "Requests are matched by host, then by type, path pattern and method; the most specific resource wins. The body may include the enrichment. A confidential or restricted resource needs a compliance tag (422).",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[resource.Draft]) (*resourceCreatedOut, error) {
		made, err := h.Resources.Create(ctx, sc, in.Body)
		return &resourceCreatedOut{rest.ETag(made.Version), ResourceCreated{made.ID, made.Name, made.CreatedAt, "Resource created successfully", made.Warnings}}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-resource", Method: http.MethodGet, Path: "/resources/{resource_id}", Reach: rest.ReachEnvironment, Permission: "resources:read", Tags: tags,
		Summary: "Read a protected resource",
	}, func(ctx context.Context, sc scope.Scope, in *ResourcePath) (*resourceOut, error) {
		got, err := h.Resources.Get(ctx, sc, in.ID)
		return &resourceOut{rest.ETag(got.Version), got}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-resource", Method: http.MethodPut, Path: "/resources/{resource_id}", Reach: rest.ReachEnvironment, Permission: "resources:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Change a protected resource",
		Description: "Members that are not sent keep their value; null clears an optional one. attributes are replaced as a whole.",
	}, func(ctx context.Context, sc scope.Scope, in *resourceUpdateIn, version int64) (*resourceOut, error) {
		got, err := h.Resources.Update(ctx, sc, in.ID, in.Body, version)
		return &resourceOut{rest.ETag(got.Version), got}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "enrich-resource", Method: http.MethodPut, Path: "/resources/{resource_id}/enrich", Reach: rest.ReachEnvironment, Permission: "resources:edit", Tags: tags, Record: record,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Set the enrichment of a resource",
		Description: "Any subset of the fields; null clears one. impacts explains what the change means for each bound control and each suggested template. A confidential or restricted resource needs a compliance tag (422).",
	}, func(ctx context.Context, sc scope.Scope, in *resourceEnrichIn, version int64) (*resourceEnrichedOut, error) {
		got, err := h.Resources.Enrich(ctx, sc, in.ID, in.Body, version)
		return &resourceEnrichedOut{rest.ETag(got.Version), got}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-resource", Method: http.MethodDelete, Path: "/resources/{resource_id}", Reach: rest.ReachEnvironment, Permission: "resources:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Remove a protected resource",
		Description: "While policies or bouncers name it: 409 `resource_in_use`, which lists them. A discovered resource is removed from the lists of bouncers too.",
	}, func(ctx context.Context, sc scope.Scope, in *resourceDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Resources.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Resource deleted successfully", ID: in.ID}, err)
	})
}
