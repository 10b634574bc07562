// Package ide serves editors and repositories. It checks, completes and tests the text in an
// editor, stores documents for editors, and receives the webhooks of repositories to deploy their
// controls.
//
//	editor ──► Validate, Suggest, Test                 nothing is stored
//	       ──► Sync, Context                           a session's document, for some hours
//	       ──► Deploy ─────────────┐
//	repository ──► Receive ────────┤ signature, replay, kind of event
//	                               ▼
//	     deployment (in_progress) + job, one transaction
//	                               │ job: files of the commit (git, guarded) ─► policies as code
//	                               ▼
//	     deployment (completed | failed) ─► callers that wait: answer, WebSocket
//
// Only workers read Rego from outside (packages policy and policycode) and the packs of
// repositories.
package ide

import (
	"context"
	"log/slog"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/assist"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/gitpack"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// Topic is the topic of db.Watch on which ended deployments are announced.
const Topic = "ide_deployments"

// FileResult is the result for one file.
type FileResult struct {
	Path     string `json:"path" doc:"Path of the file"`
	Name     string `json:"name" doc:"Name of the control"`
	Result   string `json:"result" enum:"created,updated,unchanged,valid" doc:"What was done or found"`
	PolicyID int64  `json:"policy_id,omitempty" doc:"Id of the control"`
	Version  int64  `json:"version,omitempty" doc:"Its version"`
}

// Service has the use cases of editors and repositories. All fields must be set.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	NewID  func() string
	Log    *slog.Logger
	// Panics counts panics of the library that reads the answers of repositories.
	Panics *fault.Panics
	// Box encrypts secrets and access tokens.
	Box *secret.Box
	// Target is the guarded client for repositories.
	Target *outbound.Client
	// Large is the memory for large answers of repositories (NewLarge).
	Large *memory.Pool
	// Unpack extracts files from a pack in a worker: (*worker.Pool).Unpack.
	Unpack func(ctx context.Context, tenant scope.TenantID, r gitpack.Request) ([]gitpack.File, error)
	// Check validates a control: (*policy.Service).Validate.
	Check func(ctx context.Context, sc scope.Scope, source string) (policy.Validation, error)
	// Code deploys policies as code.
	Code *policycode.Service
	// Templates are the shipped controls.
	Templates []assist.Template
	// As returns the scope for the work of a delivery. It returns an error if the tenant does not
	// exist or is not active.
	As func(ctx context.Context, tenant scope.TenantID, name, requestID string) (scope.Scope, error)
	// LinksExist returns Invalid if a resource or bouncer is set but not in sandbox.
	LinksExist func(ctx context.Context, sc scope.Scope, resource, bouncer *int64) error
	// PublicURL is the address of this server. Version is its version.
	PublicURL string
	Version   string

	waiting waiters
}

// actorName returns the name of the caller in the store: its kind and id.
func actorName(sc scope.Scope) string { return nameOf(sc.Actor) }

func nameOf(who scope.Actor) string { return string(who.Kind) + ":" + who.ID }

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.Write(ctx, sc.Tenant, fn)
}
