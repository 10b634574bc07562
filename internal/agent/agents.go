package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxClients is how many OAuth clients the agents of a tenant may have together. Each bundle
// carries them. As many clients of removed agents are remembered.
const maxClients = 1000

// maxClientID is the greatest length of the id of an OAuth client, in bytes.
const maxClientID = 200

// client is an OAuth client of an agent.
type client struct {
	Agent int64  `db:"agent_id"`
	ID    string `db:"client_id"`
}

// ForDecisions returns what decisions know of a tenant's agents: which are stopped, and whose OAuth
// clients they know. Agents that were removed stay stopped, because ids are never given out again;
// their clients stay theirs until another agent has them. The result changes only together with
// the revisions of both environments.
func ForDecisions(ctx context.Context, tx *db.Tx) (actor.Agents, error) {
	last, err := lastID(ctx, tx)
	if err != nil || last == 0 {
		return actor.Agents{}, err
	}
	active, err := activeIDs(ctx, tx)
	if err != nil {
		return actor.Agents{}, err
	}
	clients, err := removedClients(ctx, tx)
	if err != nil {
		return actor.Agents{}, err
	}
	own, err := clientsOf(ctx, tx)
	if err != nil {
		return actor.Agents{}, err
	}
	maps.Copy(clients, own)
	return actor.NewAgents(active, last, clients), nil
}

// clientsOf returns the agents that the tenant has by the ids of their OAuth clients.
func clientsOf(ctx context.Context, tx *db.Tx) (map[string]int64, error) {
	agents, err := withClients(ctx, tx)
	out := map[string]int64{}
	for _, a := range agents {
		for _, id := range a.OAuthClients {
			out[id] = a.ID
		}
	}
	return out, err
}

func removedClients(ctx context.Context, tx *db.Tx) (map[string]int64, error) {
	list, err := listRemovedClients(ctx, tx)
	out := make(map[string]int64, len(list))
	for _, c := range list {
		out[c.ID] = c.Agent
	}
	return out, err
}

// checkClients returns what is wrong with the OAuth clients of an agent.
func checkClients(ctx context.Context, tx *db.Tx, a Agent) ([]fault.Detail, error) {
	if len(a.OAuthClients) == 0 {
		return nil, nil
	}
	taken, err := clientsOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(taken, func(_ string, agent int64) bool { return agent == a.ID })
	if len(taken)+len(a.OAuthClients) > maxClients {
		return nil, fault.CheckCount(maxClients, maxClients, "the agents of a tenant have at most %d OAuth clients")
	}
	var offences []fault.Detail
	for i, id := range a.OAuthClients {
		problem := ""
		switch {
		case strings.TrimSpace(id) != id || id == "":
			problem = "must not be empty, or begin or end with a space"
		case len(id) > maxClientID:
			problem = fmt.Sprintf("must have at most %d bytes", maxClientID)
		case scope.NamesAgent(id):
			problem = "must not begin with " + scope.AgentPrefix
		case slices.Contains(a.OAuthClients[:i], id):
			problem = "is there twice"
		case taken[id] != 0:
			problem = "is a client of another agent"
		default:
			continue
		}
		offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/oauth_client_ids/%d", i), Message: problem})
	}
	return offences, nil
}

// noteChange increments the revisions of both environments, and records that what decisions know of
// agents changed. Agents belong to no environment. It increases the revision of sandbox first, as
// other code does, so that two transactions cannot deadlock.
func noteChange(ctx context.Context, tx *db.Tx) error {
	for _, env := range []scope.Env{scope.Sandbox, scope.Production} {
		revision, err := tx.Bump(ctx, resource.Revision(env))
		if err != nil {
			return err
		}
		if err := insertChange(ctx, tx, env, revision, revision-resource.KeptRevisions); err != nil {
			return err
		}
	}
	return nil
}

// differs reports whether decisions treat two versions of an agent differently.
func differs(a, b Agent) bool {
	return a.Status != b.Status || !slices.Equal(a.OAuthClients, b.OAuthClients)
}
