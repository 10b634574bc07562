package resource

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/classify"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Lock is the lock (db.Tx.Lock) that every change of controls, resources and bouncers
// takes first, so that checks across the three hold until the commit. For example, a
// control cannot be bound to a resource that is being deleted.
const Lock = "controls"

// Service has the use cases on resources.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// PoliciesOf returns the ids of the live controls bound to each of the resources with
	// ids from first to last (package policy).
	PoliciesOf func(ctx context.Context, tx *db.Tx, first, last int64) (map[int64][]int64, error)
	// BouncersOf returns the ids of the bouncers that list the resource (package bouncer).
	BouncersOf func(ctx context.Context, tx *db.Tx, id int64) ([]int64, error)
	// AddToBouncer adds discovered resources to the list of the bouncer that reported them.
	// RemoveFromBouncers removes a resource from all lists (package bouncer). Nil: there
	// are no lists.
	AddToBouncer       func(ctx context.Context, tx *db.Tx, sc scope.Scope, bouncer int64, resources []int64) error
	RemoveFromBouncers func(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) error
	// Withdraw ends the temporary grants on a resource that is deleted (package access).
	// Nil: there are no grants.
	Withdraw func(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) error
	// Assist is asked when the heuristic is not sure, for tenants for which AssistOn
	// returns true. Nil: it is never asked.
	Assist   Assistant
	AssistOn func(ctx context.Context, tx *db.Tx) (bool, error)
}

// Revision returns the name of an environment's revision. Code that caches a snapshot of
// the environment's controls and resources watches it.
func Revision(env scope.Env) string { return "env:" + string(env) }

// List returns a page of the resources by id, of one environment if the scope names it.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	page := Page{}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		if page.Resources, err = list(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		if err = s.bind(ctx, tx, page.Resources); err != nil {
			return err
		}
		page.Warnings, err = shadowing(ctx, tx, page.Resources)
		return err
	})
	return page, err
}

// Get returns a resource, of any environment unless the scope names one.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Resource, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Resource, error) { return s.load(ctx, tx, sc, id) })
}

// Create registers a resource. All errors are reported at once (422).
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Resource, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Resource{}, err
	}
	r, offences := d.resource().normal()
	if len(offences) > 0 {
		return Resource{}, invalid(offences)
	}
	r.Environment, r.Version, r.CreatedAt = env, 1, s.Now()
	r.UpdatedAt = r.CreatedAt
	var made Resource
	err = s.write(ctx, sc, func(tx *db.Tx) (err error) {
		if err := checkUnique(ctx, tx, r); err != nil {
			return err
		}
		if made, err = s.add(ctx, tx, r); err != nil {
			return err
		}
		made.Policies = []int64{}
		if made.Warnings, err = shadowing(ctx, tx, []Resource{made}); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, made, "created", map[string]any{"path": made.Path, "type": made.Type})
	})
	return made, err
}

// Update changes the sent members. If ifVersion is not 0 and not the current version, the
// fault is Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifVersion int64) (Resource, error) {
	var r Resource
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := s.current(ctx, tx, sc, id, ifVersion)
		if err != nil {
			return err
		}
		next, offences := old.apply(c).normal()
		if c.Environment != nil && *c.Environment != old.Environment {
			offences = append(offences, fault.Detail{Pointer: "/environment", Message: "a resource cannot change its environment: promoting a control copies its resource"})
		}
		if len(offences) > 0 {
			return invalid(offences)
		}
		if reflect.DeepEqual(next, old) {
			r = old // nothing changes: no version, no audit entry, no event
			return nil
		}
		if next.Type != old.Type || next.Path != old.Path || next.host() != old.host() || !slices.Equal(next.Methods, old.Methods) {
			if err := checkUnique(ctx, tx, next); err != nil {
				return err
			}
		}
		next.Version, next.UpdatedAt = old.Version+1, s.Now()
		if r, err = s.replace(ctx, tx, next); err != nil {
			return err
		}
		r.Policies = old.Policies
		return s.record(ctx, tx, sc, r, "updated", changesOf(old, r))
	})
	return r, err
}

// checkUnique refuses (409) a second resource with the same type, host and path that
// shares a method. The caller holds Lock, so that one of two that are created at once is
// refused.
func checkUnique(ctx context.Context, tx *db.Tx, r Resource) error {
	same, overlapping, err := findAlike(ctx, tx, r)
	switch {
	case err != nil:
		return err
	case same != 0:
		return conflictWith(same, r.Environment, "the same methods")
	case overlapping != 0:
		return conflictWith(overlapping, r.Environment, "some of the same methods")
	}
	return nil
}

func conflictWith(other int64, env scope.Env, methods string) error {
	return fault.Newf(fault.Conflict, "already_exists", "resource %d of %s has the same type, host and path, and %s", other, env, methods).With("resource_id", other)
}

// Delete removes a resource that no live control and no bouncer names. Otherwise the
// fault is Conflict "resource_in_use", with the controls and bouncers that name it: a
// control without its resource would protect nothing. A discovered resource without
// controls is first removed from the lists of bouncers.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifVersion int64) (Resource, error) {
	var r Resource
	err := s.write(ctx, sc, func(tx *db.Tx) (err error) {
		if r, err = s.current(ctx, tx, sc, id, ifVersion); err != nil {
			return err
		}
		bouncers, err := s.BouncersOf(ctx, tx, id)
		if err != nil {
			return err
		}
		if r.AutoDiscovered && len(r.Policies) == 0 && s.RemoveFromBouncers != nil {
			// Discovery added it to the bouncer's list, so no person needs to remove it.
			if err := s.RemoveFromBouncers(ctx, tx, sc, id); err != nil {
				return err
			}
			bouncers = nil
		}
		if len(r.Policies)+len(bouncers) > 0 {
			return fault.New(fault.Conflict, "resource_in_use", "controls or bouncers still name this resource").
				With("policies", r.Policies).With("bouncers", bouncers)
		}
		if err := s.drop(ctx, tx, sc, r); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, r, "deleted", nil)
	})
	return r, err
}

// EnvironmentOf is the environment of resource id. Fault: NotFound. Other packages check
// ids in bodies with it.
func EnvironmentOf(ctx context.Context, tx *db.Tx, id int64) (scope.Env, error) {
	r, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		return "", fault.NotFoundf("no resource %d", id)
	}
	return r.Environment, err
}

// NameOf is the name, type and path of resource id. Fault: NotFound.
func NameOf(ctx context.Context, tx *db.Tx, id int64) (name, typ, path string, err error) {
	r, err := get(ctx, tx, id)
	if errors.Is(err, db.ErrNoRows) {
		err = fault.NotFoundf("no resource %d", id)
	}
	return r.Name, r.Type, r.Path, err
}

// load returns a resource with its controls. Fault: NotFound.
func (s *Service) load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Resource, error) {
	r, err := get(ctx, tx, id)
	if r, err = db.Found(r, err, sc.Sees(r.Environment), "resource"); err != nil {
		return Resource{}, err
	}
	one := []Resource{r}
	err = s.bind(ctx, tx, one)
	return one[0], err
}

func (s *Service) current(ctx context.Context, tx *db.Tx, sc scope.Scope, id, ifVersion int64) (Resource, error) {
	r, err := s.load(ctx, tx, sc, id)
	return fault.Current(r, err, "resource", r.Version, ifVersion)
}

// bind sets the ids of bound controls.
func (s *Service) bind(ctx context.Context, tx *db.Tx, rs []Resource) error {
	if len(rs) == 0 {
		return nil
	}
	bound, err := s.PoliciesOf(ctx, tx, rs[0].ID, rs[len(rs)-1].ID)
	if err != nil {
		return err
	}
	for i := range rs {
		if rs[i].Policies = bound[rs[i].ID]; rs[i].Policies == nil {
			rs[i].Policies = []int64{}
		}
	}
	return nil
}

// add, replace and drop are the only writes to the table of resources, apart from bulk
// classification. They keep the revision and the past state.
func (s *Service) add(ctx context.Context, tx *db.Tx, r Resource) (Resource, error) {
	made, err := insert(ctx, tx, r)
	if err != nil {
		return made, err
	}
	return made, s.noteCreated(ctx, tx, made.Environment, made.ID)
}

func (s *Service) replace(ctx context.Context, tx *db.Tx, next Resource) (Resource, error) {
	if err := s.noteChanged(ctx, tx, next.Environment, next.ID); err != nil {
		return Resource{}, err
	}
	return update(ctx, tx, next)
}

func (s *Service) drop(ctx context.Context, tx *db.Tx, sc scope.Scope, r Resource) error {
	if err := s.noteChanged(ctx, tx, r.Environment, r.ID); err != nil {
		return err
	}
	if err := remove(ctx, tx, r.ID); err != nil || s.Withdraw == nil {
		return err
	}
	return s.Withdraw(ctx, tx, sc, r.ID)
}

// record writes the audit row and the event of a change.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, r Resource, verb string, changes map[string]any) error {
	types := map[string]string{"created": "RESOURCE_CREATED", "updated": "RESOURCE_UPDATED", "deleted": "RESOURCE_DELETED"}
	id := strconv.FormatInt(r.ID, 10)
	err := audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: types[verb], Object: "resource", ObjectID: id, ObjectName: r.Name, Env: r.Environment,
		Changes: changes, EventContext: map[string]any{"resource_snapshot": r.Snapshot()},
	})
	if err != nil {
		return err
	}
	return event.Emit(ctx, tx, sc, event.Event{
		Type: "resource." + verb, ObjectKind: "resource", ObjectID: id, ObjectName: r.Name, Env: r.Environment, Data: changes,
	})
}

// Snapshot returns what audit rows keep of a resource: what an operator set, and its
// version. It leaves out owner_email, and removes e-mail addresses from texts.
func (r Resource) Snapshot() map[string]any {
	out := r.members()
	for name, v := range out {
		if text, ok := v.(string); ok {
			out[name] = classify.Redact(text)
		}
	}
	return out
}

// members returns what an operator set and the version, without owner_email.
func (r Resource) members() map[string]any {
	out := r.Enrichment.members()
	delete(out, "owner_email")
	maps.Copy(out, map[string]any{
		"id": r.ID, "name": r.Name, "type": r.Type, "environment": r.Environment, "path": r.Path, "path_matching": r.PathMatching, "methods": r.Methods,
		"original_host": r.OriginalHost, "url": r.URL, "attributes": r.Attributes, "description": r.Description, "version": r.Version,
	})
	return out
}

// changesOf returns the members that differ, with old and new value, for audit rows.
func changesOf(old, next Resource) map[string]any {
	a, b, out := old.members(), next.members(), map[string]any{}
	before, after := old.Snapshot(), next.Snapshot()
	for _, m := range []map[string]any{a, b} {
		for k := range m {
			if k != "version" && !reflect.DeepEqual(a[k], b[k]) {
				out[k] = map[string]any{"from": before[k], "to": after[k]}
			}
		}
	}
	if old.OwnerEmail != next.OwnerEmail {
		out["owner_email"] = map[string]any{"changed": true}
	}
	return out
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, Lock, fn)
}

func invalid(offences []fault.Detail) error {
	return fault.CheckValues("the resource is not valid", offences)
}

// Total counts the resources of an environment, or of both, in the caller's transaction.
func Total(ctx context.Context, tx *db.Tx, env scope.Env) (int64, error) {
	return count(ctx, tx, env, Filter{})
}
