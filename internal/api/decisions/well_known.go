package decisions

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// AuthZENMetadata is the discovery document (AuthZEN Authorization API 1.0, section 9).
type AuthZENMetadata struct {
	DecisionPoint string   `json:"policy_decision_point" doc:"Identifier of this policy decision point"`
	Evaluation    string   `json:"access_evaluation_endpoint" doc:"Endpoint for one request"`
	Evaluations   string   `json:"access_evaluations_endpoint" doc:"Endpoint for several requests"`
	Subject       string   `json:"search_subject_endpoint" doc:"Endpoint for subject searches"`
	Resource      string   `json:"search_resource_endpoint" doc:"Endpoint for resource searches"`
	Action        string   `json:"search_action_endpoint" doc:"Endpoint for action searches"`
	_             struct{} `additionalProperties:"true"`
}

// AuthZENTenant names the tenant of a discovery document.
type AuthZENTenant struct {
	Tenant string `path:"tenant" maxLength:"100" pattern:"^[A-Za-z0-9_-]+$" doc:"Id of the tenant"`
}

// discovery registers the discovery documents: for the deployment, and for each
// tenant, whose identifier has the tenant as its path.
func (h *Handler) discovery(r *rest.Router) {
	op := rest.Op{
		ID: "authzen-configuration", Method: http.MethodGet, Path: "/.well-known/authzen-configuration", Reach: rest.ReachSelf, Root: true, Public: true, Tags: []string{"AuthZEN"},
		Summary: "Find the AuthZEN endpoints", Description: "The metadata of the AuthZEN policy decision point. It does not reveal which tenants exist.",
	}
	rest.Register(r, op, func(context.Context, scope.Scope, *struct{}) (*rest.JSON[AuthZENMetadata], error) {
		return rest.Answer(h.authzenMetadata(""), nil)
	})
	op.ID, op.Path = "authzen-tenant-configuration", op.Path+"/{tenant}"
	op.Summary = "Find the AuthZEN endpoints of a tenant"
	rest.Register(r, op, func(_ context.Context, _ scope.Scope, in *AuthZENTenant) (*rest.JSON[AuthZENMetadata], error) {
		return rest.Answer(h.authzenMetadata("/"+in.Tenant), nil)
	})
}

// authzenMetadata lists the endpoints. They are the same for all tenants, because the credential
// identifies the tenant.
func (h *Handler) authzenMetadata(path string) AuthZENMetadata {
	at := h.PublicURL + "/access/v1/"
	return AuthZENMetadata{
		DecisionPoint: h.PublicURL + path, Evaluation: at + "evaluation", Evaluations: at + "evaluations",
		Subject: at + "search/subject", Resource: at + "search/resource", Action: at + "search/action",
	}
}
