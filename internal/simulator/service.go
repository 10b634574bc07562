package simulator

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/simulator/record"
	"github.com/gatehouse-dev/gatehouse/internal/worker"
)

// Evaluator runs the Rego of authors in another process (package worker).
type Evaluator interface {
	Simulate(ctx context.Context, tenant scope.TenantID, r worker.SimulateRequest) (worker.Simulation, error)
	Attributes(ctx context.Context, tenant scope.TenantID, sources []string) ([][]lang.Attribute, error)
}

// Service has the use cases of the simulator. All fields must be set.
type Service struct {
	Stores    *db.Cluster
	Now       func() time.Time
	Evaluator Evaluator
	Policies  *policy.Service
	// Snapshots have the resources and the data that a live decision would use.
	Snapshots *decision.Snapshots
	// Person returns the stored members of a user; undefined for an unknown user.
	Person func(ctx context.Context, tenant scope.TenantID, id string) (value.Value, error)
	// LiveDeadline limits the time of a live evaluation. A run that took longer has a note.
	LiveDeadline time.Duration

	targets targets
}

// Loadable returns the controls of the scope's environment in any state, sorted by id.
func (s *Service) Loadable(ctx context.Context, sc scope.Scope) ([]Loadable, error) {
	list, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) ([]Loadable, error) { return loadable(ctx, tx, sc.Env) })
	if err != nil {
		return nil, err
	}
	sources := make([]string, len(list))
	for i := range list {
		sources[i] = list[i].Source
	}
	actions := s.actions(ctx, sc, sources)
	for i := range list {
		l := &list[i]
		l.Status = shownStatus(l.Status)
		if l.TargetAction = actions[i]; len(l.TargetAction) == 0 {
			l.TargetAction = l.Methods
		}
		if l.TargetAction == nil {
			l.TargetAction = []string{}
		}
	}
	return list, nil
}

// shownStatus returns the simulator's name for a control's state.
func shownStatus(status string) string {
	if status == policy.Active {
		return "enabled"
	}
	return status
}

// control returns a control of the scope. It fails for a library, which decides nothing.
func (s *Service) control(ctx context.Context, sc scope.Scope, id int64) (policy.Policy, error) {
	p, err := s.Policies.Get(ctx, sc, id)
	if err == nil && p.Kind == policy.KindLibrary {
		err = fault.NotFoundf("no such control: the policy is a library")
	}
	return p, err
}

// Attributes returns what a control reads of input, with types guessed from the use.
func (s *Service) Attributes(ctx context.Context, sc scope.Scope, id int64) ([]lang.Attribute, error) {
	p, err := s.control(ctx, sc, id)
	if err != nil {
		return nil, err
	}
	found, err := s.Evaluator.Attributes(ctx, sc.Tenant, []string{p.RegoCode})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// actions returns the actions that each source names. They only help people, so there are none if
// the evaluator is busy.
func (s *Service) actions(ctx context.Context, sc scope.Scope, sources []string) [][]string {
	const batch = 64
	out := make([][]string, len(sources))
	var unknown []int
	for i, source := range sources {
		var ok bool
		if out[i], ok = s.targets.get(source); !ok {
			unknown = append(unknown, i)
		}
	}
	for part := range slices.Chunk(unknown, batch) {
		texts := make([]string, len(part))
		for i, at := range part {
			texts[i] = sources[at]
		}
		found, err := s.Evaluator.Attributes(ctx, sc.Tenant, texts)
		if err != nil {
			return out
		}
		for i, at := range part {
			out[at] = actionsOf(found[i])
			s.targets.put(sources[at], out[at])
		}
	}
	return out
}

func actionsOf(attributes []lang.Attribute) []string {
	actions := []string{}
	for _, a := range attributes {
		if a.Key != "action.name" && a.Key != "action.method" && a.Key != "action" {
			continue
		}
		for _, v := range a.Values {
			if text, ok := v.(string); ok && !slices.Contains(actions, text) {
				actions = append(actions, text)
			}
		}
	}
	return actions
}

// targets caches the actions by source, which do not depend on the tenant.
type targets struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte][]string
}

// targetsMax limits the entries of targets, to about 1 MB.
const targetsMax = 4096

func (t *targets) get(source string) ([]string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	actions, ok := t.all[sha256.Sum256([]byte(source))]
	return actions, ok
}

func (t *targets) put(source string, actions []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil || len(t.all) >= targetsMax {
		t.all = map[[sha256.Size]byte][]string{}
	}
	t.all[sha256.Sum256([]byte(source))] = actions
}

// History returns the runs of one control, newest first.
func (s *Service) History(ctx context.Context, sc scope.Scope, policyID int64, f Filter) (History, error) {
	if _, err := s.Policies.Get(ctx, sc, policyID); err != nil {
		return History{}, err
	}
	return s.history(ctx, sc, f, func(tx *db.Tx) ([]Entry, int64, error) { return listOfPolicy(ctx, tx, policyID, sc.Env, f) })
}

// ListOwn returns the caller's runs of all controls, newest first.
func (s *Service) ListOwn(ctx context.Context, sc scope.Scope, f Filter) (History, error) {
	return s.history(ctx, sc, f, func(tx *db.Tx) ([]Entry, int64, error) { return listOfActor(ctx, tx, sc.Actor, sc.Env, f) })
}

func (s *Service) history(ctx context.Context, sc scope.Scope, f Filter, list func(tx *db.Tx) ([]Entry, int64, error)) (History, error) {
	h := History{Limit: f.Limit, Offset: f.Offset}
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		h.Entries, h.Total, err = list(tx)
		return err
	})
	for i := range h.Entries {
		e := &h.Entries[i]
		e.ExecutionTimeMS = milliseconds(time.Duration(e.Nanoseconds))
		if e.CanExport = mayExport(sc, e.ActorKind, e.ActorID); !e.CanExport {
			e.InputSummary = "" // it quotes the recorded input
		}
	}
	h.HasMore = f.Offset < h.Total && f.Offset+int64(len(h.Entries)) < h.Total
	return h, err
}

// mayExport reports whether the caller may see all of a run: it is their own run, or they may read
// the audit.
func mayExport(sc scope.Scope, kind scope.ActorKind, id string) bool {
	return kind == sc.Actor.Kind && id == sc.Actor.ID || sc.Require("audit:read") == nil
}

// Run returns a stored run for an export. A run of somebody else needs audit:read. Fault: NotFound,
// also for a run of the other environment.
func (s *Service) Run(ctx context.Context, sc scope.Scope, id int64) (record.StoredRun, error) {
	r, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (row, error) { return get(ctx, tx, id) })
	if r, err = db.Found(r, err, sc.Sees(r.Environment), "simulation"); err != nil {
		return record.StoredRun{}, err
	}
	if !mayExport(sc, r.ActorKind, r.ActorID) {
		return record.StoredRun{}, fault.New(fault.Forbidden, "permission_denied", `another person's simulation needs the permission "audit:read"`)
	}
	return parseStored(r)
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.Write(ctx, sc.Tenant, fn)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// nameOf returns the name of an actor for people.
func nameOf(a scope.Actor) string {
	if a.Name != "" {
		return a.Name
	}
	return a.ID
}
