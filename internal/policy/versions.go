package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Version is the state of a policy after a change. Its created_by and created_at are those of the
// change.
type Version struct {
	PolicyID int64  `json:"policy_id" db:"policy_id" doc:"The control."`
	Change   string `json:"change" db:"change" enum:"created,updated,promoted,deleted,restored" doc:"The change that created this version."`
	Note     string `json:"note,omitempty" db:"note" doc:"Notes on a promotion, or what was restored."`
	Content
}

// History is one page of versions, newest first.
type History struct {
	Versions []Version `json:"versions" doc:"The page, newest first."`
	Total    int64     `json:"total" doc:"Number of versions."`
}

// Difference lists the differences between two versions.
type Difference struct {
	PolicyID int64              `json:"policy_id" doc:"The control."`
	From     int64              `json:"from" doc:"The older version."`
	To       int64              `json:"to" doc:"The newer version."`
	Changes  []MemberDifference `json:"changes" doc:"Members that differ, except rego_code."`
	Rego     string             `json:"rego_diff" doc:"Unified diff of rego_code; empty if there is no difference."`
}

// MemberDifference is one member that differs.
type MemberDifference struct {
	Member string `json:"member" doc:"Name of the member." example:"status"`
	From   any    `json:"from,omitempty" doc:"Its value in the older version; absent when it has none."`
	To     any    `json:"to,omitempty" doc:"Its value in the newer version; absent when it has none."`
}

// Versions lists the versions of a live control, newest first.
func (s *Service) Versions(ctx context.Context, sc scope.Scope, id, skip, limit int64) (History, error) {
	var h History
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = loadLive(ctx, tx, sc, id); err != nil {
			return err
		}
		h.Versions, h.Total, err = versions(ctx, tx, id, skip, limit)
		return err
	})
	for i := range h.Versions {
		h.Versions[i].Content = h.Versions[i].shownTo(sc)
	}
	return h, err
}

// Version returns one version as the scope may see it.
func (s *Service) Version(ctx context.Context, sc scope.Scope, id, v int64) (Version, error) {
	out, err := s.storedVersion(ctx, sc, id, v)
	out.Content = out.shownTo(sc)
	return out, err
}

// storedVersion returns a version, including members that the scope may not see. Do not put it
// into an answer.
func (s *Service) storedVersion(ctx context.Context, sc scope.Scope, id, v int64) (Version, error) {
	var out Version
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = loadLive(ctx, tx, sc, id); err != nil {
			return err
		}
		out, err = loadVersion(ctx, tx, id, v)
		return err
	})
	return out, err
}

func loadVersion(ctx context.Context, tx *db.Tx, id, v int64) (Version, error) {
	out, err := version(ctx, tx, id, v)
	if errors.Is(err, db.ErrNoRows) {
		return Version{}, fault.NotFoundf("the policy has no version %d", v)
	}
	return out, err
}

// Diff compares two versions of a control. If to is 0, it is the newest version. If from is 0, it
// is the version before to.
func (s *Service) Diff(ctx context.Context, sc scope.Scope, id, from, to int64) (Difference, error) {
	var a, b Version
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		p, err := loadLive(ctx, tx, sc, id)
		if err != nil {
			return err
		}
		if to == 0 {
			to = p.Version
		}
		if from == 0 {
			from = max(1, to-1)
		}
		if a, err = loadVersion(ctx, tx, id, from); err != nil {
			return err
		}
		b, err = loadVersion(ctx, tx, id, to)
		return err
	})
	if err != nil {
		return Difference{}, err
	}
	d := compare(a, b)
	d.Changes = shownDifferences(sc, d.Changes)
	return d, nil
}

func compare(a, b Version) Difference {
	d := Difference{PolicyID: a.PolicyID, From: a.Version, To: b.Version, Changes: []MemberDifference{}}
	for _, m := range []struct {
		name string
		a, b any
	}{
		{"name", a.Name, b.Name},
		{"description", a.Description, b.Description},
		{"status", a.Status, b.Status},
		{"environment", a.Environment, b.Environment},
		{"resource_id", deref(a.ResourceID), deref(b.ResourceID)},
		{"bouncer_id", deref(a.BouncerID), deref(b.BouncerID)},
		{"test_cases", a.TestCases, b.TestCases},
		{"actions", a.Actions, b.Actions},
	} {
		if !reflect.DeepEqual(m.a, m.b) {
			d.Changes = append(d.Changes, MemberDifference{Member: m.name, From: m.a, To: m.b})
		}
	}
	d.Rego = Unified(fmt.Sprintf("version %d", a.Version), fmt.Sprintf("version %d", b.Version), a.RegoCode, b.RegoCode)
	return d
}

// RestoreVersion makes a new version with the content of an old one. Status and environment do not
// change. If the old version was in the other environment, the links do not change either, because
// its ids are those of that environment. Recorded test cases that the caller may not see stay as they
// are.
func (s *Service) RestoreVersion(ctx context.Context, sc scope.Scope, id, v, ifVersion int64) (Policy, error) {
	old, err := s.storedVersion(ctx, sc, id, v)
	if err != nil {
		return Policy{}, err
	}
	next, err := s.stored(ctx, sc, id)
	if err != nil {
		return Policy{}, err
	}
	next.RegoCode = old.RegoCode
	if err := s.checkCompiles(ctx, sc, next); err != nil {
		return Policy{}, err
	}
	st := step{verb: "restored", note: fmt.Sprintf("content of version %d", v), extra: map[string]any{"restored_version": v}}
	p, err := s.change(ctx, sc, id, ifVersion, st, func(_ *db.Tx, p Policy) (Policy, error) {
		cases, err := restoredCases(sc, p.TestCases, old.TestCases)
		if err != nil {
			return Policy{}, err
		}
		p.Name, p.Description, p.RegoCode, p.TestCases, p.Actions = old.Name, old.Description, old.RegoCode, cases, old.Actions
		if old.Environment == p.Environment {
			p.ResourceID, p.BouncerID = old.ResourceID, old.BouncerID
		}
		return p, nil
	})
	p.Content = p.shownTo(sc)
	return p, err
}
