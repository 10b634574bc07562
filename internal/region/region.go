// Package region moves tenants between the stores of regions.
//
//	waiting ─► copying ─► catching_up ─► paused ─► switched ─► done ──keep──► source purged
//	              └───────────┴────────────┴─► rolling_back ─► failed
//
// One replica at a time does the work. If it dies before the switch, the next one starts again or
// rolls back; until then nothing has changed for the tenant. The switch is one transaction of the
// system store, which records the location of the tenant. After the switch, the source refuses
// writes until it is purged, so a replica that does not know of the switch yet cannot lose any.
package region

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// The states of a deployment, as the API shows them.
const (
	InProgress = "in_progress"
	Completed  = "completed"
	Failed     = "failed"
)

// The phases of a deployment.
const (
	waiting     = "waiting"
	copying     = "copying"
	catchingUp  = "catching_up"
	paused      = "paused"
	switched    = "switched"
	done        = "done"
	rollingBack = "rolling_back"
	failed      = "failed"
)

// topic is the name of the notification about deployments, in the system store.
const topic = "deployments"

// Service holds the use cases.
type Service struct {
	Stores  *db.Cluster
	Tenants *tenant.Service
	Now     func() time.Time
	// Ticks is the clock that measures durations.
	Ticks func() time.Time
	NewID func() string
	// Host is the host name for tenants without a domain of their own.
	Host string
	// Keep is how long the source is kept after a move.
	Keep   time.Duration
	Logger *slog.Logger

	unsettled atomic.Int64

	// reached is called when a move reaches a phase. An error ends the work at once, like a kill.
	// For tests only.
	reached func(phase string) error
}

// Request is a request to move a tenant.
type Request struct {
	Region            string     `json:"region" enum:"us-east-1,us-west-2,ca-central-1,eu-west-1,eu-central-1,eu-north-1,ap-southeast-1,ap-northeast-1,ap-south-1" doc:"The region to move to. If the deployment has regions, it must be one of them."`
	MigrateData       *bool      `json:"migrate_data,omitempty" doc:"true (default): the tenant's data moves along. false: the tenant starts empty in the new region, without people, keys, controls and logs, and its old data is purged later."`
	MaintenanceWindow *time.Time `json:"maintenance_window,omitempty" doc:"When to begin; absent or in the past: now."`
}

// Parts are the parts of a deployment.
type Parts struct {
	Database string `json:"database_migration" enum:"pending,in_progress,completed,failed" doc:"The copy of the data, and the switch to it."`
	DNS      string `json:"dns_update" enum:"pending,in_progress,completed,failed" doc:"The tenant's domains. They lead to the service and not to a region, so the move leaves them as they are."`
	SSL      string `json:"ssl_setup" enum:"pending,in_progress,completed,failed" doc:"The certificates of the domains. They stay as well."`
}

// Deployment is one move of a tenant.
type Deployment struct {
	ID                string         `json:"deployment_id" db:"id" doc:"Id of the deployment."`
	Tenant            scope.TenantID `json:"tenant_id" db:"tenant" doc:"The tenant."`
	Status            string         `json:"status" db:"-" enum:"in_progress,completed,failed" doc:"failed: the tenant is where it was, and reason says why."`
	Phase             string         `json:"phase" db:"phase" enum:"waiting,copying,catching_up,paused,switched,done,rolling_back,failed" doc:"waiting: for the maintenance window, or for another deployment. copying: all rows are copied. catching_up: what changed meanwhile is copied, and checksums are compared. paused: writes wait until the last changes are copied. switched: the tenant is in its new region."`
	Region            string         `json:"region" db:"region" doc:"Where the tenant moves to."`
	FromRegion        string         `json:"from_region" db:"from_region" doc:"Where it was."`
	MigrateData       bool           `json:"migrate_data" db:"migrate_data" doc:"false: the tenant starts empty in the new region."`
	MaintenanceWindow *time.Time     `json:"maintenance_window" db:"-" doc:"When the deployment was to begin; null: at once."`
	Progress          Parts          `json:"progress" db:"-" doc:"Its parts."`
	RowsTotal         int64          `json:"rows_total" db:"rows_total" doc:"Rows to copy; 0 before they are counted."`
	RowsCopied        int64          `json:"rows_copied" db:"rows_done" doc:"Rows that are copied."`
	ChangesCopied     int64          `json:"changes_copied" db:"changes" doc:"Changes during the copy that were copied as well."`
	WritePauseMS      int64          `json:"write_pause_ms" db:"pause_ms" doc:"How long writes waited for the switch, in milliseconds."`
	StartedAt         time.Time      `json:"started_at" db:"started_at" doc:"When the deployment was requested."`
	Estimated         time.Time      `json:"estimated_completion" db:"estimated_at" doc:"When it should be complete, judged by the size of the tenant's data."`
	CompletedAt       *time.Time     `json:"completed_at" db:"completed_at" doc:"When it completed or failed; null before."`
	NewDomain         *string        `json:"new_domain" db:"-" doc:"The domain that the tenant is reached at after the move; null before. Without a domain of its own, it is the host of this service."`
	Reason            *string        `json:"reason" db:"-" doc:"Why it failed; null if it did not."`
	SourceUntil       *time.Time     `json:"source_kept_until" db:"keep_until" doc:"Until when the data in the old region is kept; null before the move is complete."`
	SourcePurgedAt    *time.Time     `json:"source_purged_at" db:"purged_at" doc:"When the data in the old region was purged; null before."`
	Message           string         `json:"message" db:"-" doc:"What happens to the data."`

	Source     string      `json:"-" db:"source"`
	Target     string      `json:"-" db:"target"`
	Leftovers  string      `json:"-" db:"leftovers"`
	Token      int64       `json:"-" db:"token"`
	Attempts   int         `json:"-" db:"attempts"`
	BeginsAt   time.Time   `json:"-" db:"begins_at"`
	SwitchedAt *time.Time  `json:"-" db:"switched_at"`
	ReasonText string      `json:"-" db:"reason"`
	Domain     string      `json:"-" db:"new_domain"`
	Actor      scope.Actor `json:"-" db:"actor"`
	RequestID  string      `json:"-" db:"request_id"`

	brake int // how much the tenant's writers are slowed down: an index of brakes
}

// Page is one page of deployments.
type Page struct {
	Deployments []Deployment `json:"deployments" nullable:"false" doc:"The newest first."`
	Total       int64        `json:"total" doc:"Total number."`
}

// show returns the deployment with its derived fields.
func (d Deployment) show(now time.Time) Deployment {
	d.Status = InProgress
	d.Progress = Parts{"in_progress", "pending", "pending"}
	switch d.Phase {
	case waiting:
		if d.BeginsAt.After(now) {
			d.Progress.Database = "pending"
		}
	case switched:
		d.Progress = Parts{"completed", "in_progress", "in_progress"}
	case done:
		d.Status, d.Progress = Completed, Parts{"completed", "completed", "completed"}
	case rollingBack:
		d.Progress.Database = "failed"
	case failed:
		d.Status, d.Progress.Database = Failed, "failed"
	}
	if d.BeginsAt.After(d.StartedAt) {
		d.MaintenanceWindow = &d.BeginsAt
	}
	if d.ReasonText != "" {
		d.Reason = &d.ReasonText
	}
	if d.Domain != "" {
		d.NewDomain = &d.Domain
	}
	if d.Message = "the tenant's data moves along"; !d.MigrateData {
		d.Message = "the tenant starts empty in the new region: its people, keys, controls and logs do not move, and its old data is purged once it is no longer kept"
	}
	return d
}

// Start starts the move of a tenant. Only platform administrators may call it. Faults: Forbidden,
// Invalid for a region that is not served, Conflict if the tenant is being moved already.
func (s *Service) Start(ctx context.Context, sc scope.Scope, id scope.TenantID, in Request) (Deployment, error) {
	if !sc.Platform {
		return Deployment{}, fault.New(fault.Forbidden, "permission_denied", "only a platform administrator can move a tenant")
	}
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Deployment{}, err
	}
	now := db.Stamp(s.Now())
	d := Deployment{
		ID: s.NewID(), Tenant: id, Phase: waiting, Region: in.Region, MigrateData: in.MigrateData == nil || *in.MigrateData,
		StartedAt: now, BeginsAt: now, Actor: sc.Actor, RequestID: sc.RequestID,
	}
	var ok bool
	if d.Target, ok = s.Stores.StoreFor(in.Region); !ok {
		return Deployment{}, fault.Invalidf("/region", "this deployment does not serve %s; it serves %s", in.Region, strings.Join(s.Stores.Regions(), ", "))
	}
	if in.MaintenanceWindow != nil {
		if window := db.Stamp(*in.MaintenanceWindow); window.After(now) {
			d.BeginsAt = window
		}
	}
	size, err := s.Stores.Size(ctx, id)
	if err != nil {
		return Deployment{}, err
	}
	if !d.MigrateData {
		size = 0
	}
	d.Estimated = db.Stamp(d.BeginsAt.Add(5*time.Second + time.Duration(size/(4<<20))*time.Second))
	err = s.Stores.Write(ctx, id, func(tx *db.Tx) error {
		err := s.record(ctx, tx, d, "TENANT_DEPLOYMENT_STARTED", now, map[string]any{"region": in.Region, "migrate_data": d.MigrateData, "begins_at": d.BeginsAt})
		if err != nil {
			return err
		}
		return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return s.add(ctx, tx, &d) })
	})
	if err != nil {
		return Deployment{}, err
	}
	return d.show(now), nil
}

// add stores a new deployment. Fault: Conflict if the tenant is being moved already.
func (s *Service) add(ctx context.Context, tx *db.Tx, d *Deployment) error {
	if err := tx.Lock(ctx, topic); err != nil {
		return err
	}
	open, err := selectOpenOf(ctx, tx, d.Tenant)
	switch {
	case err == nil && open.ID == d.ID: // this transaction runs again
		return nil
	case err == nil:
		return fault.New(fault.Conflict, "deployment_in_progress", "the tenant is being moved already").With("deployment_id", open.ID)
	case !errors.Is(err, db.ErrNoRows):
		return err
	}
	if d.Source, err = s.Stores.PlaceOf(ctx, tx, d.Tenant); err != nil {
		return err
	}
	if d.FromRegion, err = regionOf(ctx, tx, d.Tenant); err != nil {
		return err
	}
	if err := insert(ctx, tx, *d); err != nil {
		return err
	}
	return tx.Notify(ctx, topic)
}

// Get returns a deployment. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id scope.TenantID, deployment string) (Deployment, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Deployment{}, err
	}
	d, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Deployment, error) { return find(ctx, tx, id, deployment) })
	if errors.Is(err, db.ErrNoRows) {
		return Deployment{}, fault.NotFoundf("there is no such deployment")
	}
	return d.show(s.Now()), err
}

// List returns a page of a tenant's deployments, newest first.
func (s *Service) List(ctx context.Context, sc scope.Scope, id scope.TenantID, skip, limit int) (Page, error) {
	if err := s.Tenants.CheckVisible(ctx, sc, id); err != nil {
		return Page{}, err
	}
	p, err := db.ReadStore(ctx, s.Stores.System(), func(tx *db.Tx) (Page, error) { return page(ctx, tx, id, skip, limit) })
	for i := range p.Deployments {
		p.Deployments[i] = p.Deployments[i].show(s.Now())
	}
	return p, err
}

// Cancel ends a deployment that has not reached the switch. The tenant stays where it is. Only
// platform administrators may call it. Faults: Forbidden, NotFound, Conflict if it is too late.
func (s *Service) Cancel(ctx context.Context, sc scope.Scope, id scope.TenantID, deployment string) (Deployment, error) {
	d, err := s.Get(ctx, sc, id, deployment)
	if err != nil {
		return Deployment{}, err
	}
	if !sc.Platform {
		return Deployment{}, fault.New(fault.Forbidden, "permission_denied", "only a platform administrator can stop a deployment")
	}
	err = s.Stores.System().Write(ctx, func(tx *db.Tx) error {
		n, err := cancel(ctx, tx, deployment, "stopped by "+sc.Actor.Name)
		if err == nil && n == 0 {
			err = fault.New(fault.Conflict, "deployment_too_far", "the deployment is complete, or too far to be stopped")
		}
		if err != nil {
			return err
		}
		return tx.Notify(ctx, topic)
	})
	if err != nil {
		return Deployment{}, err
	}
	return s.Get(ctx, sc, id, d.ID)
}

// Forget ends a tenant's deployments. Their copies are dropped with the tenant. It is one of
// tenant.Service.OnPurge.
func (s *Service) Forget(ctx context.Context, id scope.TenantID) error {
	return s.Stores.System().Write(ctx, func(tx *db.Tx) error { return endDeployments(ctx, tx, id) })
}

// record writes an entry to the tenant's audit log.
func (s *Service) record(ctx context.Context, tx *db.Tx, d Deployment, kind string, at time.Time, changes map[string]any) error {
	changes["deployment_id"] = d.ID
	sc := scope.Scope{Tenant: d.Tenant, Actor: d.Actor, RequestID: d.RequestID}
	return audit.Append(ctx, tx, sc, at, audit.Entry{Type: kind, Object: "tenant", ObjectID: string(d.Tenant), Changes: changes})
}
