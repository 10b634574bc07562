package policy

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Evaluator compiles and tests the Rego of authors in another process (package worker).
type Evaluator interface {
	Validate(ctx context.Context, tenant scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error)
	Check(ctx context.Context, tenant scope.TenantID, source string, libs ...lang.Library) (worker.Validation, error)
	Test(ctx context.Context, tenant scope.TenantID, r worker.TestRequest) ([]suite.TestResult, error)
}

// Service has the use cases for policies. The function fields are dependencies that
// packages beside or above this one provide; all but MayPromote, MayTest and Impact must be set.
type Service struct {
	Compiler
	Links
	Stores  *db.Cluster
	Now     func() time.Time
	Tenants *tenant.Service
	// Data returns the document data that decisions of an environment read.
	Data func(ctx context.Context, tenant scope.TenantID, env scope.Env) (rego.DataSource, error)
	// MayPromote checks the license; a refusal is a Forbidden fault. Nil allows everything.
	MayPromote Gate
	// MayTest checks the license before tests run; a refusal is a Forbidden fault. Nil allows
	// everything.
	MayTest Gate
	// Impact replays production's decisions with the control to promote and without those that
	// it replaces. If too many decisions flip, the fault is Invalid "impact_blocked". If Impact
	// is nil or returns nil, the promotion is not limited.
	Impact func(ctx context.Context, sc scope.Scope, p Policy, replaced []Policy) (*Impact, error)
	// RecordCopy records, in the transaction of the promotion, that policy id to stays in
	// sandbox as a copy of policy id from.
	RecordCopy func(ctx context.Context, tx *db.Tx, from, to int64) error
	// Person finds a user by username, e-mail address or id. Fault: NotFound.
	Person func(ctx context.Context, sc scope.Scope, name string) (user.User, error)
	// SyncErrors returns the bouncers' refusals of the controls with ids from first to last, by
	// control.
	SyncErrors func(ctx context.Context, tx *db.Tx, first, last int64) (map[int64][]SyncError, error)

	promotions nameLocks
}

// List returns one page of the live controls, by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	page := Page{Page: f.Skip/max(f.Limit, 1) + 1, PageSize: f.Limit}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		if page.Policies, err = list(ctx, tx, sc.Env, f); err != nil {
			return err
		}
		return addSyncErrors(ctx, tx, page.Policies, s.SyncErrors)
	})
	for i := range page.Policies {
		page.Policies[i].Content = page.Policies[i].shownTo(sc)
	}
	return page, err
}

// Get returns one live control as the scope may see it.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Policy, error) {
	p, err := s.stored(ctx, sc, id)
	p.Content = p.shownTo(sc)
	return p, err
}

// stored returns one live control, including members that the scope may not see. Do not put it
// into an answer.
func (s *Service) stored(ctx context.Context, sc scope.Scope, id int64) (Policy, error) {
	var p Policy
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if p, err = loadLive(ctx, tx, sc, id); err != nil {
			return err
		}
		one := []Policy{p}
		err = addSyncErrors(ctx, tx, one, s.SyncErrors)
		p = one[0]
		return err
	})
	return p, err
}

// Create stores a control as a draft, or as active if requested. Fault: Invalid
// "invalid_policy" with the errors of Validate if it does not compile.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Policy, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Policy{}, err
	}
	d.Status = cmp.Or(d.Status, Drafted)
	if d.Status == Inactive {
		return Policy{}, fault.Invalidf("/status", "a new control must be draft or active")
	}
	d.Kind = cmp.Or(d.Kind, KindControl)
	next := Policy{Kind: d.Kind, Content: Content{
		Name: strings.TrimSpace(d.Name), Description: d.Description, Status: d.Status, Environment: env, RegoCode: d.RegoCode,
		TestCases: d.TestCases, Actions: d.Actions, Version: 1, ResourceID: d.ResourceID, BouncerID: d.BouncerID, CreatedBy: actor(sc),
	}}
	if next.Name == "" {
		return Policy{}, fault.Invalidf("/name", "the name is required")
	}
	if next.TestCases, err = mergeCases(sc, nil, d.TestCases, false); err != nil {
		return Policy{}, err
	}
	if err := next.checkLibrary(); err != nil {
		return Policy{}, err
	}
	if err := s.checkCompiles(ctx, sc, next); err != nil {
		return Policy{}, err
	}
	var made Policy
	err = s.write(ctx, sc, func(tx *db.Tx) (err error) {
		if made, err = s.insertNew(ctx, tx, sc, next, step{verb: "created"}); err != nil {
			return err
		}
		made.Warnings, err = shadowWarnings(ctx, tx, made)
		return err
	})
	return made, err
}

// Update changes the members that were sent and makes a new version, unless nothing changes. If
// ifVersion is not 0, it must be the current version. Fault: Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifVersion int64) (Policy, error) {
	// Checked again in the transaction. This check is first, so that a 404 or 412 does not wait
	// for a compilation.
	old, err := s.stored(ctx, sc, id)
	if err == nil {
		err = fault.CheckVersion("policy", old.Version, ifVersion)
	}
	if err == nil && c.RegoCode != nil && *c.RegoCode != old.RegoCode {
		next := old
		next.RegoCode = *c.RegoCode
		err = s.checkCompiles(ctx, sc, next)
	}
	if err != nil {
		return Policy{}, err
	}
	p, err := s.change(ctx, sc, id, ifVersion, step{verb: "updated"}, func(_ *db.Tx, old Policy) (Policy, error) { return old.apply(sc, c) })
	p.Content = p.shownTo(sc)
	return p, err
}

// change makes one change of a live control: it loads the control, calls decide for the new state,
// checks its links, and writes it.
func (s *Service) change(ctx context.Context, sc scope.Scope, id, ifVersion int64, st step, decide func(*db.Tx, Policy) (Policy, error)) (Policy, error) {
	var p Policy
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadLive(ctx, tx, sc, id)
		if old, err = fault.Current(old, err, "policy", old.Version, ifVersion); err != nil {
			return err
		}
		next, err := decide(tx, old)
		if err != nil {
			return err
		}
		if st.verb == "updated" && reflect.DeepEqual(next, old) {
			p = old // nothing changes: no version, no audit entry, no event
			return nil
		}
		p, err = s.storeNext(ctx, tx, sc, old, next, st)
		return err
	})
	return p, err
}

// apply returns p with the members of c that were sent, or a fault if the change is not allowed.
func (p Policy) apply(sc scope.Scope, c Change) (Policy, error) {
	if c.Environment != nil && *c.Environment != p.Environment {
		return Policy{}, fault.Invalidf("/environment", "only a promotion changes the environment of a control")
	}
	if c.Status != nil {
		if err := transition(p.Status, *c.Status); err != nil {
			return Policy{}, err
		}
		p.Status = *c.Status
	}
	if c.Name != nil {
		if p.Name = strings.TrimSpace(*c.Name); p.Name == "" {
			return Policy{}, fault.Invalidf("/name", "the name is required")
		}
	}
	patch.Assign(&p.RegoCode, c.RegoCode)
	c.Description.Apply(&p.Description)
	c.ResourceID.ApplyPointer(&p.ResourceID)
	c.BouncerID.ApplyPointer(&p.BouncerID)
	if c.TestCases.Sent {
		cases, err := mergeCases(sc, p.TestCases, c.TestCases.Value, c.KeepRecorded)
		if err != nil {
			return Policy{}, err
		}
		p.TestCases = cases
	}
	if len(c.AddRecorded) > 0 {
		p.TestCases = slices.Concat(p.TestCases, c.AddRecorded)
	}
	c.Actions.Apply(&p.Actions)
	return p, nil
}

// transition checks the change from one state to another: draft to active, active to
// inactive and back, and never back to draft.
func transition(from, to string) error {
	switch {
	case from == to, to == Active, from == Active && to == Inactive:
		return nil
	default:
		return fault.Newf(fault.Conflict, "invalid_transition", "a control that is %s cannot become %s", from, to)
	}
}

// loadLive returns one live control in the scope. Fault: NotFound.
func loadLive(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Policy, error) {
	p, err := get(ctx, tx, id)
	return db.Found(p, err, p.DeletedAt == nil && sc.Sees(p.Environment), "policy")
}

// addSyncErrors sets SyncErrors of policies, which must be sorted by id.
func addSyncErrors(ctx context.Context, tx *db.Tx, ps []Policy, list func(context.Context, *db.Tx, int64, int64) (map[int64][]SyncError, error)) error {
	if len(ps) == 0 {
		return nil
	}
	all, err := list(ctx, tx, ps[0].ID, ps[len(ps)-1].ID)
	for i := range ps {
		if found := all[ps[i].ID]; found != nil {
			ps[i].SyncErrors = found
		}
	}
	return err
}

// actor returns the name of the caller, or the id if there is no name.
func actor(sc scope.Scope) string {
	if sc.Actor.Name != "" {
		return sc.Actor.Name
	}
	return sc.Actor.ID
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, resource.Lock, fn)
}

func sortedKeys[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func isNotFound(err error) bool { return fault.Is(err, fault.NotFound) }
