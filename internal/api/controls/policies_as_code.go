package controls

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxCodeBody is the largest total size of the files of a repository, in bytes.
const maxCodeBody = 10 << 20

type policyCodeFilesIn struct {
	Environment string `query:"environment" enum:"sandbox,production" doc:"Environment to read from; absent: that of the key, else sandbox"`
	Name        string `query:"name" maxLength:"200" doc:"Only controls whose name contains this text, ignoring case"`
}

type policyCodeDeploymentIn struct {
	ID string `path:"deployment_id" maxLength:"64" doc:"Id of the deployment"`
}

// policiesAsCode registers controls as files of an author's repository.
func (h *Handler) policiesAsCode(r *rest.Router) {
	tags := []string{"Policies as code"}
	rest.Register(r, rest.Op{
		ID: "validate-policy-files", Method: http.MethodPost, Path: "/policies-as-code/validate", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags, MaxBody: maxCodeBody,
		Summary:     "Check the files of a repository",
		Description: "Answers 200 whether the files are valid or not: with the linter's warnings, or with errors, each with file, line and column. Links in gatehouse.yaml must name something that exists in sandbox. Files that take too much time or memory to check: 422 `evaluation_limit`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[policycode.Request]) (*rest.JSON[controlfile.Validation], error) {
		return rest.Answer(h.PolicyCode.Validate(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "test-policy-files", Method: http.MethodPost, Path: "/policies-as-code/test", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags, MaxBody: maxCodeBody,
		Summary:     "Run the tests of a repository",
		Description: "Runs the Rego tests (`test_…` rules of `*_test.rego`), with the coverage of each control, and the test cases of gatehouse.yaml. Rego tests can use the controls beside them and those that they import (`import data.<package>`), and read `data.resources` and `data.pip` as set by `with`; cases that set no data read that of sandbox. Answers 200 whether they pass or not. Tests that take too much time or memory: 422 `evaluation_limit`.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[policycode.Request]) (*rest.JSON[controlfile.TestReport], error) {
		return rest.Answer(h.PolicyCode.Test(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "deploy-policy-files", Method: http.MethodPost, Path: "/policies-as-code/deploy", Reach: rest.ReachSandbox, Permission: "policies:write", Tags: tags, MaxBody: maxCodeBody, Creates: true,
		Errors:      []int{http.StatusConflict},
		Summary:     "Deploy the files of a repository to sandbox",
		Description: "Deploys all controls or none, in one transaction. Controls are matched by name: the name in gatehouse.yaml, else the path without .rego. New controls become active unless gatehouse.yaml says otherwise; for existing ones, what it leaves out does not change. Errors in files: 422 `invalid_policy`; failing tests: 422 `tests_failed`. With dry_run, the answer shows what would be done, with diffs. To get controls to production, promote them.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[policycode.Request]) (*rest.JSON[policycode.Deployment], error) {
		return rest.Answer(h.PolicyCode.Deploy(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-policy-deployment", Method: http.MethodGet, Path: "/policies-as-code/deploy/{deployment_id}", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary: "Read a deployment", Description: "The answer to the deployment.",
	}, func(ctx context.Context, sc scope.Scope, in *policyCodeDeploymentIn) (*rest.JSON[policycode.Deployment], error) {
		return rest.Answer(h.PolicyCode.Get(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "drift-of-policy-files", Method: http.MethodPost, Path: "/policies-as-code/drift", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags, MaxBody: maxCodeBody,
		Summary:     "Compare a repository with an environment",
		Description: "Lists the controls that differ: those that are only in the repository, that were changed in it, that were changed in the service other than by a deployment, or that were deployed from code and are no longer in the repository. Members that gatehouse.yaml leaves out are not compared.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[policycode.Request]) (*rest.JSON[policycode.Drift], error) {
		return rest.Answer(h.PolicyCode.Drift(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "export-policy-files", Method: http.MethodGet, Path: "/policies-as-code/files", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "Export controls as files",
		Description: "The controls of an environment as files with their gatehouse.yaml, in the form that a deployment takes: at the paths from which they were deployed, the others in directories of their own. More than 10 MiB: 422; use the name filter.",
	}, func(ctx context.Context, sc scope.Scope, in *policyCodeFilesIn) (*rest.JSON[policycode.Export], error) {
		return rest.Answer(h.PolicyCode.Export(ctx, sc, scope.Env(in.Environment), in.Name))
	})
}
