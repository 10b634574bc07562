package editors

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/controlfile"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/ide"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// EditorARequest is the body of POST /ide-integration/editor-a.
type EditorARequest struct {
	Action        string             `json:"action" enum:"validate,test,deploy,get_templates" doc:"The action"`
	PolicyContent string             `json:"policy_content,omitempty" doc:"One Rego v1 module; not needed for get_templates" example:"package orders\n\nallow if input.user.id == \"ada\""`
	PolicyPath    string             `json:"policy_path,omitempty" maxLength:"512" doc:"Path of its file; on deploy, it identifies the control" example:"orders/access.rego"`
	WorkspaceID   string             `json:"workspace_id,omitempty" maxLength:"200" doc:"The editor's workspace; accepted and ignored"`
	Files         []controlfile.File `json:"files,omitempty" maxItems:"1000" doc:"The files beside it: tests (_test.rego), gatehouse.yaml, other controls"`
}

// EditorTemplate is a complete shipped control.
type EditorTemplate struct {
	ID          string `json:"id" doc:"Identifier" example:"RATE_LIMIT"`
	Title       string `json:"title" doc:"Short name for people"`
	Description string `json:"description" doc:"What the control does"`
	RegoCode    string `json:"rego_code" doc:"One Rego v1 module"`
}

// EditorAAnswer is the answer to POST /ide-integration/editor-a. Its members depend on the action.
type EditorAAnswer struct {
	Success    bool                    `json:"success" doc:"Always true; failures have an error body"`
	Valid      *bool                   `json:"valid,omitempty" doc:"validate: whether the module compiles"`
	Errors     []lang.Issue            `json:"errors" doc:"validate: compile errors, with line and column"`
	Warnings   []lang.Issue            `json:"warnings" doc:"validate: the linter's findings"`
	Results    *controlfile.TestReport `json:"results,omitempty" doc:"test: results and coverage"`
	Deployment *ide.Deployment         `json:"deployment,omitempty" doc:"deploy: what was done in sandbox"`
	Templates  []EditorTemplate        `json:"templates,omitempty" doc:"get_templates: the catalogue"`
}

// EditorBRequest is the body of POST /ide-integration/editor-b.
type EditorBRequest struct {
	Action        string     `json:"action" enum:"validate,get_suggestions,format" doc:"The action"`
	PolicyContent string     `json:"policy_content" doc:"One Rego v1 module"`
	ProjectPath   string     `json:"project_path,omitempty" maxLength:"1000" doc:"The editor's project; accepted and ignored"`
	FilePath      string     `json:"file_path,omitempty" maxLength:"1000" doc:"The file; accepted and ignored"`
	Position      *ide.Place `json:"position,omitempty" doc:"get_suggestions: position for completions; absent: the end"`
}

// EditorBAnswer is the answer to POST /ide-integration/editor-b.
type EditorBAnswer struct {
	Success     bool             `json:"success" doc:"Always true; failures have an error body"`
	Valid       bool             `json:"valid" doc:"Whether the module compiles"`
	Errors      []lang.Issue     `json:"errors" doc:"Compile errors, with line and column"`
	Warnings    []lang.Issue     `json:"warnings" doc:"The linter's findings"`
	Completions []ide.Completion `json:"completions" doc:"get_suggestions: what can be typed at the position"`
	Fixes       []ide.Fix        `json:"fixes" doc:"get_suggestions: changes that fix errors and warnings"`
	Formatted   *string          `json:"formatted,omitempty" doc:"format: the module as opa fmt formats it; absent where it does not parse"`
}

// EditorSessionRequest is the body of POST /ide-integration/editor-a-server.
type EditorSessionRequest struct {
	Action        string  `json:"action" enum:"sync,get_context" doc:"The action"`
	PolicyContent *string `json:"policy_content,omitempty" doc:"Required for sync: the text to store, up to 1 MiB; it may be empty"`
	SessionID     string  `json:"session_id,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9._:-]*$" doc:"The session; sync without it starts a new one"`
	FilePath      string  `json:"file_path,omitempty" maxLength:"1000" doc:"sync: the file that the text belongs to"`
}

// EditorSession is the answer to POST /ide-integration/editor-a-server.
type EditorSession struct {
	Success       bool            `json:"success" doc:"Always true; failures have an error body"`
	SessionID     string          `json:"session_id" doc:"The session"`
	Version       int64           `json:"version" doc:"How often it has been synced"`
	FilePath      string          `json:"file_path,omitempty" doc:"The file that the text belongs to"`
	PolicyContent string          `json:"policy_content,omitempty" doc:"get_context: the text"`
	Package       string          `json:"package,omitempty" doc:"Its package"`
	Attributes    []ide.Attribute `json:"attributes" doc:"Members of the input that it reads, with their types as far as their use shows"`
	Valid         bool            `json:"valid" doc:"Whether it compiles"`
	Errors        []lang.Issue    `json:"errors" doc:"Compile errors, with line and column"`
	Warnings      []lang.Issue    `json:"warnings" doc:"The linter's findings"`
	ExpiresAt     time.Time       `json:"expires_at" doc:"When it expires: 8 hours after the last sync. The newest 20 sessions of a person or key are kept"`
}

// EditorSettings are the settings for an editor.
type EditorSettings struct {
	Settings map[string]any `json:"settings" doc:"Open object. Known members: validate_on_save, validate_on_change, lint, format_on_save, test_before_deploy (boolean), environment (sandbox)"`
}

// EditorSettingsAnswer has the settings that apply to the caller.
type EditorSettingsAnswer struct {
	Success bool `json:"success" doc:"Always true; failures have an error body"`
	EditorSettings
}

// EditorStatus is the answer to GET /ide-integration/status.
type EditorStatus struct {
	Success bool                       `json:"success" doc:"Always true; failures have an error body"`
	Status  map[string]ide.Integration `json:"status" doc:"Source: editor-a, editor-b, editor-a-server, webhook, websocket, lsp"`
}

type (
	editorAIn       struct{ Body EditorARequest }
	editorAOut      struct{ Body EditorAAnswer }
	editorBIn       struct{ Body EditorBRequest }
	editorBOut      struct{ Body EditorBAnswer }
	editorSessionIn struct{ Body EditorSessionRequest }
	editorSetIn     struct{ Body EditorSettings }
	editorSetOut    struct{ Body EditorSettingsAnswer }
	editorStatusOut struct{ Body EditorStatus }
)

// ide registers the operations of editors and repositories.
func (h *Handler) ide(r *rest.Router) {
	tags := []string{"Editor integration"}
	rest.Register(r, rest.Op{
		ID: "editor-a", Method: http.MethodPost, Path: "/ide-integration/editor-a", Reach: rest.ReachEnvironment, Permission: "editor:write", Tags: tags,
		Summary:     "Validate, test or deploy from an editor",
		Description: "validate returns success even for a module that does not compile; the answer lists its errors. test runs the Rego tests in files, with coverage. deploy needs policies:write and deploys the control to sandbox, all files or none: errors in the files are a 400 that lists them. get_templates returns the catalogue.",
	}, h.editorA)
	rest.Register(r, rest.Op{
		ID: "editor-b", Method: http.MethodPost, Path: "/ide-integration/editor-b", Reach: rest.ReachEnvironment, Permission: "editor:read", Tags: tags,
		Summary:     "Validate or format in an editor, or ask for suggestions",
		Description: "get_suggestions returns completions for a position and fixes for problems anywhere in the module, each with the range that it replaces. format formats a module without changing what it means.",
	}, h.editorB)
	rest.Register(r, rest.Op{
		ID: "editor-a-server", Method: http.MethodPost, Path: "/ide-integration/editor-a-server", Reach: rest.ReachEnvironment, Permission: "editor:write", Tags: tags,
		Errors:      []int{http.StatusNotFound},
		Summary:     "Keep an editor's document on the server",
		Description: "sync stores the text and validates it; get_context returns it with what is known about it. A session belongs to the person or key that started it; a session of another owner, or an expired one: 404.",
	}, h.editorSession)
	for _, editor := range []string{"editor-a", "editor-b"} {
		rest.Register(r, rest.Op{
			ID: "get-" + editor + "-settings", Method: http.MethodGet, Path: "/ide-integration/" + editor + "/settings", Reach: rest.ReachSelf, Permission: "editor:read", Tags: tags,
			Summary: "Read the settings of an editor", Description: "The settings of the calling person or key: the defaults, overridden by what was set.",
		}, func(ctx context.Context, sc scope.Scope, _ *struct{}) (*editorSetOut, error) {
			v, err := h.IDE.Settings(ctx, sc, editor)
			return &editorSetOut{EditorSettingsAnswer{true, EditorSettings{v}}}, err
		})
	}
	rest.Register(r, rest.Op{
		ID: "set-editor-a-settings", Method: http.MethodPost, Path: "/ide-integration/editor-a/settings", Reach: rest.ReachSelf, Permission: "editor:write", Tags: tags,
		Summary: "Change the settings of an editor", Description: "Only the members that are sent change; null restores the default. At most 64 KiB.",
	}, func(ctx context.Context, sc scope.Scope, in *editorSetIn) (*editorSetOut, error) {
		v, err := h.IDE.SetSettings(ctx, sc, "editor-a", in.Body.Settings)
		return &editorSetOut{EditorSettingsAnswer{true, EditorSettings{v}}}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-editor-status", Method: http.MethodGet, Path: "/ide-integration/status", Reach: rest.ReachSelf, Permission: "editor:read", Tags: tags,
		Summary: "List the features for editors and repositories",
	}, func(context.Context, scope.Scope, *struct{}) (*editorStatusOut, error) {
		return &editorStatusOut{EditorStatus{true, h.IDE.Status()}}, nil
	})
}

func (h *Handler) editorA(ctx context.Context, sc scope.Scope, in *editorAIn) (*editorAOut, error) {
	b, out := in.Body, EditorAAnswer{Success: true}
	if b.Action != "get_templates" && b.PolicyContent == "" {
		return nil, fault.Invalidf("/policy_content", "policy_content is required for %s", b.Action)
	}
	files := ide.JoinFiles(b.PolicyPath, b.PolicyContent, b.Files)
	switch b.Action {
	case "validate":
		v, err := h.IDE.Validate(ctx, sc, b.PolicyContent)
		if err != nil {
			return nil, err
		}
		out.Valid, out.Errors, out.Warnings = &v.Valid, v.Errors, v.Warnings
	case "test":
		report, err := h.IDE.Test(ctx, sc, files)
		if err != nil {
			return nil, err
		}
		out.Results = &report
	case "deploy":
		d, err := h.IDE.Deploy(ctx, sc, files)
		if err != nil {
			return nil, err
		}
		out.Deployment = &d
	default:
		for _, t := range h.IDE.Templates {
			out.Templates = append(out.Templates, EditorTemplate{t.ID, t.Title, t.Doc, t.Source})
		}
	}
	return &editorAOut{out}, nil
}

func (h *Handler) editorB(ctx context.Context, sc scope.Scope, in *editorBIn) (*editorBOut, error) {
	if in.Body.Action == "validate" {
		v, err := h.IDE.Validate(ctx, sc, in.Body.PolicyContent)
		return &editorBOut{EditorBAnswer{Success: true, Valid: v.Valid, Errors: v.Errors, Warnings: v.Warnings}}, err
	}
	if in.Body.Action == "format" {
		v, err := h.IDE.Validate(ctx, sc, in.Body.PolicyContent)
		out := EditorBAnswer{Success: true, Valid: v.Valid, Errors: v.Errors, Warnings: v.Warnings}
		if text, ferr := assist.Format(in.Body.PolicyContent); ferr == nil {
			out.Formatted = &text
		}
		return &editorBOut{out}, err
	}
	g, err := h.IDE.Suggest(ctx, sc, in.Body.PolicyContent, in.Body.Position)
	return &editorBOut{EditorBAnswer{Success: true, Valid: len(g.Errors) == 0, Errors: g.Errors, Warnings: g.Warnings, Completions: g.Completions, Fixes: g.Fixes}}, err
}

func (h *Handler) editorSession(ctx context.Context, sc scope.Scope, in *editorSessionIn) (*rest.JSON[EditorSession], error) {
	b := in.Body
	var got ide.Synced
	var err error
	switch {
	case b.Action == "sync" && b.PolicyContent == nil:
		return nil, fault.Invalidf("/policy_content", "policy_content is required for sync")
	case b.Action == "sync":
		got, err = h.IDE.Sync(ctx, sc, b.SessionID, b.FilePath, *b.PolicyContent)
		got.Content = "" // the caller has sent it
	case b.SessionID == "":
		return nil, fault.Invalidf("/session_id", "session_id is required for get_context")
	default:
		got, err = h.IDE.Context(ctx, sc, b.SessionID)
	}
	if err != nil {
		return nil, err
	}
	return rest.Answer(EditorSession{
		Success: true, SessionID: got.ID, Version: got.Version, FilePath: got.FilePath, PolicyContent: got.Content, Package: got.Package(),
		Attributes: got.Attributes, Valid: got.Valid, Errors: got.Errors, Warnings: got.Warnings, ExpiresAt: got.ExpiresAt.UTC(),
	}, nil)
}

// RepositoryPath identifies a registered repository.
type RepositoryPath struct {
	ID int64 `path:"repository_id" minimum:"1" doc:"Id of the repository"`
}

type (
	removedOut         struct{ Body rest.Removed }
	repositoryPageOut  struct{ Body ide.RepositoryPage }
	repositoryCreateIn struct{ Body ide.RepositoryDraft }
	repositoryOut      struct {
		ETag string `header:"ETag" doc:"Version of the registered record"`
		Body ide.Repository
	}
	repositoryUpdateIn struct {
		RepositoryPath
		rest.IfMatch
		Body ide.RepositoryChange
	}
	repositoryDeleteIn struct {
		RepositoryPath
		rest.IfMatch
	}
	deploymentIn struct {
		ID string `path:"deployment_id" maxLength:"64" doc:"Id of the deployment"`
	}
	pageIn        struct{ rest.Page }
	deploymentsIn struct {
		rest.Page
		Repository int64 `query:"repository_id" minimum:"1" doc:"Only deployments of this repository"`
	}
)

// repositories registers the repositories whose webhooks are accepted, and the results of their
// deliveries.
func (h *Handler) repositories(r *rest.Router) {
	tags, record := []string{"Editor integration"}, reflect.TypeFor[ide.Repository]()
	rest.Register(r, rest.Op{
		ID: "list-repositories", Method: http.MethodGet, Path: "/ide-integration/repositories", Reach: rest.ReachSandbox, Permission: "editor:read", Tags: tags,
		Summary: "List the registered repositories", Description: "Sorted by id.",
	}, func(ctx context.Context, sc scope.Scope, in *pageIn) (*repositoryPageOut, error) {
		page, err := h.IDE.Repositories(ctx, sc, int64(in.Skip), int64(in.Limit))
		return &repositoryPageOut{page}, err
	})
	rest.Register(r, rest.Op{
		ID: "register-repository", Method: http.MethodPost, Path: "/ide-integration/repositories", Reach: rest.ReachSandbox, Permission: "editor:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Summary:     "Register a repository",
		Description: "Also needs policies:write, because its deliveries deploy controls. Configure webhook_url and the secret in the repository: GitHub (content type application/json), GitLab (secret token), or any sender that signs as our webhooks do. The secret and the access token are encrypted at rest and never returned. An address that the server may not call: 400.",
	}, func(ctx context.Context, sc scope.Scope, in *repositoryCreateIn) (*repositoryOut, error) {
		made, err := h.IDE.Register(ctx, sc, in.Body)
		return &repositoryOut{rest.ETag(made.ChangeNo), made}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-repository", Method: http.MethodGet, Path: "/ide-integration/repositories/{repository_id}", Reach: rest.ReachSandbox, Permission: "editor:read", Tags: tags,
		Summary: "Read a repository's registration",
	}, func(ctx context.Context, sc scope.Scope, in *RepositoryPath) (*repositoryOut, error) {
		got, err := h.IDE.Repository(ctx, sc, in.ID)
		return &repositoryOut{rest.ETag(got.ChangeNo), got}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-repository", Method: http.MethodPut, Path: "/ide-integration/repositories/{repository_id}", Reach: rest.ReachSandbox, Permission: "editor:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a repository's registration",
		Description: "Members that are not sent keep their value. Also needs policies:write. If an access token is stored, a change to another host needs access_token again (400).",
	}, func(ctx context.Context, sc scope.Scope, in *repositoryUpdateIn, version int64) (*repositoryOut, error) {
		got, err := h.IDE.Change(ctx, sc, in.ID, in.Body, version)
		return &repositoryOut{rest.ETag(got.ChangeNo), got}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-repository", Method: http.MethodDelete, Path: "/ide-integration/repositories/{repository_id}", Reach: rest.ReachSandbox, Permission: "editor:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove a repository's registration", Description: "From then on, its deliveries are refused. What it has deployed stays.",
	}, func(ctx context.Context, sc scope.Scope, in *repositoryDeleteIn, version int64) (*removedOut, error) {
		err := h.IDE.Forget(ctx, sc, in.ID, version)
		return &removedOut{rest.Removed{Message: "Repository removed successfully", ID: in.ID}}, err
	})
	rest.Register(r, rest.Op{
		ID: "sync-repository", Method: http.MethodPost, Path: "/ide-integration/repositories/{repository_id}/sync", Reach: rest.ReachSandbox, Permission: "editor:write", Also: "policies:write", Tags: tags, Status: http.StatusAccepted,
		Summary:     "Deploy a repository's newest commit now",
		Description: "Fetches the newest commit of the registered branch, or of the default branch, and deploys its controls to sandbox. The answer comes at once: read the deployment until it has ended. While a sync of the repository runs, the answer is that sync. Also needs policies:write.",
	}, func(ctx context.Context, sc scope.Scope, in *RepositoryPath) (*rest.JSON[ide.Deployment], error) {
		return rest.Answer(h.IDE.SyncRepository(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "list-editor-deployments", Method: http.MethodGet, Path: "/ide-integration/deployments", Reach: rest.ReachSandbox, Permission: "editor:read", Tags: tags,
		Summary: "List the deployments and checks of editors and repositories", Description: "Newest first; kept for 90 days.",
	}, func(ctx context.Context, sc scope.Scope, in *deploymentsIn) (*rest.JSON[ide.DeploymentPage], error) {
		return rest.Answer(h.IDE.Deployments(ctx, sc, in.Repository, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "get-editor-deployment", Method: http.MethodGet, Path: "/ide-integration/deployments/{deployment_id}", Reach: rest.ReachSandbox, Permission: "editor:read", Tags: tags,
		Summary: "Get the state of a deployment",
	}, func(ctx context.Context, sc scope.Scope, in *deploymentIn) (*rest.JSON[ide.Deployment], error) {
		return rest.Answer(h.IDE.Deployment(ctx, sc, in.ID))
	})
}
