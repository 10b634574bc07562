package bridge

import (
	"context"
	"slices"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Copy is a copy of a bouncer's bundle, for policy engines that fetch it from another place because
// they cannot reach the server.
type Copy struct {
	Revision int64
	Data     []byte
	// Controls and Bouncers are the revisions of the store at which the copy was made. It is
	// current while they have not changed.
	Controls, Bouncers int64
}

// Copy returns the current bundle of a bouncer. It differs from the bundle that the bouncer fetches
// only in the mask key, which is missing because it is encrypted for the bouncer's token. The call
// does not affect the state of the bouncer. Faults: NotFound, Forbidden if the tenant is not
// active.
func (s *Service) Copy(ctx context.Context, tenantID scope.TenantID, id int64) (Copy, error) {
	if s.ctx.Err() != nil {
		return Copy{}, fault.Stopping()
	}
	env, err := db.Read(ctx, s.cfg.Stores, tenantID, func(tx *db.Tx) (scope.Env, error) { return bouncer.EnvironmentOf(ctx, tx, id) })
	if err != nil {
		return Copy{}, err
	}
	f := s.environment(environmentKey{tenantID, env})
	t, c, err := f.current(ctx, id)
	if err != nil {
		return Copy{}, err
	}
	var key *bundle.SigningKey
	if t.signed {
		if key, err = s.signingKey(ctx, tenantID); err != nil {
			return Copy{}, err
		}
	}
	parts, err := t.packed.Bundle(strconv.FormatInt(t.revision, 10), t.manifestMeta(), nil, key)
	if err != nil {
		return Copy{}, fault.Wrap(err, "write a bundle")
	}
	c.Revision, c.Data = t.revision, slices.Concat(parts...)
	return c, nil
}

// current returns the current target of a bouncer, and the revisions of the store that it reflects.
// It refreshes the environment if the store has changed.
func (e *environment) current(ctx context.Context, id int64) (*desiredBundle, Copy, error) {
	e.used.Store(e.svc.cfg.Now().Unix())
	round := e.rounds.Load()
	moved, err := e.stale(ctx)
	if err == nil && moved {
		err = e.refreshAfter(ctx, round)
	}
	if err != nil {
		return nil, Copy{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.states[id]
	switch {
	case !e.served:
		return nil, Copy{}, fault.New(fault.Forbidden, "tenant_access_denied", "the tenant is not active").With("tenant_id", string(e.tenant))
	case d == nil || e.set == nil:
		return nil, Copy{}, noBouncer()
	}
	return d.currentTarget(), Copy{Controls: e.set.Revision(), Bouncers: e.registryRevision}, nil
}
