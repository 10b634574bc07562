package controls

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type policyValidateIn struct {
	Body struct {
		RegoCode string `json:"rego_code" doc:"One Rego v1 module"`
	}
}

// PolicyTestRequest is the body of POST /policies/{policy_id}/test.
type PolicyTestRequest struct {
	TestCases []policy.TestCase `json:"test_cases,omitempty" maxItems:"1000" doc:"Cases to run; absent: the stored ones"`
}

type policyTestIn struct {
	PolicyPath
	Body *PolicyTestRequest
}

type policyPromoteIn struct {
	PolicyPath
	rest.IfMatch
	Body *policy.Promotion
}

// PolicyPromoted is the answer to POST /policies/{policy_id}/promote.
type PolicyPromoted struct {
	Message     string    `json:"message" doc:"What was done"`
	PolicyID    int64     `json:"policy_id" doc:"Id of the policy; it stays the same"`
	Environment scope.Env `json:"environment" enum:"production" doc:"Its environment now"`
	PromotedAt  time.Time `json:"promoted_at" doc:"When it was promoted"`

	Impact   *policy.Impact      `json:"impact,omitempty" doc:"The result of the impact gate; absent when it is off"`
	Replaced []policy.Superseded `json:"replaced,omitempty" doc:"With replace: the policies that it replaced. To go back, reinstate one of them"`
	Warnings []policy.Warning    `json:"warnings,omitempty" doc:"Warnings about what was done"`

	SandboxCopyID int64 `json:"sandbox_copy_id,omitempty" doc:"With keep_in_sandbox: the id of the copy in sandbox"`
}

type policyPromotedOut struct {
	ETag string `header:"ETag" doc:"Version of the policy"`
	Body PolicyPromoted
}

type policyReinstateIn struct {
	PolicyPath
	rest.IfMatch
	Body *policy.Reinstatement
}

// PolicyReinstated is the answer to POST /policies/{policy_id}/reinstate.
type PolicyReinstated struct {
	Message     string    `json:"message" doc:"What was done"`
	PolicyID    int64     `json:"policy_id" doc:"Id of the policy"`
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"Its environment"`
	Version     int64     `json:"version" doc:"Its version"`

	Replaced []policy.Superseded `json:"replaced" doc:"The policies that it replaced"`
	Warnings []policy.Warning    `json:"warnings,omitempty" doc:"Warnings about what was done"`
}

type policyReinstatedOut struct {
	ETag string `header:"ETag" doc:"Version of the policy"`
	Body PolicyReinstated
}

// trials registers the operations that validate, test and promote.
func (h *Handler) trials(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "validate-policy", Method: http.MethodPost, Path: "/policies/validate", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "Check Rego source",
		Description: "Answers 200 whether the source compiles or not, with the linter's warnings, or with errors and their positions. A package under lib is checked as a library. A source that takes too much time or memory to check: 422 `evaluation_limit`.",
	}, func(ctx context.Context, sc scope.Scope, in *policyValidateIn) (*rest.JSON[policy.Validation], error) {
		return rest.Answer(h.Policies.Validate(ctx, sc, in.Body.RegoCode))
	})
	rest.Register(r, rest.Op{
		ID: "test-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/test", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Run test cases against a policy",
		Description: "Without a body, or without test_cases, the stored cases are run. expected is compared with whether access is granted (ALLOW or MASK). The control reads the same data as decisions of its environment do; the member data of a case replaces it. A control that reads more than 16 MiB of data, or takes too much time or memory: 422 `evaluation_limit`. A library decides nothing and has no test cases: 409 `is_library`.",
	}, func(ctx context.Context, sc scope.Scope, in *policyTestIn) (*rest.JSON[policy.TestReport], error) {
		var cases []policy.TestCase
		if in.Body != nil {
			cases = in.Body.TestCases
		}
		return rest.Answer(h.Policies.Test(ctx, sc, in.ID, cases))
	})
	rest.RegisterChange(r, rest.Op{
		ID: "promote-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/promote", Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Promote a policy to production",
		Description: "The policy keeps its id. Its stored test cases must pass with production's data as it is before the promotion (422 with the failures), and the license must allow it (403). With the tenant's setting four_eyes, approver must name an active person with policies:write other than the caller (422). With the setting impact_gate, production's recorded decisions are replayed first: warn returns the figures in the answer, block refuses above the threshold (422 `impact_blocked`, with the figures and samples). The policy's resource becomes the production one of the same type, name and path, which is copied if it does not exist. Its bouncer becomes the production one of the same name, else null. With replace, production's active controls with the same name for the same resource (for a library: the active one of its package) become inactive in the same transaction, and the impact gate counts only the difference; a policy that is not active replaces nothing (409 `not_active`). Without replace they stay active beside it, and warnings lists them. warnings also says when the policy is not active and so enforces nothing, when it is tenant-wide, and when resources of sandbox have no active control left. With keep_in_sandbox, a copy of the same name stays in sandbox with its own id; it counts towards the tenant's limit (403 `limit_exceeded`). A policy that is already in production: 409. A library that it uses and that exists only in sandbox: 409 `libraries_not_promoted`.",
	}, func(ctx context.Context, sc scope.Scope, in *policyPromoteIn, version int64) (*policyPromotedOut, error) {
		var promotion policy.Promotion
		if in.Body != nil {
			promotion = *in.Body
		}
		p, err := h.Policies.Promote(ctx, sc, in.ID, promotion, version)
		if err != nil {
			return nil, err
		}
		return &policyPromotedOut{rest.ETag(p.Version), PolicyPromoted{"Policy promoted to production", p.ID, p.Environment, p.PromotedAt.UTC(), p.Impact, p.Replaced, p.Warnings, p.SandboxCopyID}}, nil
	})
	rest.RegisterChange(r, rest.Op{
		ID: "reinstate-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/reinstate", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Reinstate a replaced policy",
		Description: "Reverses a promotion with replace. The policy becomes active, and the active ones in its place become inactive in the same transaction: those with the same name for the same resource; for a library, the one of its package. Call it for one of those to undo this. It has the same requirements as an update that activates a policy, so that a rollback is quick. If there is nothing to change, nothing changes.",
	}, func(ctx context.Context, sc scope.Scope, in *policyReinstateIn, version int64) (*policyReinstatedOut, error) {
		var r policy.Reinstatement
		if in.Body != nil {
			r = *in.Body
		}
		p, err := h.Policies.Reinstate(ctx, sc, in.ID, r, version)
		if err != nil {
			return nil, err
		}
		return &policyReinstatedOut{rest.ETag(p.Version), PolicyReinstated{"Policy reinstated", p.ID, p.Environment, p.Version, append([]policy.Superseded{}, p.Replaced...), p.Warnings}}, nil
	})
}
