package replay

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The limits on past states of resources that one replay uses: their number and their size in
// bytes. The worker keeps all of them in memory.
const (
	maxPast      = 20_000
	maxPastBytes = 16 << 20
)

// slack is how old the data may be with which the service decided. While it cannot reach its store,
// it decides with the data that it read last.
const slack = 10 * time.Minute

// ended is a past state of a resource.
type ended = resource.Past

// Forget deletes the part of a tenant's history that is too old for any replay. Several replicas
// may run it at once.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) error {
	_, err := s.Resources.Forget(ctx, tenant)
	if err == nil {
		_, err = s.Bouncers.Forget(ctx, tenant)
	}
	return err
}

// readStart reads the time from which the history is known.
func (s *Service) readStart(ctx context.Context, sc scope.Scope, h *history) error {
	return s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		h.known, err = resource.PastFrom(ctx, tx, h.request.SourceEnvironment)
		return err
	})
}

// rewind reads the states of resources before each change in the window. It skips changes that
// controls cannot see.
func (s *Service) rewind(ctx context.Context, sc scope.Scope, h *history, set *rego.Set) error {
	now := map[int64]*target.Resource{}
	bytes := 0
	return s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		h.ends, h.dataFrom, bytes = nil, 0, 0
		clear(now)
		return resource.PastSince(ctx, tx, h.request.SourceEnvironment, h.from, set.Revision(), func(past ended) bool {
			after, known := now[past.ID]
			if !known {
				after = set.Resource(past.ID)
			}
			if same(past.Doc, after) {
				return true
			}
			if past.Doc != nil {
				bytes += len(past.Doc.Doc.AppendJSON(nil))
			}
			if len(h.ends) == maxPast || bytes > maxPastBytes {
				h.stopHistory(past)
				return false
			}
			now[past.ID] = past.Doc
			h.ends = append(h.ends, past)
			return true
		})
	})
}

// stopHistory ends the history of resources at a change, because there are too many, and adds a
// note.
func (h *history) stopHistory(at ended) {
	h.dataFrom = at.Revision
	h.ends = slices.DeleteFunc(h.ends, func(e ended) bool { return e.Revision == at.Revision })
	h.notes = append(h.notes, fmt.Sprintf("resources changed too often to restore them before %s; older decisions use the data of that time", at.At.UTC().Format(time.RFC3339)))
}

// same reports whether two states of a resource are equal for controls.
func same(a, b *target.Resource) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Doc, y.Doc = value.Value{}, value.Value{}
	return value.Equal(a.Doc, b.Doc) && reflect.DeepEqual(x, y)
}

// views adds what the bouncers of the source environment see, and saw, to the plan. A bouncer may
// have had an old bundle, so it sets followed to a time before the oldest bundle of the window was
// replaced.
func (s *Service) views(ctx context.Context, sc scope.Scope, p *plan) error {
	p.followed = p.recording.From.Add(-slack)
	var list []bouncer.Bouncer
	var links map[int64][]int64
	var bundles []bouncer.PastBundle
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if list, err = bouncer.InEnvironment(ctx, tx, p.request.SourceEnvironment); err != nil {
			return err
		}
		if links, err = policy.BouncerLinks(ctx, tx, p.request.SourceEnvironment); err != nil {
			return err
		}
		bundles, err = bouncer.PastBundles(ctx, tx, p.request.SourceEnvironment, p.followed)
		return err
	})
	views := map[int64]*compare.View{}
	for _, b := range list {
		v := &compare.View{BouncerID: b.ID, Resources: append(slices.Clone(b.ResourceIDs), links[b.ID]...), Deny: b.Denies()}
		slices.Sort(v.Resources)
		v.Resources = slices.Compact(v.Resources)
		for _, c := range p.changes {
			if c.bouncer == b.ID && c.control.ResourceID > 0 {
				v.Added = append(v.Added, c.control.ResourceID)
			}
		}
		views[b.ID] = v
	}
	for i, b := range bundles { // by bouncer, newest first
		v := views[b.BouncerID]
		if v == nil { // the bouncer was deleted
			v = &compare.View{BouncerID: b.BouncerID, Resources: b.Resources, Deny: b.Denies}
			views[b.BouncerID] = v
		}
		v.Bundles = append(v.Bundles, compare.Bundle{Revision: b.Revision, EnvRevision: b.EnvRevision, Resources: b.Resources, Deny: b.Denies})
		if n := len(v.Bundles); n > 1 && bundles[i-1].PublishedAt.Before(p.followed) {
			p.followed = bundles[i-1].PublishedAt.Add(-slack)
		}
	}
	for _, v := range views {
		p.spec.Views = append(p.spec.Views, *v)
	}
	slices.SortFunc(p.spec.Views, func(a, b compare.View) int { return int(a.BouncerID - b.BouncerID) })
	p.spec.ViewsThen = p.request.Baseline == Then
	return err
}
