// Package ide is what editors and repositories ask of the service: checks,
// suggestions and trials of the text in an editor, documents that an editor
// keeps here, and the webhook by which a repository brings its controls in.
//
//	editor ──► Validate, Suggest, Test                 nothing is stored
//	       ──► Sync, Context                           a session's document, for a while
//	       ──► Deploy ─────────────┐
//	repository ──► Receive ────────┤ signature, replay, what event it is
//	                               ▼
//	     deployment (in_progress) + job, one transaction
//	                               │ job: files of the commit (git, guarded) ─► policies as code
//	                               ▼
//	     deployment (completed | failed) ─► whoever waits: answer, WebSocket
//
// Rego that comes in here is looked at in workers only (packages policy and
// policycode), and so are the packs of a repository.
package ide

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/hint"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Topic is what a tenant's Watch hears when a deployment has ended.
const Topic = "ide_deployments"

// FileResult is what became of a control's file.
type FileResult struct {
	Path     string `json:"path" doc:"Path of the file"`
	Name     string `json:"name" doc:"Name of the control"`
	Result   string `json:"result" enum:"created,updated,unchanged,valid" doc:"What was done or found"`
	PolicyID int64  `json:"policy_id,omitempty" doc:"Id of the control"`
	Version  int64  `json:"version,omitempty" doc:"Its version"`
}

// Service is the use cases of editors and repositories. All fields must be set.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	NewID  func() string
	Log    *slog.Logger
	// Panics is told of panics in reading what repositories send.
	Panics *fault.Panics
	// Box seals secrets and access tokens.
	Box *secret.Box
	// Target is the guarded client that repositories are fetched with.
	Target *outbound.Client
	// Unpack takes files out of a pack in a worker: (*worker.Pool).Unpack.
	Unpack func(ctx context.Context, tenant scope.TenantID, r gitpack.Request) ([]gitpack.File, error)
	// Check validates one control: (*policy.Service).Validate.
	Check func(ctx context.Context, sc scope.Scope, source string) (policy.Validation, error)
	// Code is policies as code, by which all deploying is done.
	Code *policycode.Service
	// Templates are the shipped controls.
	Templates []hint.Template
	// As is the scope of the work that a delivery asks for; an error where the
	// tenant is not there or not active.
	As func(ctx context.Context, tenant scope.TenantID, name, requestID string) (scope.Scope, error)
	// LinksExist answers Invalid where a resource or bouncer, unless nil, is not in sandbox.
	LinksExist func(ctx context.Context, sc scope.Scope, resource, bouncer *int64) error
	// PublicURL is where this server is reached.
	PublicURL string
	Version   string

	waiting waiters
}

// actorName names the actor of a scope in our tables.
func actorName(sc scope.Scope) string { return nameOf(sc.Actor) }

func nameOf(who scope.Actor) string { return string(who.Kind) + ":" + who.ID }

func (s *Service) read(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	return store.Read(ctx, fn)
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	return store.Write(ctx, fn)
}
