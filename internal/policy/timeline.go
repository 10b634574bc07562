package policy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Moment is a version of a control or library, and its start.
type Moment struct {
	Version
	Kind string `db:"kind"`
	revisions
}

// revisions are the revisions of the environments from which a version is valid. One is nil if the
// version does not affect the environment, or is older than the column.
type revisions struct {
	Sandbox    *int64 `db:"sandbox_revision"`
	Production *int64 `db:"production_revision"`
}

// in returns a pointer to the revision of an environment; nil for any other value.
func (r *revisions) in(env scope.Env) **int64 {
	switch env {
	case scope.Sandbox:
		return &r.Sandbox
	case scope.Production:
		return &r.Production
	}
	return nil
}

// Since returns the revision of env from which the version is valid there. It is 0 if the version
// does not affect env, or is older than the column.
func (m Moment) Since(env scope.Env) int64 {
	if at := m.in(env); at != nil && *at != nil {
		return **at
	}
	return 0
}

// Timeline returns the versions of all controls and libraries since a time, and the newest earlier
// version of each, oldest first. Together they say what was active at any time since then.
func (s *Service) Timeline(ctx context.Context, sc scope.Scope, from time.Time) ([]Moment, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]Moment, error) { return timeline(ctx, tx, from) })
}

// ActiveIn reports whether the version decides in env.
func (v Version) ActiveIn(env scope.Env) bool {
	return v.Environment == env && v.Status == Active && v.Change != "deleted"
}

// VisibleLibraries returns the libraries that modules of env may import, given the active libraries of each
// environment.
func VisibleLibraries(env scope.Env, active map[scope.Env][]lang.Library) []lang.Library {
	var all librarySet
	for _, of := range bothEnvironments {
		for _, l := range active[of] {
			all = append(all, activeLibrary{ID: l.ID, Name: l.Name, Version: l.Version, Environment: of, Source: l.Source})
		}
	}
	slices.SortFunc(all, func(a, b activeLibrary) int { return cmp.Compare(a.ID, b.ID) })
	return all.forEnv(env)
}

// Impact is what a promotion would change for recorded requests, according to a replay of
// production's decisions.
type Impact struct {
	Mode                string  `json:"mode" enum:"warn,block" doc:"The tenant's setting impact_gate."`
	WindowHours         int     `json:"window_hours" doc:"How far back decisions were replayed."`
	Evaluated           int64   `json:"evaluated" doc:"Number of recorded decisions that were replayed."`
	Changed             int64   `json:"changed" doc:"Number that the control flips."`
	NewlyBlocked        int64   `json:"newly_blocked" doc:"Number that it would block and that are allowed without it."`
	NewlyAllowed        int64   `json:"newly_allowed" doc:"Number that it would allow and that are blocked without it."`
	NewlyBlockedPercent float64 `json:"newly_blocked_percent" doc:"Share of newly_blocked, 0 to 100."`
	ThresholdPercent    float64 `json:"threshold_percent" doc:"The tenant's setting impact_gate_threshold_percent."`
	Exceeded            bool    `json:"exceeded" doc:"Whether the share is above the threshold."`
	Truncated           bool    `json:"truncated" doc:"Whether time ran out before all were replayed; the newest were."`
	Rule                string  `json:"rule,omitempty" doc:"The rule behind most flips."`
	Line                int     `json:"line,omitempty" doc:"Line on which it begins."`
	Note                string  `json:"note,omitempty" doc:"Limits of these figures."`
}
