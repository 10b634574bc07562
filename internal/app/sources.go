package app

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// loadSnapshot reads everything that decisions of an environment need in one transaction, so that
// the revision matches the rows.
func (p *parts) loadSnapshot(ctx context.Context, t scope.TenantID, env scope.Env) (decision.Source, error) {
	var src decision.Source
	err := p.stores.Read(ctx, t, func(tx *db.Tx) (err error) {
		if src.Revision, err = tx.Revision(ctx, resource.Revision(env)); err != nil {
			return err
		}
		if src.Controls, err = p.controlTexts(ctx, tx, env); err != nil {
			return err
		}
		if src.Libraries, err = policy.LibrariesFor(ctx, tx, env); err != nil {
			return err
		}
		if src.PIP, err = pip.Data(ctx, tx); err != nil {
			return err
		}
		if src.Grants, err = access.Data(ctx, tx, env, p.now()); err != nil {
			return err
		}
		if src.Agents, err = agent.ForDecisions(ctx, tx); err != nil {
			return err
		}
		src.Resources, err = resource.Docs(ctx, tx, env)
		return err
	})
	return src, err
}

// loadChanges reads the resources, data and controls that changed since a revision. If a change
// cannot be attributed to one of them, it reads all controls, and the snapshot keeps those that are
// equal.
func (p *parts) loadChanges(ctx context.Context, t scope.TenantID, env scope.Env, since int64) (out decision.Delta, ok bool, err error) {
	err = p.stores.Read(ctx, t, func(tx *db.Tx) error {
		to, err := tx.Revision(ctx, resource.Revision(env))
		if err != nil {
			return err
		}
		var d resource.Delta
		if d, ok, err = resource.DocsSince(ctx, tx, env, since, to); err != nil || !ok {
			return err
		}
		data, err := pip.DataSince(ctx, tx, env, since)
		if err != nil {
			return err
		}
		grants, err := access.Data(ctx, tx, env, p.now())
		if err != nil {
			return err
		}
		granted, err := access.ChangesSince(ctx, tx, env, since)
		if err != nil {
			return err
		}
		agents, err := agent.ChangesSince(ctx, tx, env, since)
		if err != nil {
			return err
		}
		known := d.Revisions + data.Revisions + granted + agents
		out = decision.Delta{Revision: to, Resources: d.Docs, RemovedResources: d.Removed, PIP: data.Members, Grants: grants, Rest: known < to-since}
		if agents > 0 {
			all, err := agent.ForDecisions(ctx, tx)
			if err != nil {
				return err
			}
			out.Agents = &all
		}
		if !out.Rest {
			return nil
		}
		c, err := policy.ControlsSince(ctx, tx, env, since)
		if err != nil {
			return err
		}
		out.Controls, out.RemovedControls = controlTexts(c.Controls), c.Removed
		if out.Whole = known+c.Revisions < to-since; out.Whole {
			if out.Controls, err = p.controlTexts(ctx, tx, env); err != nil {
				return err
			}
		}
		out.Libraries, err = policy.LibrariesFor(ctx, tx, env)
		return err
	})
	return out, ok, err
}

// controlTexts returns the active controls as they are stored.
func (p *parts) controlTexts(ctx context.Context, tx *db.Tx, env scope.Env) ([]decision.ControlText, error) {
	controls, err := policy.ControlsFor(ctx, tx, env)
	return controlTexts(controls), err
}

func controlTexts(controls []policy.Control) []decision.ControlText {
	out := make([]decision.ControlText, len(controls))
	for i, c := range controls {
		out[i] = decision.ControlText{Meta: controlMeta(c), Source: c.Source}
	}
	return out
}

func controlMeta(c policy.Control) rego.Meta {
	return rego.Meta{ID: c.ID, Name: c.Name, Version: c.Version, ResourceID: c.ResourceID, Targets: c.Targets()}
}

func (p *parts) envRevision(ctx context.Context, t scope.TenantID, env scope.Env) (int64, error) {
	return p.revision(ctx, t, resource.Revision(env))
}

// revision returns the value of a counter in a tenant's store.
func (p *parts) revision(ctx context.Context, t scope.TenantID, name string) (int64, error) {
	store, err := p.stores.Tenant(ctx, t)
	if err != nil {
		return 0, err
	}
	return store.Revision(ctx, name)
}

// dataOf returns the document data of an environment's controls.
func (p *parts) dataOf(ctx context.Context, t scope.TenantID, env scope.Env) (rego.DataSource, error) {
	set, err := p.snapshots.Get(ctx, t, env)
	if err != nil {
		return nil, err
	}
	return set, nil
}

// findPerson returns the document input.user of a stored user.
func (p *parts) findPerson(ctx context.Context, t scope.TenantID, id string) (value.Value, error) {
	return subjectDocument(ctx, p, t, id, p.users.Get)
}

// findSubject is like findPerson, for AuthZEN, where a subject is an id, a user name or an e-mail
// address.
func (p *parts) findSubject(ctx context.Context, t scope.TenantID, id string) (value.Value, error) {
	return subjectDocument(ctx, p, t, id, p.users.Lookup)
}

// subjectDocument returns the document input.user of an agent, or of the user whom find finds;
// undefined if there is none.
func subjectDocument(ctx context.Context, p *parts, t scope.TenantID, id string, find func(ctx context.Context, sc scope.Scope, id string) (user.User, error)) (value.Value, error) {
	if scope.NamesAgent(id) {
		return findAgent(ctx, p.agents, t, id)
	}
	u, err := find(ctx, auth.SystemScope(t, "decision", ""), id)
	if fault.Is(err, fault.NotFound) {
		return value.Value{}, nil
	}
	if err != nil {
		return value.Value{}, err
	}
	return personDocument(u)
}

// findAgent returns the document input.user of the active agent with a subject id such as agent:7;
// undefined if there is none.
func findAgent(ctx context.Context, agents *agent.Service, t scope.TenantID, id string) (value.Value, error) {
	n, ok := agent.ParseSubject(id)
	if !ok {
		return value.Value{}, nil
	}
	a, err := agents.Get(ctx, auth.SystemScope(t, "decision", ""), n)
	if fault.Is(err, fault.NotFound) || err == nil && a.Status != agent.Active {
		return value.Value{}, nil
	}
	if err != nil {
		return value.Value{}, err
	}
	return value.FromAny(a.Subject())
}

func (p *parts) peopleRevision(ctx context.Context, t scope.TenantID) (int64, error) {
	return p.revision(ctx, t, user.Revision)
}

// personDocument returns a stored user in the form that controls see, without empty members.
func personDocument(u user.User) (value.Value, error) {
	roles := make([]any, len(u.Roles))
	for i, r := range u.Roles {
		roles[i] = r
	}
	if u.Status != user.Active { // controls can tell, and find nothing that would permit
		return value.FromAny(map[string]any{"id": u.ID, "username": u.Username, "roles": []any{}, "status": u.Status})
	}
	doc := map[string]any{"id": u.ID, "username": u.Username, "roles": roles}
	if u.Email != "" {
		doc["email"] = u.Email
	}
	if u.Department != "" {
		doc["department"] = u.Department
	}
	if len(u.Attributes) > 0 {
		doc["attributes"] = u.Attributes
	}
	return value.FromAny(doc)
}

// syncErrors returns the sync errors of bouncers, by control.
func (p *parts) syncErrors(ctx context.Context, tx *db.Tx, first, last int64) (map[int64][]policy.SyncError, error) {
	rows, err := bouncer.RefusalsOf(ctx, tx, first, last)
	if err != nil {
		return nil, err
	}
	out := map[int64][]policy.SyncError{}
	for _, r := range rows {
		out[r.PolicyID] = append(out[r.PolicyID], policy.SyncError{
			BouncerID: r.BouncerID, Version: r.Version, Message: r.Error, File: r.File, Line: r.Line,
		})
	}
	return out, nil
}

// keptInputs returns how long, and how many, inputs of decisions a tenant keeps for replay.
func keptInputs(ctx context.Context, tx *db.Tx) (audit.Kept, error) {
	settings, err := tenant.SettingsIn(ctx, tx)
	return settings.Replay(), err
}
