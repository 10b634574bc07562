package controls

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PolicyPath names a policy: embed it in an input.
type PolicyPath struct {
	rest.InEnvironment
	ID int64 `path:"policy_id" minimum:"1" doc:"Id of the policy"`
}

type policyListIn struct {
	rest.InEnvironment
	rest.Page
	Kind   string `query:"kind" enum:"control,library" doc:"Only policies of this kind"`
	Status string `query:"status" enum:"active,inactive,draft" doc:"Only policies with this status"`
	Name   string `query:"name" maxLength:"200" doc:"Only policies whose name contains this text, ignoring case"`
	// Deleted selects only deleted policies.
	Deleted bool `query:"deleted" doc:"Only deleted policies, which can be restored; absent: only the others"`
}

type policyOut struct {
	ETag string `header:"ETag" doc:"Version of the policy"`
	Body policy.Policy
}

// PolicyCreated is the answer to POST /policies.
type PolicyCreated struct {
	ID          int64     `json:"id" doc:"Id of the new policy"`
	Name        string    `json:"name" doc:"Its name"`
	Status      string    `json:"status" enum:"draft,active" doc:"Its status"`
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Its environment"`
	CreatedAt   time.Time `json:"created_at" doc:"When it was created"`
	Message     string    `json:"message" doc:"What was done"`

	Warnings []policy.Warning `json:"warnings,omitempty" doc:"Warnings about what was done"`
}

type policyCreatedOut struct {
	ETag string `header:"ETag" doc:"Version of the policy"`
	Body PolicyCreated
}

type policyUpdateIn struct {
	PolicyPath
	rest.IfMatch
	Body policy.Change
}

type policyDeleteIn struct {
	PolicyPath
	rest.IfMatch
	Hard bool `query:"hard_delete" doc:"Delete the policy and its versions for good"`
}

// PolicyDeleted is the answer to DELETE /policies/{policy_id}.
type PolicyDeleted struct {
	Message   string    `json:"message" doc:"What was done"`
	ID        int64     `json:"id" doc:"Id of the policy"`
	DeletedAt time.Time `json:"deleted_at" doc:"When it was deleted"`
}

// createdMessage says what was created, and that it applies to everything if it is tenant-wide.
func createdMessage(p policy.Policy) string {
	if p.ResourceID != nil || p.Kind == policy.KindLibrary {
		return "Policy created successfully"
	}
	return "Policy created successfully. It has no resource: once active, it applies to every request of " + string(p.Environment)
}

// policies registers the operations that create, read, change and delete policies.
func (h *Handler) policies(r *rest.Router) {
	tags, record := []string{"Policies"}, reflect.TypeFor[policy.Policy]()
	rest.Register(r, rest.Op{
		ID: "list-policies", Method: http.MethodGet, Path: "/policies", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "List policies", Description: "Sorted by id. Deleted policies are listed only with deleted=true.",
	}, func(ctx context.Context, sc scope.Scope, in *policyListIn) (*rest.JSON[policy.Page], error) {
		return rest.Answer(h.Policies.List(ctx, sc, policy.Filter{Kind: in.Kind, Status: in.Status, Name: in.Name, Deleted: in.Deleted, Skip: int64(in.Skip), Limit: int64(in.Limit)}))
	})
	rest.Register(r, rest.Op{
		ID: "create-policy", Method: http.MethodPost, Path: "/policies", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Create a policy",
		Description: "With kind `library` the policy is a module that controls import. A library has no resource, bouncer, test cases or actions; if its package already has an active library in the environment: 409. A policy that does not compile is refused with the same errors as in validate (`invalid_policy`). A policy that is created active is deployed at once. Over the tenant's `max_policies`: 403 `limit_exceeded`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[policy.Draft]) (*policyCreatedOut, error) {
		p, err := h.Policies.Create(ctx, sc, in.Body)
		return &policyCreatedOut{rest.ETag(p.Version), PolicyCreated{p.ID, p.Name, p.Status, p.Environment, p.CreatedAt, createdMessage(p), p.Warnings}}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-policy", Method: http.MethodGet, Path: "/policies/{policy_id}", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "Read a policy",
	}, func(ctx context.Context, sc scope.Scope, in *PolicyPath) (*policyOut, error) {
		p, err := h.Policies.Get(ctx, sc, in.ID)
		return &policyOut{rest.ETag(p.Version), p}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-policy", Method: http.MethodPut, Path: "/policies/{policy_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a policy",
		Description: "Members that are not sent keep their value. Every change creates a new version. A draft can become active, and a policy can go from active to inactive and back; nothing can become a draft again (409). Only a promotion changes the environment. A change to a library must leave all policies that use it compiling: 409 `library_in_use` when they would lose it, 422 `library_breaks_users` with each error in them.",
	}, func(ctx context.Context, sc scope.Scope, in *policyUpdateIn, version int64) (*policyOut, error) {
		p, err := h.Policies.Update(ctx, sc, in.ID, in.Body, version)
		return &policyOut{rest.ETag(p.Version), p}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-policy", Method: http.MethodDelete, Path: "/policies/{policy_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Delete a policy",
		Description: "The policy disappears from reads and decisions at once. It can be restored, unless it is deleted for good. A library that policies use: 409 `library_in_use`.",
	}, func(ctx context.Context, sc scope.Scope, in *policyDeleteIn, version int64) (*rest.JSON[PolicyDeleted], error) {
		at, err := h.Policies.Delete(ctx, sc, in.ID, in.Hard, version)
		message := "Policy deleted successfully"
		if in.Hard {
			message = "Policy permanently deleted"
		}
		return rest.Answer(PolicyDeleted{message, in.ID, at.UTC()}, err)
	})
	rest.Register(r, rest.Op{
		ID: "restore-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/restore", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Restore a deleted policy",
		Description: "Restores the policy as it was. If its resource or bouncer has been removed since, the policy is restored inactive and without links. A policy that is not deleted: 409.",
	}, func(ctx context.Context, sc scope.Scope, in *PolicyPath) (*policyOut, error) {
		p, err := h.Policies.Restore(ctx, sc, in.ID)
		return &policyOut{rest.ETag(p.Version), p}, err
	})
}
