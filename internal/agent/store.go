package agent

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

const (
	columns  = `id, name, type, provider, model, status, configuration, policies, attributes, created_at, updated_at, change_no, oauth_client_ids`
	filtered = ` FROM agents WHERE ($1 = '' OR type = $1) AND ($2 = '' OR provider = $2)`
)

func count(ctx context.Context, tx *db.Tx, f Filter) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*)`+filtered, f.Type, f.Provider)
}

func list(ctx context.Context, tx *db.Tx, f Filter) ([]Agent, error) {
	return db.All[Agent](ctx, tx, `SELECT `+columns+filtered+` ORDER BY id LIMIT $3 OFFSET $4`, f.Type, f.Provider, f.Limit, f.Skip)
}

func get(ctx context.Context, tx *db.Tx, id int64) (Agent, error) {
	return db.One[Agent](ctx, tx, `SELECT `+columns+` FROM agents WHERE id = $1`, id)
}

func idByName(ctx context.Context, tx *db.Tx, name string) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT id FROM agents WHERE name = $1`, name)
}

func insert(ctx context.Context, tx *db.Tx, a Agent) (Agent, error) {
	return db.One[Agent](ctx, tx, `INSERT INTO agents (name, type, provider, model, status, configuration, policies, attributes, created_at, updated_at, change_no, oauth_client_ids)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING `+columns,
		a.Name, a.Type, a.Provider, a.Model, a.Status, a.Configuration, a.Policies, a.Attributes, a.CreatedAt, a.UpdatedAt, a.ChangeNo, listed(a.OAuthClients))
}

func update(ctx context.Context, tx *db.Tx, a Agent) (Agent, error) {
	return db.One[Agent](ctx, tx, `UPDATE agents SET name = $2, type = $3, provider = $4, model = $5, status = $6, configuration = $7, policies = $8,
			attributes = $9, updated_at = $10, change_no = $11, oauth_client_ids = $12 WHERE id = $1 RETURNING `+columns,
		a.ID, a.Name, a.Type, a.Provider, a.Model, a.Status, a.Configuration, a.Policies, a.Attributes, a.UpdatedAt, a.ChangeNo, listed(a.OAuthClients))
}

func remove(ctx context.Context, tx *db.Tx, id int64) error {
	return tx.Do(ctx, `DELETE FROM agents WHERE id = $1`, id)
}

// lastID returns the greatest id that an agent has or had; 0: there was none.
func lastID(ctx context.Context, tx *db.Tx) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COALESCE(MAX(id), 0) FROM (SELECT MAX(id) AS id FROM agents UNION ALL SELECT last_id AS id FROM agents_removed) AS ids`)
}

// keepLastID stores what lastID returns, before the agent with that id is removed.
func keepLastID(ctx context.Context, tx *db.Tx) error {
	return tx.Do(ctx, `INSERT INTO agents_removed (one, last_id) SELECT 1, MAX(id) FROM agents WHERE true
		ON CONFLICT (one) DO UPDATE SET last_id = excluded.last_id WHERE excluded.last_id > agents_removed.last_id`)
}

func activeIDs(ctx context.Context, tx *db.Tx) ([]int64, error) {
	return db.All[int64](ctx, tx, `SELECT id FROM agents WHERE status = $1 ORDER BY id`, Active)
}

// withClients returns the agents that have OAuth clients.
func withClients(ctx context.Context, tx *db.Tx) ([]Agent, error) {
	return db.All[Agent](ctx, tx, `SELECT `+columns+` FROM agents WHERE oauth_client_ids NOT IN ('[]', 'null') ORDER BY id`)
}

func listRemovedClients(ctx context.Context, tx *db.Tx) ([]client, error) {
	return db.All[client](ctx, tx, `SELECT agent_id, client_id FROM agent_clients_removed`)
}

// keepClients stores the OAuth clients of an agent that is removed. Beyond maxClients, it forgets those
// that were removed first.
func keepClients(ctx context.Context, tx *db.Tx, a Agent) error {
	for _, id := range a.OAuthClients {
		if err := tx.Do(ctx, `INSERT INTO agent_clients_removed (client_id, agent_id, no)
				VALUES ($1, $2, (SELECT COALESCE(MAX(no), 0) + 1 FROM agent_clients_removed))
			ON CONFLICT (client_id) DO UPDATE SET agent_id = excluded.agent_id, no = excluded.no`, id, a.ID); err != nil {
			return err
		}
	}
	return tx.Do(ctx, `DELETE FROM agent_clients_removed WHERE client_id NOT IN
		(SELECT client_id FROM agent_clients_removed ORDER BY no DESC LIMIT $1)`, maxClients)
}

// takeClients forgets that removed agents had the OAuth clients of an agent.
func takeClients(ctx context.Context, tx *db.Tx, a Agent) error {
	for _, id := range a.OAuthClients {
		if err := tx.Do(ctx, `DELETE FROM agent_clients_removed WHERE client_id = $1`, id); err != nil {
			return err
		}
	}
	return nil
}

func insertChange(ctx context.Context, tx *db.Tx, env scope.Env, revision, oldest int64) error {
	if err := tx.Do(ctx, `INSERT INTO agent_changes (environment, revision) VALUES ($1, $2)`, string(env), revision); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM agent_changes WHERE environment = $1 AND revision <= $2`, string(env), oldest)
}

// ChangesSince counts the revisions of an environment after since that changed which agents are
// stopped.
func ChangesSince(ctx context.Context, tx *db.Tx, env scope.Env, since int64) (int64, error) {
	return db.One[int64](ctx, tx, `SELECT COUNT(*) FROM agent_changes WHERE environment = $1 AND revision > $2`, string(env), since)
}
