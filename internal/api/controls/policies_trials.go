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

type policyValidationOut struct{ Body policy.Validation }

// PolicyTestRequest is the body of POST /policies/{policy_id}/test.
type PolicyTestRequest struct {
	TestCases []policy.TestCase `json:"test_cases,omitempty" maxItems:"1000" doc:"Cases to run; absent: the stored ones"`
}

type policyTestIn struct {
	PolicyPath
	Body *PolicyTestRequest
}

type policyTestOut struct{ Body policy.TestReport }

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

	Impact   *policy.Impact      `json:"impact,omitempty" doc:"What the impact gate measured; absent where it is off"`
	Replaced []policy.Superseded `json:"replaced,omitempty" doc:"With replace: the policies that it took the place of. To go back, reinstate one of them"`
	Warnings []policy.Warning    `json:"warnings,omitempty" doc:"What was done as asked and may surprise"`

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

	Replaced []policy.Superseded `json:"replaced" doc:"The policies that it took the place of"`
	Warnings []policy.Warning    `json:"warnings,omitempty" doc:"What was done as asked and may surprise"`
}

type policyReinstatedOut struct {
	ETag string `header:"ETag" doc:"Version of the policy"`
	Body PolicyReinstated
}

// trials registers validating, testing and promoting.
func (h *Handler) trials(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "validate-policy", Method: http.MethodPost, Path: "/policies/validate", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "Check Rego source",
		Description: "Answers 200 whether it compiles or not, as a library where its package is under lib: with the linter's warnings, or with errors and their places. A source that takes too long or too much memory to check: 422 `evaluation_limit`.",
	},
		func(ctx context.Context, sc scope.Scope, in *policyValidateIn) (*policyValidationOut, error) {
			v, err := h.Policies.Validate(ctx, sc, in.Body.RegoCode)
			return &policyValidationOut{v}, err
		})
	rest.Register(r, rest.Op{
		ID: "test-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/test", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Run test cases against a policy",
		Description: "Without a body, or without test_cases in it, the stored cases are run. expected is compared with whether access is granted (ALLOW or MASK). Below data the control finds what decisions of its environment do; the member data of a case takes its place. A control that reads more than 16 MiB of data, or takes too long or too much memory: 422 `evaluation_limit`. A library decides nothing and has no test cases: 409 `is_library`.",
	},
		func(ctx context.Context, sc scope.Scope, in *policyTestIn) (*policyTestOut, error) {
			var cases []policy.TestCase
			if in.Body != nil {
				cases = in.Body.TestCases
			}
			report, err := h.Policies.Test(ctx, sc, in.ID, cases)
			return &policyTestOut{report}, err
		})
	rest.Register(r, rest.Op{
		ID: "promote-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/promote", Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Promote a policy to production",
		Description: "The policy keeps its id. Its stored test cases must pass over production's data, as it is before (422 with the failures), the license must allow it (403), and where the tenant's setting four_eyes is on, approver names an active person with policies:write other than the caller (422). With the setting impact_gate, production's recorded decisions are replayed first: warn tells the figures in the answer, block refuses over the threshold (422 `impact_blocked`, with the figures and samples). Its resource becomes the production one of the same type, name and path, copied when there is none; its bouncer the production one of the same name, else null. With replace, production's active controls of the same name for the same resource (for a library: the active one of its package) become inactive in the same transaction, and the impact gate counts only what differs; a policy that is not active replaces nothing (409 `not_active`). Without it they stay active beside it, and warnings says so. It also says when the policy is not active and so enforces nothing, when it is tenant-wide, and when resources of sandbox have no active control left. With keep_in_sandbox a copy of the same name stays in sandbox, with an id of its own; it counts towards the tenant's limit (403 `limit_exceeded`). Already in production: 409, and 409 `libraries_not_promoted` while a library that it uses is in sandbox only.",
	},
		func(ctx context.Context, sc scope.Scope, in *policyPromoteIn) (*policyPromotedOut, error) {
			var promotion policy.Promotion
			if in.Body != nil {
				promotion = *in.Body
			}
			p, err := rest.Matching(in.IfMatch.IfMatch, func(version int64) (policy.Policy, error) {
				return h.Policies.Promote(ctx, sc, in.ID, promotion, version)
			})
			if err != nil {
				return nil, err
			}
			return &policyPromotedOut{rest.ETag(p.Version), PolicyPromoted{"Policy promoted to production", p.ID, p.Environment, p.PromotedAt.UTC(), p.Impact, p.Replaced, p.Warnings, p.SandboxCopyID}}, nil
		})
	rest.Register(r, rest.Op{
		ID: "reinstate-policy", Method: http.MethodPost, Path: "/policies/{policy_id}/reinstate", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Put a policy back in its place",
		Description: "The way back from a promotion with replace: the policy becomes active, and in the same transaction the active ones in its place inactive: those of the same name for the same resource, for a library the one of its package. Called for one of those, it goes forth again. It is asked no more than an update that activates a policy, so that going back is quick; where nothing is to be done, nothing is.",
	},
		func(ctx context.Context, sc scope.Scope, in *policyReinstateIn) (*policyReinstatedOut, error) {
			var r policy.Reinstatement
			if in.Body != nil {
				r = *in.Body
			}
			p, err := rest.Matching(in.IfMatch.IfMatch, func(version int64) (policy.Policy, error) {
				return h.Policies.Reinstate(ctx, sc, in.ID, r, version)
			})
			if err != nil {
				return nil, err
			}
			return &policyReinstatedOut{rest.ETag(p.Version), PolicyReinstated{"Policy reinstated", p.ID, p.Environment, p.Version, append([]policy.Superseded{}, p.Replaced...), p.Warnings}}, nil
		})
}
