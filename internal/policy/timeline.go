package policy

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Timeline gives, oldest first, the versions of all controls that were made
// from a time on, and before them the newest older version of each: enough to
// tell which controls were active at any moment since.
func (s *Service) Timeline(ctx context.Context, sc scope.Scope, from time.Time) ([]Version, error) {
	var out []Version
	err := s.read(ctx, sc, func(tx *db.Tx) (err error) {
		out, err = timeline(ctx, tx, from)
		return err
	})
	return out, err
}

// ActiveIn tells whether the version was one that decides in env.
func (v Version) ActiveIn(env scope.Env) bool {
	return v.Environment == env && v.Status == Active && v.Change != "deleted"
}

// Impact is what a promotion would change for requests that were really made,
// as a replay of production's recorded decisions tells.
type Impact struct {
	Mode                string  `json:"mode" enum:"warn,block" doc:"The tenant's setting impact_gate."`
	WindowHours         int     `json:"window_hours" doc:"How far back decisions were replayed."`
	Evaluated           int64   `json:"evaluated" doc:"How many recorded decisions were decided again."`
	Changed             int64   `json:"changed" doc:"How many the control flips."`
	NewlyBlocked        int64   `json:"newly_blocked" doc:"How many it would stop that pass without it."`
	NewlyAllowed        int64   `json:"newly_allowed" doc:"How many it would let pass that are stopped without it."`
	NewlyBlockedPercent float64 `json:"newly_blocked_percent" doc:"Share of newly_blocked, 0 to 100."`
	ThresholdPercent    float64 `json:"threshold_percent" doc:"The tenant's setting impact_gate_threshold_percent."`
	Exceeded            bool    `json:"exceeded" doc:"Whether the share is over the threshold."`
	Truncated           bool    `json:"truncated" doc:"Whether time ran out before all were replayed; the newest were."`
	Rule                string  `json:"rule,omitempty" doc:"The rule behind most flips."`
	Line                int     `json:"line,omitempty" doc:"The line that it begins in."`
	Note                string  `json:"note,omitempty" doc:"What these figures do not say."`
}
