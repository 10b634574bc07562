package authzen

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Decision is the answer to one evaluation. It has a Context if the request's context has
// explain true, if the decision masks, if access may be requested after a denial, or if an
// item of several has an error.
type Decision struct {
	Decision bool             `json:"decision" doc:"Whether access is granted"`
	Context  *DecisionContext `json:"context,omitempty" doc:"The reason, when the request's context has explain true; the mask, when the decision masks data; request_access, after a denial that can be requested; the error, when the item could not be decided"`
}

// DecisionContext has the details of a decision.
type DecisionContext struct {
	Reason        string                  `json:"reason,omitempty" doc:"The reason for the decision"`
	Effect        string                  `json:"effect,omitempty" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"The effect that the controls returned"`
	PolicyName    string                  `json:"policy_name,omitempty" doc:"The control that decided"`
	Mask          []masking.MaskRule      `json:"mask,omitempty" doc:"What the PEP must mask in the data that it returns"`
	RequestAccess *decision.RequestAccess `json:"request_access,omitempty" doc:"After a denial that can be requested: what to send to /access/v1/requests, with a reason"`
	Error         *ItemError              `json:"error,omitempty" doc:"Why the item could not be decided"`
}

// ItemError is the error of one item of several.
type ItemError struct {
	Status  int    `json:"status" example:"400" doc:"The status that this item would have had on its own"`
	Message string `json:"message" doc:"What is wrong, in words"`
}

// The values of evaluations_semantic.
const (
	executeAll          = "execute_all"
	denyOnFirstDeny     = "deny_on_first_deny"
	permitOnFirstPermit = "permit_on_first_permit"
)

// Evaluate decides one request. Fault: BadRequest, which lists all errors in the request.
func (s *Service) Evaluate(ctx context.Context, sc scope.Scope, body value.Value) (Decision, error) {
	if body.Kind() != value.ObjectKind {
		return Decision{}, fault.New(fault.BadRequest, "invalid_request", "the body must be an object with subject, action and resource")
	}
	p := partsOf(body)
	if err := p.check(forEvaluation); err != nil {
		return Decision{}, err
	}
	set, err := s.Decisions.Snapshot(ctx, sc)
	if err != nil {
		return Decision{}, err
	}
	req, err := request(set, p)
	if err != nil {
		return Decision{}, err
	}
	var out Decision
	err = s.Decisions.DecideBatch(ctx, sc, set, []*rego.Request{req}, s.Subject, func(_ int, d *rego.Decision) bool {
		out = answer(d, req, explains(p))
		return true
	})
	return out, err
}

// Evaluations decides several requests. If the list is absent or empty, it decides the body as
// one request, like Evaluate, and several is false.
func (s *Service) Evaluations(ctx context.Context, sc scope.Scope, body value.Value) (list []Decision, one Decision, several bool, err error) {
	items := body.Get("evaluations")
	if body.Kind() == value.ObjectKind && (!items.Defined() || items.Kind() == value.ArrayKind && len(items.Elems()) == 0) {
		one, err = s.Evaluate(ctx, sc, body)
		return nil, one, false, err
	}
	semantic, err := semanticOf(body, items)
	if err != nil {
		return nil, one, true, err
	}
	set, err := s.Decisions.Snapshot(ctx, sc)
	if err != nil {
		return nil, one, true, err
	}
	defaults := partsOf(body)
	requests := make([]*rego.Request, len(items.Elems()))
	wrong := make([]error, len(requests))
	explain := make([]bool, len(requests))
	for i, item := range items.Elems() {
		if item.Kind() != value.ObjectKind {
			wrong[i] = fault.New(fault.BadRequest, "invalid_request", "must be an object")
			continue
		}
		p := partsOf(item).or(defaults)
		explain[i] = explains(p)
		if wrong[i] = p.check(forEvaluation); wrong[i] != nil {
			continue
		}
		requests[i], wrong[i] = request(set, p)
	}
	err = s.Decisions.DecideBatch(ctx, sc, set, requests, s.Subject, func(i int, d *rego.Decision) bool {
		a := refused(wrong[i])
		if d != nil {
			a = answer(d, requests[i], explain[i])
		}
		list = append(list, a)
		return !(semantic == denyOnFirstDeny && !a.Decision || semantic == permitOnFirstPermit && a.Decision)
	})
	return list, one, true, err
}

// semanticOf reads options.evaluations_semantic and checks the list.
func semanticOf(body, items value.Value) (string, error) {
	if items.Kind() != value.ArrayKind {
		return "", fault.New(fault.BadRequest, "invalid_request", "/evaluations must be an array")
	}
	if n := len(items.Elems()); n > decision.MaxBulk {
		return "", fault.Newf(fault.BadRequest, "invalid_request", "/evaluations has %d items; at most %d are decided in one call", n, decision.MaxBulk)
	}
	v := body.Get("options").Get("evaluations_semantic")
	if !v.Defined() || v.IsNull() {
		return executeAll, nil
	}
	switch name, _ := v.Str(); name {
	case executeAll, denyOnFirstDeny, permitOnFirstPermit:
		return name, nil
	}
	return "", fault.New(fault.BadRequest, "invalid_request", "/options/evaluations_semantic must be execute_all, deny_on_first_deny or permit_on_first_permit")
}

// explains reports whether the caller asks for the reason.
func explains(p parts) bool {
	on, _ := p.context.Get("explain").Bool()
	return on
}

// answer returns a decision in AuthZEN's form. It has details only if the caller asks for them,
// if data must be masked, or if access may be requested.
func answer(d *rego.Decision, req *rego.Request, explain bool) Decision {
	out := Decision{Decision: d.Permit}
	if len(d.Mask) > 0 {
		out.Context = &DecisionContext{Mask: d.Mask, Effect: d.Effect.String()}
	}
	if explain {
		out.Context = &DecisionContext{Reason: d.Reason, Effect: d.Effect.String(), PolicyName: d.PolicyName, Mask: d.Mask}
	}
	if ask := decision.RequestAccessFor(d, req); ask != nil {
		if out.Context == nil {
			out.Context = &DecisionContext{}
		}
		out.Context.RequestAccess = ask
	}
	return out
}

// refused returns the answer to an item that cannot be decided: a denial with the error.
func refused(err error) Decision {
	message := "the item cannot be decided"
	if f, ok := errors.AsType[*fault.Error](err); ok {
		message = f.Message
	}
	return Decision{Context: &DecisionContext{Error: &ItemError{Status: 400, Message: message}}}
}
