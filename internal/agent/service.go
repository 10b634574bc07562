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

// maxAgents is how many agents a tenant may have.
const maxAgents = 10_000

// lock is held while agents change, so that names stay unique and the number of agents stays
// bounded.
const lock = "agents"

// Service has the use cases of agents.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// PolicyExists reports whether a policy with an id exists and is not deleted (package policy).
	PolicyExists func(ctx context.Context, tx *db.Tx, id int64) (bool, error)
	// Subjects is the name of the revision that every change of a stored subject increases.
	Subjects string
	// Auth issues and revokes the keys of agents.
	Auth *auth.Service
	// Withdraw ends, within tx, the grants of a subject that is removed (package access); nil: there
	// are none.
	Withdraw func(ctx context.Context, tx *db.Tx, sc scope.Scope, subject string) error
}

// List returns one page of the agents that match a filter, sorted by id, with when each was last
// seen.
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

// Get returns one agent. Fault: NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Agent, error) {
	return db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Agent, error) { return load(ctx, tx, id) })
}

// Create stores an agent.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Agent, error) {
	var made Agent
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		n, err := count(ctx, tx, Filter{})
		if err := fault.CheckCounted(n, err, maxAgents, "a tenant has at most %d agents"); err != nil {
			return err
		}
		a := d.agent()
		a.CreatedAt = db.Stamp(s.Now())
		a.UpdatedAt = a.CreatedAt
		if err := s.check(ctx, tx, a); err != nil {
			return err
		}
		last, err := lastID(ctx, tx)
		if err != nil {
			return err
		}
		if made, err = insert(ctx, tx, a); err != nil {
			return err
		}
		if err := takeClients(ctx, tx, made); err != nil {
			return err
		}
		// Ids that PostgreSQL has skipped are stopped, too.
		if made.Status != Active || len(made.OAuthClients) > 0 || made.ID != last+1 {
			if err := noteChange(ctx, tx); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, sc, made, "AI_AGENT_CREATED", map[string]any{"type": made.Type, "provider": made.Provider, "model": made.Model})
	})
	return made, err
}

// Update changes the members that were sent. If ifChange is not 0, it must be the agent's ChangeNo;
// if it is not, Update fails with a Precondition fault.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, c Change, ifChange int64) (Agent, error) {
	var a Agent
	err := s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, id, ifChange)
		if err != nil {
			return err
		}
		next := old.apply(c)
		if equal(old, next) {
			a = old // nothing changed: no new ChangeNo, no audit entry
			return nil
		}
		if err := s.check(ctx, tx, next); err != nil {
			return err
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if a, err = update(ctx, tx, next); err != nil {
			return err
		}
		if err := takeClients(ctx, tx, a); err != nil {
			return err
		}
		if differs(old, a) {
			if err := noteChange(ctx, tx); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, sc, a, "AI_AGENT_UPDATED", changesOf(old, a))
	})
	return a, err
}

// Delete removes an agent with its keys, usage and grants. It stays stopped. ifChange is that of
// Update.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) (Agent, error) {
	var a Agent
	err := s.Auth.Dedicated.Revoke(ctx, sc, scope.Agent, scope.AgentSubject(id), func(tx *db.Tx) (err error) {
		a, err = s.deleteIn(ctx, tx, sc, id, ifChange)
		return err
	})
	return a, err
}

// deleteIn is Delete without the keys, within tx.
func (s *Service) deleteIn(ctx context.Context, tx *db.Tx, sc scope.Scope, id, ifChange int64) (Agent, error) {
	if err := tx.Lock(ctx, lock); err != nil {
		return Agent{}, err
	}
	a, err := loadCurrent(ctx, tx, id, ifChange)
	if err != nil {
		return a, err
	}
	if err := errors.Join(keepLastID(ctx, tx), keepClients(ctx, tx, a), remove(ctx, tx, id), removeUsage(ctx, tx, id)); err != nil {
		return a, err
	}
	if a.Status == Active || len(a.OAuthClients) > 0 {
		if err := noteChange(ctx, tx); err != nil {
			return a, err
		}
	}
	if s.Withdraw != nil {
		if err := s.Withdraw(ctx, tx, sc, scope.AgentSubject(id)); err != nil {
			return a, err
		}
	}
	return a, s.record(ctx, tx, sc, a, "AI_AGENT_DELETED", nil)
}

// check refuses an agent whose name is empty or taken, whose policies do not exist, or whose OAuth
// clients are not valid.
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
	clients, err := checkClients(ctx, tx, a)
	if err != nil {
		return err
	}
	offences = append(offences, clients...)
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
