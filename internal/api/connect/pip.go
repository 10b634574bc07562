package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// SourcePath names a data source.
type SourcePath struct {
	ID int64 `path:"connection_id" minimum:"1" doc:"Id of the data source"`
}

type sourceListIn struct {
	rest.Page
	Provider string `query:"provider" enum:"http_json,scim,s3,sql,ldap" doc:"Only data sources of this provider"`
	Type     string `query:"connection_type" maxLength:"100" doc:"Only data sources of this type"`
	Health   string `query:"health_status" enum:"unknown,healthy,stale,unhealthy" doc:"Only data sources in this health"`
}

type sourceOut struct {
	ETag string `header:"ETag" doc:"Version of the data source; syncs do not change it"`
	Body pip.Connection
}

type sourceCreateIn struct{ Body pip.Draft }

type sourceUpdateIn struct {
	SourcePath
	rest.IfMatch
	Body pip.Change
}

type sourceDeleteIn struct {
	SourcePath
	rest.IfMatch
}

type sourceTestIn struct{ Body pip.Trial }

type syncListIn struct {
	SourcePath
	rest.Page
}

type syncIn struct {
	SourcePath
	Sync int64 `path:"sync_job_id" minimum:"1" doc:"Id of the sync"`
}

// Triggered is the answer to a request for a sync.
type Triggered struct {
	Message      string `json:"message" doc:"What was done."`
	ConnectionID int64  `json:"connection_id" doc:"Id of the data source."`
	SyncJobID    int64  `json:"sync_job_id" doc:"Id of the sync."`
	Status       string `json:"status" enum:"pending,in_progress" doc:"State of the sync."`
}

// dataSources registers the data sources.
func (h *Handler) dataSources(r *rest.Router) {
	tags, record := []string{"Data sources"}, reflect.TypeFor[pip.Connection]()
	rest.Register(r, rest.Op{
		ID: "list-pip-connections", Method: http.MethodGet, Path: "/pip/connections", Permission: "pip:read", Tags: tags,
		Summary: "List data sources", Description: "By id. Credentials are never returned; `credentials_set` says whether there are any.",
	}, func(ctx context.Context, sc scope.Scope, in *sourceListIn) (*rest.JSON[pip.Page], error) {
		return rest.Answer(h.Sources.List(ctx, sc, pip.Filter{Provider: in.Provider, Type: in.Type, Health: in.Health, Skip: int64(in.Skip), Limit: int64(in.Limit)}))
	})
	rest.Register(r, rest.Op{
		ID: "create-pip-connection", Method: http.MethodPost, Path: "/pip/connections", Permission: "pip:write", Tags: tags, Status: http.StatusCreated,
		Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Create a data source",
		Description: "Controls of both environments read its data as `data.pip.<name>`, once it was synced. It is synced at once, unless `sync_enabled` is false or `sync_frequency` is manual. docs/data-sources.md explains the configuration. Internal networks are not called (422 `target_refused`).",
	}, func(ctx context.Context, sc scope.Scope, in *sourceCreateIn) (*sourceOut, error) {
		c, err := h.Sources.Create(ctx, sc, in.Body)
		return &sourceOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-pip-connection", Method: http.MethodGet, Path: "/pip/connections/{connection_id}", Permission: "pip:read", Tags: tags,
		Summary: "Read a data source",
	}, func(ctx context.Context, sc scope.Scope, in *SourcePath) (*sourceOut, error) {
		c, err := h.Sources.Get(ctx, sc, in.ID)
		return &sourceOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-pip-connection", Method: http.MethodPut, Path: "/pip/connections/{connection_id}", Permission: "pip:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a data source",
		Description: "Members that are not sent keep their value. `configuration` and `credentials` are replaced as a whole. A change to another host needs `credentials` again (422 `credential_required`). The data stays until the next sync has succeeded. The provider cannot be changed.",
	}, func(ctx context.Context, sc scope.Scope, in *sourceUpdateIn, version int64) (*sourceOut, error) {
		c, err := h.Sources.Update(ctx, sc, in.ID, in.Body, version)
		return &sourceOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-pip-connection", Method: http.MethodDelete, Path: "/pip/connections/{connection_id}", Permission: "pip:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove a data source", Description: "Removes its data, too: `data.pip.<name>` is undefined from then on.",
	}, func(ctx context.Context, sc scope.Scope, in *sourceDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		err := h.Sources.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Data source deleted successfully", ID: in.ID}, err)
	})
	h.syncs(r)
}

// syncs registers tests and syncs of data sources.
func (h *Handler) syncs(r *rest.Router) {
	tags := []string{"Data sources"}
	rest.Register(r, rest.Op{
		ID: "test-pip-connection", Method: http.MethodPost, Path: "/pip/connections/test", Permission: "pip:write", Tags: tags,
		Summary:     "Test a data source",
		Description: "Reads the first page of the source in the request, and shows the members and some records as controls would see them. Nothing is stored. A source that cannot be read is not an error of this operation: `success` is false, and `message` says why.",
	}, func(ctx context.Context, sc scope.Scope, in *sourceTestIn) (*rest.JSON[pip.TestResult], error) {
		return rest.Answer(h.Sources.Test(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "trigger-pip-sync", Method: http.MethodPost, Path: "/pip/connections/{connection_id}/trigger-sync", Permission: "pip:write", Tags: tags,
		Status:      http.StatusAccepted,
		Summary:     "Sync a data source now",
		Description: "The sync runs in the background, even while `sync_enabled` is false. If one waits or runs already, the answer describes that one.",
	}, func(ctx context.Context, sc scope.Scope, in *SourcePath) (*rest.JSON[Triggered], error) {
		y, err := h.Sources.Trigger(ctx, sc, in.ID)
		return rest.Answer(Triggered{Message: "The sync was requested", ConnectionID: in.ID, SyncJobID: y.ID, Status: y.Status}, err)
	})
	rest.Register(r, rest.Op{
		ID: "list-pip-syncs", Method: http.MethodGet, Path: "/pip/connections/{connection_id}/syncs", Permission: "pip:read", Tags: tags,
		Summary: "List the syncs of a data source", Description: "Newest first. The last 100 are kept.",
	}, func(ctx context.Context, sc scope.Scope, in *syncListIn) (*rest.JSON[pip.SyncPage], error) {
		return rest.Answer(h.Sources.Syncs(ctx, sc, in.ID, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "get-pip-sync", Method: http.MethodGet, Path: "/pip/connections/{connection_id}/syncs/{sync_job_id}", Permission: "pip:read", Tags: tags,
		Summary: "Read a sync of a data source",
	}, func(ctx context.Context, sc scope.Scope, in *syncIn) (*rest.JSON[pip.Sync], error) {
		return rest.Answer(h.Sources.Sync(ctx, sc, in.ID, in.Sync))
	})
}
