package decisions

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// AuthZENEntity documents a subject or resource of AuthZEN.
type AuthZENEntity struct {
	Type       string         `json:"type" doc:"Type of the entity; a subject of type user is a stored user" example:"user"`
	ID         string         `json:"id,omitempty" doc:"For a user: the id or user name. For a resource: its name, integer id or path. Absent for the entity that is searched for" example:"ada"`
	Properties map[string]any `json:"properties,omitempty" doc:"More facts; controls read them as attributes"`
}

// AuthZENAction documents an action of AuthZEN.
type AuthZENAction struct {
	Name       string         `json:"name" doc:"The action; when its name is an HTTP method, it is the method of the request too" example:"read"`
	Properties map[string]any `json:"properties,omitempty" doc:"Further facts"`
}

// AuthZENRequest documents the body of an evaluation.
type AuthZENRequest struct {
	Subject  AuthZENEntity  `json:"subject,omitzero" doc:"The subject"`
	Action   AuthZENAction  `json:"action,omitzero" doc:"The action; absent in a search for actions"`
	Resource AuthZENEntity  `json:"resource,omitzero" doc:"The resource"`
	Context  map[string]any `json:"context,omitempty" doc:"Facts about the request. With explain true, the answer's context holds the reason"`
}

// AuthZENRequests documents the body of several evaluations.
type AuthZENRequests struct {
	AuthZENRequest
	Evaluations []AuthZENRequest `json:"evaluations,omitempty" maxItems:"1000" doc:"The requests. Where an item lacks subject, action, resource or context, the value beside the list applies"`
	Options     struct {
		Semantic string `json:"evaluations_semantic,omitempty" enum:"execute_all,deny_on_first_deny,permit_on_first_permit" doc:"Whether to stop at the first denial or at the first permission; execute_all by default"`
	} `json:"options,omitzero" doc:"How the list is evaluated"`
}

// AuthZENDecisions documents the answer to several evaluations.
type AuthZENDecisions struct {
	Evaluations []authzen.Decision `json:"evaluations" doc:"Decisions in the order of the requests, up to the one that stopped the call"`
}

// AuthZENSearch documents the body of a search.
type AuthZENSearch struct {
	AuthZENRequest
	Page struct {
		Limit int    `json:"limit,omitempty" minimum:"1" doc:"Largest number of results; at most 1000"`
		Token string `json:"token,omitempty" doc:"next_token of the previous page"`
	} `json:"page,omitzero" doc:"The page to return"`
}

// authzen registers the AuthZEN Authorization API 1.0, for clients that do not use our API.
func (h *Handler) authzen(r *rest.Router) {
	tags := []string{"AuthZEN"}
	op := func(id, path, summary, description string) rest.Op {
		return rest.Op{
			ID: id, Method: http.MethodPost, Path: "/access/v1/" + path, Reach: rest.ReachEnvironment, Root: true, Permission: "decisions:read", Tags: tags,
			Summary: summary, Description: description, Errors: []int{http.StatusServiceUnavailable},
		}
	}
	body, answer := reflect.TypeFor[AuthZENRequest](), reflect.TypeFor[authzen.Decision]()
	one := op("authzen-evaluation", "evaluation", "Decide one AuthZEN request",
		"Makes the same decision as /decisions/evaluate. Controls read the subject as input.user, the resource as input.resource with its properties as attributes, and the original request as input.authzen. A denial is a 200. Error bodies are plain text.")
	one.Agents = true
	rest.Raw(r, one, rest.RawDocs{Params: reflect.TypeFor[environmentParams](), Request: body, Response: answer}, h.authzenEvaluation)
	several := op("authzen-evaluations", "evaluations", "Decide several AuthZEN requests",
		"All items are decided against one snapshot of the controls. An item that cannot be decided is denied, and its context holds the error. Without evaluations, the answer is that of a single evaluation.")
	several.MaxBody, several.Agents = maxBulkBody, true
	rest.Raw(r, several, rest.RawDocs{Params: reflect.TypeFor[environmentParams](), Request: reflect.TypeFor[AuthZENRequests](), Response: reflect.TypeFor[AuthZENDecisions]()}, h.authzenEvaluations)
	for _, search := range []struct {
		what, summary, description string
		// also is the permission for the data in the results. Users belong to the tenant, not to
		// one environment, so a search for them has the reach of the operations on users.
		also  scope.Permission
		reach rest.Reach
	}{
		{authzen.Subjects, "Search subjects", "Lists the stored users who may perform the action. Only subjects of type user are stored, so any other type finds none. The answer names users, so the caller also needs users:read, and a key for a single environment is refused.", "users:read", rest.ReachTenant},
		{authzen.Resources, "Search resources", "Lists the registered resources of this type on which the subject may perform the action. The answer names resources, so the caller also needs resources:read.", "resources:read", rest.ReachEnvironment},
		{authzen.Actions, "Search actions", "Lists what the subject may do with this resource. The search tries the actions that controls compare with, and the methods of resources.", "", rest.ReachEnvironment},
	} {
		o := op("authzen-search-"+search.what, "search/"+search.what, search.summary, search.description+" The search does not record what it tries as decisions.")
		o.Also, o.Reach = search.also, search.reach
		rest.Raw(r, o, rest.RawDocs{Params: reflect.TypeFor[environmentParams](), Request: reflect.TypeFor[AuthZENSearch](), Response: reflect.TypeFor[authzen.Found]()},
			func(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
				h.authzenSearch(w, req, sc, search.what)
			})
	}
}

// answerAuthZEN reads the body, and writes the result of ask.
func (h *Handler) answerAuthZEN(w http.ResponseWriter, req *http.Request, sc scope.Scope, ask func(ctx context.Context, body value.Value) (any, error)) {
	body, err := h.readValue(w, req, sc)
	var out any
	if err == nil {
		out, err = ask(req.Context(), body)
	}
	if err != nil {
		rest.Fail(w, err)
		return
	}
	rest.WriteJSON(w, http.StatusOK, out)
}

func (h *Handler) authzenEvaluation(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	h.answerAuthZEN(w, req, sc, func(ctx context.Context, body value.Value) (any, error) {
		return h.AuthZEN.Evaluate(ctx, sc, body)
	})
}

func (h *Handler) authzenEvaluations(w http.ResponseWriter, req *http.Request, sc scope.Scope) {
	h.answerAuthZEN(w, req, sc, func(ctx context.Context, body value.Value) (any, error) {
		list, one, several, err := h.AuthZEN.Evaluations(ctx, sc, body)
		if !several {
			return one, err
		}
		return AuthZENDecisions{list}, err
	})
}

func (h *Handler) authzenSearch(w http.ResponseWriter, req *http.Request, sc scope.Scope, what string) {
	h.answerAuthZEN(w, req, sc, func(ctx context.Context, body value.Value) (any, error) {
		return h.AuthZEN.Search(ctx, sc, what, body)
	})
}
