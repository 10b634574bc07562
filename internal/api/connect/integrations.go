package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// IntegrationPath names an integration.
type IntegrationPath struct {
	ID int64 `path:"integration_id" minimum:"1" doc:"Id of the integration"`
}

type integrationListIn struct {
	rest.Page
	Kind string `query:"kind" enum:"webhook,workflow,approval_queue,policy_engine,break_glass_bridge,siem_forwarder" doc:"Only integrations of this kind"`
}

type integrationOut struct {
	ETag string `header:"ETag" doc:"Version of the integration; deliveries do not change it"`
	Body integration.Integration
}

type integrationCreateIn struct{ Body integration.Draft }

type integrationUpdateIn struct {
	IntegrationPath
	rest.IfMatch
	Body integration.Change
}

type integrationDeleteIn struct {
	IntegrationPath
	rest.IfMatch
}

type integrationKindsOut struct {
	Body struct {
		Kinds []integration.Kind `json:"kinds" doc:"The kinds."`
	}
}

func integrationOp(id, method, path, summary, description string) rest.Op {
	permission := scope.Permission("integrations:write")
	if method == http.MethodGet {
		permission = "integrations:read"
	}
	return rest.Op{ID: id, Method: method, Path: path, Reach: rest.ReachTenant, Permission: permission, Tags: []string{"Integrations"}, Summary: summary, Description: description}
}

// integrations registers the integrations: the tenants' systems that gatehouse calls.
func (h *Handler) integrations(r *rest.Router) {
	record := reflect.TypeFor[integration.Integration]()
	list := integrationOp("list-integrations", http.MethodGet, "/integrations", "List integrations", "By id. Credentials are never returned; `credential_set` says whether there is one.")
	rest.Register(r, list, func(ctx context.Context, sc scope.Scope, in *integrationListIn) (*rest.JSON[integration.Page], error) {
		return rest.Answer(h.Integrations.List(ctx, sc, in.Kind, int64(in.Skip), int64(in.Limit)))
	})
	create := integrationOp("create-integration", http.MethodPost, "/integrations", "Create an integration",
		"A `siem_forwarder` gets both audit logs, in their order and at least once, from now on or from the oldest stored entry. A `webhook` gets what the actions of controls send to it. So does a `workflow`, which answers back. An `approval_queue` gets requests for access and decides them. A `policy_engine` is a registry (OCI) or an S3 bucket, and gets the bundle of a bouncer for engines that do not reach gatehouse. A `break_glass_bridge` opens grants in emergencies. What the system does not accept is sent again. `settings` and `credential` depend on the kind: GET /integrations/kinds lists them. Internal networks are not called (422 `target_refused`).")
	create.Status, create.Creates, create.Record, create.Errors = http.StatusCreated, true, record, []int{http.StatusConflict}
	rest.Register(r, create, func(ctx context.Context, sc scope.Scope, in *integrationCreateIn) (*integrationOut, error) {
		it, err := h.Integrations.Create(ctx, sc, in.Body)
		return &integrationOut{rest.ETag(it.ChangeNo), it}, err
	})
	rest.Register(r, integrationOp("get-integration", http.MethodGet, "/integrations/{integration_id}", "Read an integration", ""),
		func(ctx context.Context, sc scope.Scope, in *IntegrationPath) (*integrationOut, error) {
			it, err := h.Integrations.Get(ctx, sc, in.ID)
			return &integrationOut{rest.ETag(it.ChangeNo), it}, err
		})
	update := integrationOp("update-integration", http.MethodPut, "/integrations/{integration_id}", "Change an integration",
		"Members that are not sent keep their value. `settings` is replaced as a whole. A change to another host needs `credential` again (422 `credential_required`). The kind and the environment cannot be changed. Waiting entries and messages are tried at once.")
	update.Record, update.Errors = record, []int{http.StatusConflict, http.StatusPreconditionFailed}
	rest.RegisterChange(r, update, func(ctx context.Context, sc scope.Scope, in *integrationUpdateIn, version int64) (*integrationOut, error) {
		it, err := h.Integrations.Update(ctx, sc, in.ID, in.Body, version)
		return &integrationOut{rest.ETag(it.ChangeNo), it}, err
	})
	remove := integrationOp("delete-integration", http.MethodDelete, "/integrations/{integration_id}", "Remove an integration", "Waiting entries and messages are no longer sent.")
	remove.Errors = []int{http.StatusPreconditionFailed}
	rest.RegisterChange(r, remove, func(ctx context.Context, sc scope.Scope, in *integrationDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Integrations.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Integration deleted successfully", ID: in.ID}, err)
	})
	h.integrationActions(r)
	h.integrationRuns(r)
	h.breakGlass(r)
}

// integrationActions registers the test of an integration, and the list of kinds.
func (h *Handler) integrationActions(r *rest.Router) {
	rest.Register(r, integrationOp("test-integration", http.MethodPost, "/integrations/{integration_id}/test", "Send a test to an integration",
		"Sends an example at once and shows the system's answer. It is tried once, even while the integration is disabled. For a `policy_engine`, the bundle is built, and the store is asked whether it would take it: an upload to the registry begins and is given up, or an object beside the bundle is stored and removed."),
		func(ctx context.Context, sc scope.Scope, in *IntegrationPath) (*rest.JSON[integration.TestResult], error) {
			return rest.Answer(h.Integrations.Test(ctx, sc, in.ID))
		})
	rest.Register(r, integrationOp("list-integration-kinds", http.MethodGet, "/integrations/kinds", "List the kinds of integrations",
		"The settings and the members of the credential that each kind takes, for forms. docs/integrations-out.md says what they mean."),
		func(context.Context, scope.Scope, *struct{}) (*integrationKindsOut, error) {
			out := &integrationKindsOut{}
			out.Body.Kinds = integration.Kinds()
			return out, nil
		})
}
