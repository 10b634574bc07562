package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxAgents bounds the agents of a tenant.
const maxAgents = 10_000

// lock is held while agents change, so that names and their number hold.
const lock = "agents"

// Service is the use cases on agents.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// PolicyExists reports whether there is a live policy of an id (package policy).
	PolicyExists func(ctx context.Context, tx *db.Tx, id int64) (bool, error)
	// Subjects is the counter that changes with every change of a stored subject.
	Subjects string
	// Auth issues and ends the keys of agents.
	Auth *auth.Service
	// Withdraw ends within tx what was granted to a subject that is removed (package access).
	Withdraw func(ctx context.Context, tx *db.Tx, sc scope.Scope, subject string) error
}

// List is one page of the agents, by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, f); err != nil {
			return err
		}
		if page.Agents, err = list(ctx, tx, f); err != nil {
			return err
		}
		shown := make([]*Agent, len(page.Agents))
		for i := range page.Agents {
			shown[i] = &page.Agents[i]
		}
		return addLastSeen(ctx, tx, shown)
	})
	return page, err
}

// Get is one agent.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Agent, error) {
	var a Agent
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		a, err = load(ctx, tx, id)
		return err
	})
	return a, err
}

// Create stores an agent.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Agent, error) {
	var made Agent
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		n, err := count(ctx, tx, Filter{})
		if err != nil {
			return err
		}
		if err := fault.CheckCount(n, maxAgents, "a tenant has at most %d agents"); err != nil {
			return err
		}
		a := d.agent()
		a.CreatedAt = db.Stamp(s.Now())
		a.UpdatedAt = a.CreatedAt
		if err := s.check(ctx, tx, a); err != nil {
			return err
		}
		if made, err = insert(ctx, tx, a); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, made, "AI_AGENT_CREATED", map[string]any{"type": made.Type, "provider": made.Provider, "model": made.Model})
	})
	return made, err
}

// Update changes the members that were sent. ifChange other than 0 must be the agent's
// ChangeNo, else Precondition.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifChange int64) (Agent, error) {
	var a Agent
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		next := old.apply(c)
		if equal(old, next) {
			a = old // no version, no audit entry
			return nil
		}
		if err := s.check(ctx, tx, next); err != nil {
			return err
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if a, err = update(ctx, tx, next); err != nil {
			return err
		}
		return s.record(ctx, tx, sc, a, "AI_AGENT_UPDATED", changed(old, a))
	})
	return a, err
}

// Delete removes an agent and its keys: decisions do not know it any more.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Agent, error) {
	var a Agent
	err := s.Auth.Dedicated.Revoke(ctx, sc, scope.Agent, SubjectID(id), func(tx *db.Tx) (err error) {
		if err = tx.Lock(ctx, lock); err != nil {
			return err
		}
		if a, err = loadCurrent(ctx, tx, id, ifChange); err != nil {
			return err
		}
		if err := errors.Join(remove(ctx, tx, id), removeUsage(ctx, tx, id)); err != nil {
			return err
		}
		if s.Withdraw != nil {
			if err := s.Withdraw(ctx, tx, sc, SubjectID(id)); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, sc, a, "AI_AGENT_DELETED", nil)
	})
	return a, err
}

// check refuses a name that is taken and policies that there are not.
func (s *Service) check(ctx context.Context, tx *db.Tx, a Agent) error {
	var offences []fault.Detail
	if a.Name == "" {
		offences = append(offences, fault.Detail{Pointer: "/name", Message: "an agent needs a name"})
	}
	for i, id := range a.Policies {
		there, err := s.PolicyExists(ctx, tx, id)
		if err != nil {
			return err
		}
		if !there {
			offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/policies/%d", i), Message: "there is no such policy"})
		}
	}
	if err := fault.CheckValues("the agent is not valid", offences); err != nil {
		return err
	}
	other, err := idByName(ctx, tx, a.Name)
	return db.CheckUnique(other, a.ID, err, "an agent named %q already exists", a.Name)
}

func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, a Agent, kind string, changes map[string]any) error {
	if _, err := tx.Bump(ctx, s.Subjects); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{
		Type: kind, Object: "agent", ObjectID: strconv.FormatInt(a.ID, 10), ObjectName: a.Name, Changes: changes,
	})
}

func (s *Service) write(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, lock, fn)
}

func load(ctx context.Context, tx *db.Tx, id int64) (Agent, error) {
	a, err := get(ctx, tx, id)
	return db.Found(a, err, true, "agent")
}

func loadCurrent(ctx context.Context, tx *db.Tx, id, ifChange int64) (Agent, error) {
	a, err := load(ctx, tx, id)
	return fault.Current(a, err, "agent", a.ChangeNo, ifChange)
}
