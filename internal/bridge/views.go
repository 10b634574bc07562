package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Self tells a bouncer its own identity.
type Self struct {
	BouncerID   int64     `json:"bouncer_id" doc:"The bouncer whose token this is."`
	Name        string    `json:"name" doc:"Its name."`
	Environment scope.Env `json:"environment" enum:"sandbox,production" doc:"The environment whose controls it enforces."`
	Bundle      string    `json:"bundle" doc:"Path of its bundle, relative to the API's root."`
	PollSeconds int       `json:"poll_seconds" doc:"How long it should let a long poll wait."`
	Revision    int64     `json:"revision" doc:"The revision that it should run."`
}

// Self returns the identity of the calling bouncer.
func (s *Service) Self(ctx context.Context, sc scope.Scope, token string) (Self, error) {
	f, d, err := s.bouncerState(ctx, sc, token)
	if err != nil {
		return Self{}, err
	}
	return Self{
		BouncerID: d.id, Name: sc.Actor.Name, Environment: f.env, PollSeconds: s.cfg.PollSeconds,
		Bundle: "/bridge/bundles/" + strconv.FormatInt(d.id, 10), Revision: d.currentTarget().revision,
	}, nil
}

// Data is a document with its ETag.
type Data struct {
	ETag string
	JSON []byte
}

// Resources returns data.resources: the documents of resources by id. A bouncer gets those that it
// protects. Other callers need resources:read, and get all resources of their environment.
func (s *Service) Resources(ctx context.Context, sc scope.Scope, token string) (Data, error) {
	if sc.Actor.Kind != scope.Bouncer {
		if err := sc.Require("resources:read"); err != nil {
			return Data{}, err
		}
		set, err := s.cfg.Snapshots.Get(ctx, sc.Tenant, sc.EnvOr(scope.Production))
		if err != nil {
			return Data{}, err
		}
		return document(set, nil), nil
	}
	f, d, err := s.bouncerState(ctx, sc, token)
	if err != nil {
		return Data{}, err
	}
	return document(f.currentSet(), append([]int64{}, d.currentTarget().resources...)), nil // an empty list selects none, nil all
}

// document returns these resources of a set by id; nil selects all.
func document(set *rego.Set, only []int64) Data {
	r := newPacks().newRound(set)
	ids := r.allResources
	if only != nil {
		ids = func() []int64 { return r.knownResources(only) }
	}
	var members []value.Member
	for _, id := range ids() {
		members = append(members, value.Member{Key: strconv.FormatInt(id, 10), Value: withoutMember(set.Resource(id).Doc, "owner_email")})
	}
	body := value.Object(members...).AppendJSON(nil)
	sum := sha256.Sum256(body)
	return Data{ETag: `"` + hex.EncodeToString(sum[:8]) + `"`, JSON: body}
}

// Revisions lists the revision that each bouncer of an environment runs. A publication is complete
// when all connected bouncers run the right one.
type Revisions struct {
	Environment scope.Env         `json:"environment" enum:"sandbox,production"`
	Converged   bool              `json:"converged" doc:"True when every connected bouncer runs its newest revision."`
	Bouncers    []BouncerRevision `json:"bouncers" doc:"Sorted by id."`
}

// BouncerRevision is the part of Revisions about one bouncer.
type BouncerRevision struct {
	BouncerID       int64             `json:"bouncer_id"`
	Name            string            `json:"name"`
	Status          string            `json:"status" enum:"connected,degraded,disconnected"`
	Revision        int64             `json:"revision" doc:"The revision that it should run; 0 before the first bundle."`
	PublishedAt     *time.Time        `json:"published_at" doc:"Start of this state."`
	ActiveRevision  int64             `json:"active_revision" doc:"The revision that it runs; 0 before the first bundle."`
	ActivatedAt     *time.Time        `json:"activated_at" doc:"Start of this state."`
	RefusedRevision int64             `json:"refused_revision,omitempty" doc:"A revision that it refused; it is not sent to this bouncer again."`
	Errors          []bouncer.Refusal `json:"errors" doc:"Why it refused the bundle."`
	Converged       bool              `json:"converged"`
}

// Revisions returns which bouncers of an environment run the right revision.
func (s *Service) Revisions(ctx context.Context, sc scope.Scope, env scope.Env) (Revisions, error) {
	out := Revisions{Environment: env, Converged: true, Bouncers: []BouncerRevision{}}
	if !sc.Sees(env) {
		return out, noBouncer()
	}
	err := s.cfg.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		list, err := bouncer.InEnvironment(ctx, tx, env)
		if err != nil {
			return err
		}
		bundles, err := bouncer.BundlesIn(ctx, tx, env)
		if err != nil {
			return err
		}
		byID := map[int64]bouncer.Bundle{}
		for _, b := range bundles {
			byID[b.BouncerID] = b
		}
		for _, b := range list {
			row := revisionOf(b, byID[b.ID])
			out.Converged = out.Converged && (row.Converged || row.Status == bouncer.Disconnected)
			out.Bouncers = append(out.Bouncers, row)
		}
		return nil
	})
	return out, err
}

func revisionOf(b bouncer.Bouncer, u bouncer.Bundle) BouncerRevision {
	row := BouncerRevision{
		BouncerID: b.ID, Name: b.Name, Status: b.Status, Revision: u.Revision, ActiveRevision: u.Active, ActivatedAt: u.ActivatedAt,
		RefusedRevision: u.Refused, Errors: u.Errors, Converged: u.Revision != 0 && u.Revision == u.Active,
	}
	if row.Errors == nil {
		row.Errors = []bouncer.Refusal{}
	}
	if u.Revision != 0 {
		row.PublishedAt = &u.PublishedAt
	}
	return row
}
