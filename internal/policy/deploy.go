package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
)

// The result of a deployment for one control.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
)

// Placement is one control or library of a deployment: its name in sandbox, and the members to
// set. RegoCode is always set. If it does not exist, it is created, and is active unless Status is
// set.
type Placement struct {
	Name   string
	Change Change
	// Note is stored with the version, Extra in the audit entry.
	Note  string
	Extra map[string]any
}

// kind returns the kind of the policy, which its package determines.
func (p Placement) kind() string {
	if (lang.Library{Source: *p.Change.RegoCode}).Package() != "" {
		return KindLibrary
	}
	return KindControl
}

// librariesAfter returns the libraries of an environment after the placements.
func (s *Service) librariesAfter(ctx context.Context, sc scope.Scope, env scope.Env, items []Placement) ([]lang.Library, error) {
	libs, err := s.Libraries(ctx, sc, env)
	for _, item := range items {
		if item.kind() != KindLibrary || item.Change.Status != nil && *item.Change.Status != Active {
			continue
		}
		next := lang.Library{Name: item.Name, Source: *item.Change.RegoCode}
		libs = append(slices.DeleteFunc(libs, func(l lang.Library) bool { return l.Package() == next.Package() }), next)
	}
	return libs, err
}

// Placed is the result of a Placement. Old is zero for a control that was created.
type Placed struct {
	Outcome     string
	Old, Policy Policy
}

// PlacementError says why the placement with this index failed.
type PlacementError struct {
	Index int
	Err   error
}

// Error returns the text of the cause.
func (e *PlacementError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PlacementError) Unwrap() error { return e.Err }

// errRehearsed rolls back a rehearsal.
var errRehearsed = errors.New("rehearsed")

// Deploy makes all placements in sandbox, or none, in one transaction; finish runs as its last
// step. With rehearse, it does the same and rolls back, so that it returns the same errors. If one
// control caused the error, the error is a PlacementError.
func (s *Service) Deploy(ctx context.Context, sc scope.Scope, items []Placement, rehearse bool, finish func(context.Context, *db.Tx, []Placed) error) ([]Placed, error) {
	env, err := sc.CreateIn(scope.Sandbox)
	if err != nil {
		return nil, err
	}
	libs, err := s.librariesAfter(ctx, sc, env, items)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if err := s.checkCompilesWith(ctx, sc, Policy{Kind: item.kind(), Content: Content{RegoCode: *item.Change.RegoCode}}, libs); err != nil {
			return nil, &PlacementError{i, err}
		}
	}
	var out []Placed
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		out = make([]Placed, 0, len(items)) // reset when the transaction runs again
		for i, item := range items {
			placed, err := s.placeOne(ctx, tx, sc, env, item)
			if err != nil {
				return &PlacementError{i, err}
			}
			out = append(out, placed)
		}
		// Check only after all placements: a library and its users may change together.
		for i, p := range out {
			if p.Outcome == Unchanged {
				continue
			}
			if err := s.checkUses(ctx, tx, sc, p.Old, p.Policy); err != nil {
				return &PlacementError{i, err}
			}
		}
		if err := finish(ctx, tx, out); err != nil {
			return err
		}
		if rehearse {
			return errRehearsed
		}
		return nil
	})
	if errors.Is(err, errRehearsed) {
		err = nil
	}
	return out, err
}

// placeOne makes one placement.
func (s *Service) placeOne(ctx context.Context, tx *db.Tx, sc scope.Scope, env scope.Env, item Placement) (Placed, error) {
	found, err := byName(ctx, tx, env, item.Name)
	if err != nil {
		return Placed{}, err
	}
	switch len(found) {
	case 0:
		return s.placeNew(ctx, tx, sc, env, item)
	case 1:
	default:
		return Placed{}, fault.Invalidf("/name", "%d controls in %s have the name %q: rename all but one", len(found), env, item.Name)
	}
	old := found[0]
	next, err := old.apply(sc, item.Change)
	if err != nil {
		return Placed{}, err
	}
	if len(changesOf(old, next)) == 0 {
		return Placed{Unchanged, old, old}, nil
	}
	p, err := s.storeNext(ctx, tx, sc, old, next, step{verb: "updated", note: item.Note, extra: item.Extra, together: true})
	return Placed{Updated, old, p}, err
}

// placeNew creates a control that does not exist yet.
func (s *Service) placeNew(ctx context.Context, tx *db.Tx, sc scope.Scope, env scope.Env, item Placement) (Placed, error) {
	next := Policy{Kind: item.kind(), Content: Content{Name: strings.TrimSpace(item.Name), Status: Active, Environment: env, Version: 1, CreatedBy: actor(sc)}}
	if next.Name == "" {
		return Placed{}, fault.Invalidf("/name", "the name is required")
	}
	c := item.Change
	if c.Status != nil {
		next.Status, c.Status = *c.Status, nil // there is no previous state
	}
	next, err := next.apply(sc, c)
	if err != nil {
		return Placed{}, err
	}
	p, err := s.insertNew(ctx, tx, sc, next, step{verb: "created", note: item.Note, extra: item.Extra, together: true})
	return Placed{Outcome: Created, Policy: p}, err
}

// insertNew stores a new control if the tenant's limit allows it.
func (s *Service) insertNew(ctx context.Context, tx *db.Tx, sc scope.Scope, next Policy, st step) (Policy, error) {
	if err := s.Tenants.CheckLimit(ctx, tx, tenant.Policies, 1); err != nil {
		return Policy{}, err
	}
	if err := next.checkLibrary(); err != nil {
		return Policy{}, err
	}
	if err := s.checkLinks(ctx, tx, Policy{}, next); err != nil {
		return Policy{}, err
	}
	next.CreatedAt = s.Now()
	next.UpdatedAt = next.CreatedAt
	id, err := insert(ctx, tx, next)
	if err != nil {
		return Policy{}, err
	}
	made, err := get(ctx, tx, id)
	if err != nil {
		return Policy{}, err
	}
	return made, s.record(ctx, tx, sc, Policy{}, made, st)
}

// storeNext stores the next version of a control.
func (s *Service) storeNext(ctx context.Context, tx *db.Tx, sc scope.Scope, old, next Policy, st step) (Policy, error) {
	if err := next.checkLibrary(); err != nil {
		return Policy{}, err
	}
	if err := s.checkLinks(ctx, tx, old, next); err != nil {
		return Policy{}, err
	}
	next.Version, next.UpdatedAt = old.Version+1, s.Now()
	p, err := update(ctx, tx, next)
	if err != nil {
		return Policy{}, err
	}
	if err := s.record(ctx, tx, sc, old, p, st); err != nil || p.Kind != KindLibrary {
		return p, err
	}
	p.Affected, err = affectedBy(ctx, tx, sc, p)
	return p, err
}

// Preview returns the control as a change would make it, and the differences, without writing to
// the store. If the change is not allowed, it returns the control unchanged and the fault. A changed
// test case that the caller may not see counts as a difference, although only others may make it.
func (p Policy) Preview(sc scope.Scope, c Change) (Policy, []MemberDifference, error) {
	all := sc
	all.Permissions = scope.Permissions{All: true}
	next, err := p.apply(all, c)
	if err != nil {
		return p, nil, err
	}
	return next, p.Differences(sc, next), nil
}

// Differences returns the members in which next differs from p, except rego_code. It hides what
// the scope may not see.
func (p Policy) Differences(sc scope.Scope, next Policy) []MemberDifference {
	differ := changesOf(p, next)
	return shownDifferences(sc, slices.DeleteFunc(compare(Version{Content: p.Content}, Version{Content: next.Content}).Changes, func(d MemberDifference) bool {
		_, there := differ[d.Member]
		return !there // no list and an empty list are equal
	}))
}

// ChangedSince reports whether a control has a version after v that no promotion made.
func ChangedSince(ctx context.Context, tx *db.Tx, id, v int64) (bool, error) {
	n, err := countSince(ctx, tx, id, v)
	if err != nil {
		return false, fmt.Errorf("versions of control %d: %w", id, err)
	}
	return n > 0, nil
}
