package agent

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxKeys is how many keys of an agent may be valid at the same time.
const maxKeys = 10

// Keys are the keys of an agent.
type Keys struct {
	Keys []auth.DedicatedKey `json:"keys" nullable:"false" doc:"The agent's keys, newest first. The keys themselves are never returned. After a replacement, the old one is there until it ends."`
}

// Holder returns the active agent that a key belongs to. Its only permission is to request
// decisions. Fault: NotFound, also if the agent is inactive.
func Holder(ctx context.Context, tx *db.Tx, subject string) (auth.Holder, error) {
	id, ok := ParseSubject(subject)
	if !ok {
		return auth.Holder{}, fault.NotFoundf("no such agent")
	}
	a, err := load(ctx, tx, id)
	if err == nil && a.Status != Active {
		err = fault.NotFoundf("the agent is inactive")
	}
	return auth.Holder{Name: a.Name, Permissions: scope.Permissions{List: []scope.Permission{"decisions:read"}}}, err
}

// Keys lists the agent's keys. Fault: NotFound.
func (s *Service) Keys(ctx context.Context, sc scope.Scope, id int64) (Keys, error) {
	var out Keys
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if _, err = load(ctx, tx, id); err != nil {
			return err
		}
		out.Keys, err = auth.DedicatedKeys(ctx, tx, scope.Agent, scope.AgentSubject(id))
		return err
	})
	return out, err
}

// IssueKey creates a key for the agent. Only the answer contains it. Earlier keys stay valid for
// grace. Concurrent callers each get a key, and that of the earlier caller ends like other earlier
// keys. Faults: NotFound, Forbidden beyond maxKeys.
func (s *Service) IssueKey(ctx context.Context, sc scope.Scope, id int64, grace time.Duration) (auth.DedicatedKey, error) {
	a, err := s.Get(ctx, sc, id)
	if err != nil {
		return auth.DedicatedKey{}, err
	}
	return s.Auth.Dedicated.Issue(ctx, sc, scope.Agent, scope.AgentSubject(id), a.Name, grace, func(tx *db.Tx) error {
		if _, err := load(ctx, tx, id); err != nil { // it may have been removed in the meantime
			return err
		}
		keys, err := auth.DedicatedKeys(ctx, tx, scope.Agent, scope.AgentSubject(id))
		if err != nil || grace <= 0 {
			return err
		}
		live := int64(-1) // without the new one
		for _, k := range keys {
			if k.ExpiresAt == nil || k.ExpiresAt.After(s.Now()) {
				live++
			}
		}
		return fault.CheckCount(live, maxKeys, "an agent has at most %d keys at the same time; revoke them, or replace them without a grace period")
	})
}

// RevokeKeys ends all keys of the agent at once. Fault: NotFound.
func (s *Service) RevokeKeys(ctx context.Context, sc scope.Scope, id int64) (Agent, error) {
	var a Agent
	err := s.Auth.Dedicated.Revoke(ctx, sc, scope.Agent, scope.AgentSubject(id), func(tx *db.Tx) (err error) {
		if a, err = load(ctx, tx, id); err != nil {
			return err
		}
		return audit.Append(ctx, tx, sc, s.Now(), audit.Entry{Type: "AGENT_KEYS_REVOKED", Object: "agent", ObjectID: strconv.FormatInt(id, 10), ObjectName: a.Name})
	})
	return a, err
}
