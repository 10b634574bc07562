package resource

import (
	"context"
	"errors"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Counterpart returns the production resource for resource id: one with the same type, name
// and path, or else one with the same type, host, path and methods. Otherwise it copies the
// resource with its enrichment, with an audit row and an event. Fault: Conflict
// "already_exists" if a copy would share some methods with a resource in production. The
// caller holds Lock in the promotion's transaction.
func (s *Service) Counterpart(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (int64, error) {
	src, err := get(ctx, tx, id)
	if err != nil {
		return 0, err
	}
	found, err := selectSame(ctx, tx, scope.Production, src)
	if err == nil || !errors.Is(err, db.ErrNoRows) {
		return found, err
	}
	next := src
	next.ID, next.Environment, next.Version, next.AutoDiscovered = 0, scope.Production, 1, false
	same, overlapping, err := findAlike(ctx, tx, next)
	switch {
	case err != nil || same != 0:
		return same, err // it has another name, but matches the same requests
	case overlapping != 0:
		return 0, conflictWith(overlapping, next.Environment, "some of the same methods")
	}
	next.CreatedAt = s.Now()
	next.UpdatedAt = next.CreatedAt
	if next, err = s.add(ctx, tx, next); err != nil {
		return 0, err
	}
	return next.ID, s.record(ctx, tx, sc, next, "created", map[string]any{"copied_from": src.ID, "reason": "promotion of a control"})
}

// FindTwin returns the resource of env that a promotion uses for resource id: one with the
// same type, name and path, or else one with the same type, host, path and methods; 0 if
// there is none. src is resource id as the engine sees it. Fault: NotFound if resource id
// does not exist.
func FindTwin(ctx context.Context, tx *db.Tx, env scope.Env, id int64) (found int64, src target.Resource, err error) {
	r, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return 0, src, fault.NotFoundf("no such resource")
	}
	if err != nil {
		return 0, src, err
	}
	if found, err = selectSame(ctx, tx, env, r); errors.Is(err, db.ErrNoRows) {
		there := r
		there.ID, there.Environment = 0, env
		found, _, err = findAlike(ctx, tx, there)
	}
	if err == nil {
		src, err = r.Doc()
	}
	return found, src, err
}
