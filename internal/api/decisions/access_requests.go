package decisions

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// AccessRequestPath names a request for access.
type AccessRequestPath struct {
	ID int64 `path:"request_id" minimum:"1" doc:"Id of the request"`
	rest.InEnvironment
}

type accessListIn struct {
	rest.Page
	rest.InEnvironment
	Status string `query:"status" enum:"pending,approved,denied,revoked,expired,withdrawn" doc:"Only requests in this state"`
	Mine   bool   `query:"mine" doc:"Only requests that the caller filed, or that are for them"`
}

type accessFileIn struct {
	rest.InEnvironment
	Body access.Draft
}

type accessApproveIn struct {
	AccessRequestPath
	Body access.Approval
}

type accessRefuseIn struct {
	AccessRequestPath
	Body access.Refusal
}

// accessRequests registers requests for access after denials.
func (h *Handler) accessRequests(r *rest.Router) {
	op := func(id, method, path, summary, description string, permission scope.Permission) rest.Op {
		return rest.Op{
			ID: id, Method: method, Path: "/access/v1/requests" + path, Root: true, Reach: rest.ReachEnvironment, Permission: permission,
			Tags: []string{"AuthZEN"}, Summary: summary, Description: description,
		}
	}
	// own lets the keys of AI agents read and file their own requests.
	own := func(o rest.Op) rest.Op { o.Agents = true; return o }
	rest.Register(r, own(op("list-access-requests", http.MethodGet, "", "List requests for access",
		"Newest first. Callers without resources:write and audit:read see the requests that they filed, or that are for them.", "decisions:read")),
		func(ctx context.Context, sc scope.Scope, in *accessListIn) (*rest.JSON[access.Page], error) {
			return rest.Answer(h.Access.List(ctx, sc, access.Filter{Status: in.Status, Skip: int64(in.Skip), Limit: int64(in.Limit)}, in.Mine))
		})
	file := op("create-access-request", http.MethodPost, "", "Request access",
		"Asks approvers for access to a resource. Its attribute `request_access` is true, or the annotation of a control that decides about it. People and AI agents request access for themselves, API keys for the users of an application. Notification channels hear of it. A request that nobody decides lapses after a week, or after the tenant's `access_request_hours`. The environment is production unless the request names one.", "decisions:read")
	file.Status, file.Creates, file.Record, file.Errors = http.StatusCreated, true, reflect.TypeFor[access.Request](), []int{http.StatusNotFound, http.StatusConflict}
	rest.Register(r, own(file), func(ctx context.Context, sc scope.Scope, in *accessFileIn) (*rest.JSON[access.Request], error) {
		return rest.Answer(h.Access.File(ctx, sc, in.Body))
	})
	glass := op("open-break-glass-grant", http.MethodPost, "/break-glass", "Open a grant in an emergency",
		"Nobody requested it first, and the resource need not let its denials be requested. `duration_seconds` is required, at most a day. Notification channels hear of it as critical. Only a person who is signed in opens one, and not for themselves. Revoke it to end it early. The environment is production unless the request names one.", access.Approving)
	glass.Status, glass.Creates, glass.Record, glass.Errors = http.StatusCreated, true, reflect.TypeFor[access.Request](), []int{http.StatusNotFound}
	rest.Register(r, glass, func(ctx context.Context, sc scope.Scope, in *accessFileIn) (*rest.JSON[access.Request], error) {
		return rest.Answer(h.Access.BreakGlass(ctx, sc, in.Body))
	})
	rest.Register(r, own(op("get-access-request", http.MethodGet, "/{request_id}", "Read a request for access", "", "decisions:read")),
		func(ctx context.Context, sc scope.Scope, in *AccessRequestPath) (*rest.JSON[access.Request], error) {
			return rest.Answer(h.Access.Get(ctx, sc, in.ID))
		})
	back := own(op("withdraw-access-request", http.MethodPost, "/{request_id}/withdraw", "Withdraw a request for access",
		"Takes back a request that waits for a decision. Whoever filed it can, and the person or AI agent whom it is for.", "decisions:read"))
	back.Errors = []int{http.StatusConflict}
	rest.Register(r, back, func(ctx context.Context, sc scope.Scope, in *AccessRequestPath) (*rest.JSON[access.Request], error) {
		return rest.Answer(h.Access.TakeBack(ctx, sc, in.ID))
	})
	decide := func(id, path, summary, description string) rest.Op {
		o := op(id, http.MethodPost, "/{request_id}/"+path, summary, description, access.Approving)
		o.Errors, o.Only = []int{http.StatusConflict}, rest.People
		return o
	}
	rest.Register(r, decide("approve-access-request", "approve", "Grant the requested access",
		"The grant begins at once and ends by itself. Controls read it as data.grants.<subject>. Only a person who is signed in decides, and nobody their own request."),
		func(ctx context.Context, sc scope.Scope, in *accessApproveIn) (*rest.JSON[access.Request], error) {
			return rest.Answer(h.Access.Approve(ctx, sc, in.ID, in.Body))
		})
	rest.Register(r, decide("deny-access-request", "deny", "Deny a request for access", "Only a person who is signed in decides, and nobody their own request."),
		func(ctx context.Context, sc scope.Scope, in *accessRefuseIn) (*rest.JSON[access.Request], error) {
			return rest.Answer(h.Access.Deny(ctx, sc, in.ID, in.Body))
		})
	revoke := decide("revoke-access-grant", "revoke", "End a grant before its time", "Effective at once on servers, and on each bouncer when it gets its next bundle.")
	revoke.Only = rest.Everybody
	rest.Register(r, revoke,
		func(ctx context.Context, sc scope.Scope, in *accessRefuseIn) (*rest.JSON[access.Request], error) {
			return rest.Answer(h.Access.Revoke(ctx, sc, in.ID, in.Body))
		})
}
