package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Unused lists the controls and rules that no decision used.
type Unused struct {
	Environment scope.Env     `json:"environment" enum:"sandbox,production" doc:"The environment."`
	Days        int           `json:"days" doc:"Length of the period."`
	Since       time.Time     `json:"since" doc:"Start of the period, in whole hours."`
	Examined    int           `json:"examined" doc:"Number of active controls."`
	Controls    []UnusedOne   `json:"controls" doc:"Active controls that have decided nothing in that time, by id."`
	Rules       []UnusedRules `json:"rules" doc:"For the other controls: the rules that no recorded explanation in that time names, by control."`
	Note        string        `json:"note,omitempty" doc:"Limits of this list."`
}

// UnusedOne is a control that decided nothing.
type UnusedOne struct {
	PolicyID      int64      `json:"policy_id" doc:"The control."`
	Name          string     `json:"name" doc:"Its name."`
	ResourceID    int64      `json:"resource_id,omitempty" doc:"The resource that it is linked to; absent: tenant-wide."`
	UpdatedAt     time.Time  `json:"updated_at" doc:"When it last changed; a recent change means that it had less time to decide."`
	Changed       bool       `json:"changed_since" doc:"Whether it has changed since."`
	LastDecidedAt *time.Time `json:"last_decided_at" nullable:"true" doc:"The hour in which it last decided something; null: never."`
}

// UnusedRules are the rules of one control that decided nothing.
type UnusedRules struct {
	PolicyID int64  `json:"policy_id" doc:"The control."`
	Name     string `json:"name" doc:"Its name."`

	Explanations int `json:"explanations" doc:"Number of recorded explanations of its current version that were read."`

	Rules []UnusedRule `json:"rules" doc:"The rules, by line."`
}

// UnusedRule is a rule that decided nothing.
type UnusedRule struct {
	Rule string `json:"rule" doc:"Its name."`
	Line int    `json:"line" doc:"Line on which it begins, from 1."`
}

// Unused lists the active controls of an environment that no decision of the last days used, and
// the unused rules of the others. A decision uses the control that it names. It does not use a
// control that matched but was overruled by another.
func (s *Service) Unused(ctx context.Context, sc scope.Scope, days int) (Unused, error) {
	env := sc.EnvOr(scope.Production)
	since := s.Now().UTC().Add(-time.Duration(days) * 24 * time.Hour).Truncate(time.Hour)
	out := Unused{Environment: env, Days: days, Since: since, Controls: []UnusedOne{}, Rules: []UnusedRules{}}
	active, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]policy.Control, error) { return policy.ControlsFor(ctx, tx, env) })
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
	used := map[int64]bool{}
	for _, c := range active {
		at, ever := last[c.ID]
		if ever && !at.Before(since) {
			used[c.ID] = true
			continue
		}
		one := UnusedOne{PolicyID: c.ID, Name: c.Name, ResourceID: c.ResourceID, UpdatedAt: c.UpdatedAt, Changed: c.UpdatedAt.After(since)}
		if ever {
			one.LastDecidedAt = &at
		}
		out.Controls = append(out.Controls, one)
	}
	err = s.unusedRules(ctx, sc, &out, used)
	return out, err
}

// maxExplanations is how many records Unused reads for their explanations, newest first. That takes
// some seconds.
const maxExplanations = 50_000

// unusedRules adds the rules of used controls that no recorded explanation of their current version
// names.
func (s *Service) unusedRules(ctx context.Context, sc scope.Scope, out *Unused, used map[int64]bool) error {
	set, err := s.Snapshots.Get(ctx, sc.Tenant, out.Environment)
	if err != nil {
		return err
	}
	touched, explained, all, err := s.touched(ctx, sc, audit.Recording{Env: out.Environment, From: out.Since, To: s.Now().UTC()}, set)
	if err != nil {
		return err
	}
	silent := 0
	for _, c := range set.Controls() {
		id := c.Meta().ID
		if !used[id] {
			continue
		}
		if explained[id] == 0 {
			silent++
			continue
		}
		of := UnusedRules{PolicyID: id, Name: c.Meta().Name, Explanations: explained[id], Rules: []UnusedRule{}}
		for _, r := range lang.DecidingRules(c.Source()) {
			if !touched[rule{id, r.Line}] {
				of.Rules = append(of.Rules, UnusedRule{r.Name, r.Line})
			}
		}
		if len(of.Rules) > 0 {
			out.Rules = append(out.Rules, of)
		}
	}
	var notes []string
	if silent > 0 {
		notes = append(notes, fmt.Sprintf("%d controls decided where no explanation was kept (audit level basic), so their rules are not assessed", silent))
	}
	if !all {
		notes = append(notes, fmt.Sprintf("rules are assessed by the newest %d explanations", maxExplanations))
	}
	out.Note = strings.Join(notes, "; ")
	return nil
}

// rule identifies a rule by its control and line.
type rule struct {
	policy int64
	line   int
}

// touched returns the rules that recorded explanations name, the number of explanations of each
// control's current version, and whether all records were read.
func (s *Service) touched(ctx context.Context, sc scope.Scope, r audit.Recording, set *rego.Set) (map[rule]bool, map[int64]int, bool, error) {
	version := map[int64]int64{}
	for _, c := range set.Controls() {
		version[c.Meta().ID] = c.Meta().Version
	}
	rules, explained, read := map[rule]bool{}, map[int64]int{}, 0
	var at audit.Lines
	for {
		next, err := s.Audit.Recorded(ctx, sc, r, at, pageRows, worker.ReplayStepBytes)
		if err != nil {
			return nil, nil, false, err
		}
		for _, line := range next.Records {
			if read++; read > maxExplanations {
				return rules, explained, false, nil
			}
			var list []reason.Explanation
			raw := compare.Member(line, "explanation")
			if raw == nil || json.Unmarshal(raw, &list) != nil {
				continue
			}
			for _, e := range list {
				if e.Partial || version[e.PolicyID] != e.PolicyVersion || e.PolicyVersion == 0 {
					continue
				}
				explained[e.PolicyID]++
				rules[rule{e.PolicyID, e.Line}] = true
				for _, also := range e.Also {
					rules[rule{e.PolicyID, also.Line}] = true
				}
			}
		}
		if !next.More() {
			return rules, explained, true, nil
		}
		at = next
	}
}
