package replay

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Unused lists what no decision touched.
type Unused struct {
	Environment scope.Env     `json:"environment" enum:"sandbox,production" doc:"The environment."`
	Days        int           `json:"days" doc:"For how long."`
	Since       time.Time     `json:"since" doc:"Since when: whole hours."`
	Examined    int           `json:"examined" doc:"How many active controls there are."`
	Controls    []UnusedOne   `json:"controls" doc:"Active controls that decided nothing since, by id."`
	Rules       []UnusedRules `json:"rules" doc:"Of the others, rules that no recorded explanation since names, by control."`
	Note        string        `json:"note,omitempty" doc:"What this list does not say."`
}

// UnusedOne is a control that decided nothing.
type UnusedOne struct {
	PolicyID      int64      `json:"policy_id" doc:"The control."`
	Name          string     `json:"name" doc:"Its name."`
	ResourceID    int64      `json:"resource_id,omitempty" doc:"The resource that it is linked to; absent: tenant-wide."`
	UpdatedAt     time.Time  `json:"updated_at" doc:"When it last changed: one that changed since has had less time."`
	Changed       bool       `json:"changed_since" doc:"Whether it changed since."`
	LastDecidedAt *time.Time `json:"last_decided_at" nullable:"true" doc:"The hour in which it last decided something; null: never."`
}

// UnusedRules are the rules of one control that decided nothing.
type UnusedRules struct {
	PolicyID int64        `json:"policy_id" doc:"The control."`
	Name     string       `json:"name" doc:"Its name."`
	Rules    []UnusedRule `json:"rules" doc:"The rules, by line."`
}

// UnusedRule is a rule that decided nothing.
type UnusedRule struct {
	Rule string `json:"rule" doc:"Its name."`
	Line int    `json:"line" doc:"The line that it begins in, 1-based."`
}

// Unused lists the active controls of an environment that no decision touched
// for days. A control touches a decision that names it: one that matched and
// was overruled by another is not counted for it.
func (s *Service) Unused(ctx context.Context, sc scope.Scope, days int) (Unused, error) {
	env := sc.EnvOr(scope.Production)
	since := s.Now().UTC().Add(-time.Duration(days) * 24 * time.Hour).Truncate(time.Hour)
	out := Unused{Environment: env, Days: days, Since: since, Controls: []UnusedOne{}, Rules: []UnusedRules{}}
	var active []policy.Control
	err := s.read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		active, err = s.Policies.ControlsFor(ctx, tx, env)
		return err
	})
	if err != nil {
		return out, err
	}
	ids := make([]int64, len(active))
	for i, c := range active {
		ids[i] = c.ID
	}
	last, err := s.Audit.LastDecided(ctx, sc, env, ids)
	if err != nil {
		return out, err
	}
	out.Examined = len(active)
	for _, c := range active {
		at, ever := last[c.ID]
		if ever && !at.Before(since) {
			continue
		}
		one := UnusedOne{PolicyID: c.ID, Name: c.Name, ResourceID: c.ResourceID, UpdatedAt: c.UpdatedAt, Changed: c.UpdatedAt.After(since)}
		if ever {
			one.LastDecidedAt = &at
		}
		out.Controls = append(out.Controls, one)
	}
	return out, nil
}
