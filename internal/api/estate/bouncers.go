package estate

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// BouncerPath names a bouncer.
type BouncerPath struct {
	rest.InEnvironment
	ID int64 `path:"bouncer_id" minimum:"1" doc:"Id of the bouncer"`
}

type bouncerListIn struct {
	rest.InEnvironment
	rest.Page
	Status string `query:"status" enum:"connected,degraded,disconnected" doc:"Only bouncers in this state"`
}

type bouncerOut struct {
	ETag string `header:"ETag" doc:"Version of the registered record; heartbeats do not change it"`
	Body bouncer.Bouncer
}

type bouncerIssuedOut struct {
	ETag string `header:"ETag" doc:"Version of the registered record"`
	Body bouncer.Issued
}

type bouncerUpdateIn struct {
	BouncerPath
	rest.IfMatch
	Body bouncer.Change
}

type bouncerDeleteIn struct {
	BouncerPath
	rest.IfMatch
}

type credentialsIn struct {
	BouncerPath
	Body bouncer.CredentialsChange
}

// bouncers registers the enforcement points.
func (h *Handler) bouncers(r *rest.Router) {
	tags, record := []string{"Bouncers"}, reflect.TypeFor[bouncer.Issued]()
	rest.Register(r, rest.Op{
		ID: "list-bouncers", Method: http.MethodGet, Path: "/bouncers", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary: "List bouncers", Description: "Sorted by id.",
	}, func(ctx context.Context, sc scope.Scope, in *bouncerListIn) (*rest.JSON[bouncer.Page], error) {
		return rest.Answer(h.Bouncers.List(ctx, sc, bouncer.Filter{Status: in.Status, Skip: int64(in.Skip), Limit: int64(in.Limit)}))
	})
	rest.Register(r, rest.Op{
		ID: "create-bouncer", Method: http.MethodPost, Path: "/bouncers", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Register a bouncer",
		Description: "Only this answer contains the token. The name is unique in its environment (409). Over the tenant's `max_bouncers`: 403 `limit_exceeded`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[bouncer.Draft]) (*bouncerIssuedOut, error) {
		made, err := h.Bouncers.Create(ctx, sc, in.Body)
		return &bouncerIssuedOut{rest.ETag(made.ChangeNo), made}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-bouncer", Method: http.MethodGet, Path: "/bouncers/{bouncer_id}", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary: "Read a bouncer",
	}, func(ctx context.Context, sc scope.Scope, in *BouncerPath) (*bouncerOut, error) {
		b, err := h.Bouncers.Get(ctx, sc, in.ID)
		return &bouncerOut{rest.ETag(b.ChangeNo), b}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-bouncer", Method: http.MethodPut, Path: "/bouncers/{bouncer_id}", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a bouncer",
		Description: "Members that are not sent keep their value. configuration and resource_ids are replaced as a whole.",
	}, func(ctx context.Context, sc scope.Scope, in *bouncerUpdateIn, version int64) (*bouncerOut, error) {
		b, err := h.Bouncers.Update(ctx, sc, in.ID, in.Body, version)
		return &bouncerOut{rest.ETag(b.ChangeNo), b}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-bouncer", Method: http.MethodDelete, Path: "/bouncers/{bouncer_id}", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Remove a bouncer",
		Description: "The token stops working at once. While a policy names the bouncer: 409 `bouncer_in_use`, which lists the policies.",
	}, func(ctx context.Context, sc scope.Scope, in *bouncerDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Bouncers.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Bouncer deleted successfully", ID: in.ID}, err)
	})
	rest.Register(r, rest.Op{
		ID: "rotate-bouncer-token", Method: http.MethodPost, Path: "/bouncers/{bouncer_id}/rotate-token", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags,
		Summary: "Issue a new token to a bouncer", Description: "The old token stops working at once.",
	}, func(ctx context.Context, sc scope.Scope, in *BouncerPath) (*bouncerIssuedOut, error) {
		made, err := h.Bouncers.Rotate(ctx, sc, in.ID)
		return &bouncerIssuedOut{rest.ETag(made.ChangeNo), made}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-bouncer-credentials", Method: http.MethodGet, Path: "/bouncers/{bouncer_id}/credentials", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary:     "List the credentials that a bouncer sends to the application",
		Description: "The headers that it sets, adds or strips; their values are never returned.",
	}, func(ctx context.Context, sc scope.Scope, in *BouncerPath) (*rest.JSON[bouncer.Credentials], error) {
		return rest.Answer(h.Bouncers.Credentials(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "set-bouncer-credentials", Method: http.MethodPut, Path: "/bouncers/{bouncer_id}/credentials", Reach: rest.ReachEnvironment, Permission: "bouncers:write", Tags: tags,
		Summary:     "Set the credentials that a bouncer sends to the application",
		Description: "Replaces the complete list. Values are encrypted at rest and given to this bouncer only; no bundle, log or answer contains them. An entry without a value keeps the value stored for its header and resource.",
	}, func(ctx context.Context, sc scope.Scope, in *credentialsIn) (*rest.JSON[bouncer.Credentials], error) {
		return rest.Answer(h.Bouncers.SetCredentials(ctx, sc, in.ID, in.Body))
	})
	h.bouncerStates(r)
}

// bouncerStates registers the operations about the state of a bouncer.
func (h *Handler) bouncerStates(r *rest.Router) {
	tags := []string{"Bouncers"}
	rest.Register(r, rest.Op{
		ID: "get-bouncer-health", Method: http.MethodGet, Path: "/bouncers/{bouncer_id}/health", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary: "Get the status of a bouncer",
	}, func(ctx context.Context, sc scope.Scope, in *BouncerPath) (*rest.JSON[bouncer.Health], error) {
		return rest.Answer(h.Bouncers.Health(ctx, sc, in.ID))
	})
	rest.Raw(r, rest.Op{
		ID: "get-bouncer-opa-config", Method: http.MethodGet, Path: "/bouncers/{bouncer_id}/opa-config", Reach: rest.ReachEnvironment, Permission: "bouncers:read", Tags: tags,
		Summary:     "Boot configuration for a stock OPA",
		Description: "YAML. OPA reads the token, which was shown once, from GATEHOUSE_BOUNCER_TOKEN in its environment. It gets bundle, decision log and status settings by discovery.",
	},
		rest.RawDocs{Params: reflect.TypeFor[BouncerPath](), Response: reflect.TypeFor[map[string]any](), ResponseType: "application/yaml"}, h.opaConfig)
}

var yamlMedia = []string{"application/yaml"}

func (h *Handler) opaConfig(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	id, err := pathID(req, "bouncer_id")
	if err != nil {
		rest.Fail(w, err)
		return
	}
	config, err := h.Bouncers.OPAConfig(req.Context(), sc, id)
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteBytes(w, http.StatusOK, yamlMedia, []byte(config))
}

// pathID returns a path parameter that precheck has found to be an integer.
func pathID(req *http.Request, name string) (int64, error) {
	id, err := strconv.ParseInt(req.PathValue(name), 10, 64)
	if err != nil {
		return 0, fault.NotFoundf("there is no such object")
	}
	return id, nil
}
