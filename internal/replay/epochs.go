package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rerun"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxEpochs is how many changes of the active controls one replay follows back.
const maxEpochs = 500

// epochs works out which controls are the baseline, and when.
func (s *Service) epochs(ctx context.Context, sc scope.Scope, p *plan, set *rego.Set) error {
	if p.request.Baseline == Now {
		active := map[int64]int{}
		for _, c := range set.Controls() {
			active[c.Meta().ID] = p.text(rerun.Control{Meta: c.Meta(), Source: c.Source()})
		}
		p.epoch(time.Time{}, active)
		return nil
	}
	versions, err := s.Policies.Timeline(ctx, sc, p.recording.From)
	if err != nil {
		return err
	}
	p.follow(versions)
	return nil
}

// follow makes an epoch of each change of the active controls.
func (p *plan) follow(versions []policy.Version) {
	type state struct {
		from   time.Time
		active map[int64]int
	}
	states := []state{{active: map[int64]int{}}}
	for _, v := range versions {
		now := &states[len(states)-1]
		was, is := now.active[v.PolicyID]
		at := -1
		if v.ActiveIn(p.request.SourceEnvironment) && (rego.Library{Source: v.RegoCode}).Package() == "" {
			at = p.text(textOf(v))
		}
		if is && was == at || !is && at < 0 {
			continue
		}
		if v.CreatedAt.After(p.recording.From) && v.CreatedAt.After(now.from) {
			states = append(states, state{v.CreatedAt, maps.Clone(now.active)})
			now = &states[len(states)-1]
		}
		if at < 0 {
			delete(now.active, v.PolicyID)
		} else {
			now.active[v.PolicyID] = at
		}
	}
	if over := len(states) - maxEpochs; over > 0 {
		states = states[over:]
		p.notes = append(p.notes, fmt.Sprintf("the controls changed more than %d times in the window; older decisions are compared with the oldest of these states", maxEpochs))
	}
	slices.Reverse(states)
	for _, st := range states {
		p.epoch(st.from, st.active)
	}
	p.prune()
}

// prune drops texts that no epoch names any more.
func (p *plan) prune() {
	used := map[int]int{}
	var kept []rerun.Control
	move := func(list []int) {
		for i, at := range list {
			to, ok := used[at]
			if !ok {
				to = len(kept)
				used[at] = to
				kept = append(kept, p.spec.Controls[at])
			}
			list[i] = to
		}
	}
	for _, e := range p.spec.Epochs {
		move(e.Baseline)
		move(e.Candidate)
	}
	p.spec.Controls, p.index = kept, nil
}

func textOf(v policy.Version) rerun.Control {
	c := rerun.Control{Meta: rego.Meta{ID: v.PolicyID, Name: v.Name, Version: v.Content.Version}, Source: v.RegoCode}
	if v.ResourceID != nil {
		c.ResourceID = *v.ResourceID
	}
	return c
}

// views are what the bouncers of the source environment see.
func (s *Service) views(ctx context.Context, sc scope.Scope, p *plan) ([]rerun.View, error) {
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return nil, err
	}
	var list []bouncer.Bouncer
	var links map[int64][]int64
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		if list, err = s.Bouncers.In(ctx, tx, p.request.SourceEnvironment); err != nil {
			return err
		}
		links, err = s.Policies.BouncerLinks(ctx, tx, p.request.SourceEnvironment)
		return err
	})
	out := make([]rerun.View, 0, len(list))
	for _, b := range list {
		v := rerun.View{BouncerID: b.ID, Resources: append(slices.Clone(b.ResourceIDs), links[b.ID]...), Deny: b.Configuration["default_action"] == "deny"}
		for _, c := range p.changes {
			if c.bouncer == b.ID && c.control.ResourceID > 0 {
				v.Resources = append(v.Resources, c.control.ResourceID)
			}
		}
		slices.Sort(v.Resources)
		v.Resources = slices.Compact(v.Resources)
		out = append(out, v)
	}
	return out, err
}
