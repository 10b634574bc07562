package agent

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

func existing(ctx context.Context, tx *db.Tx, ids []int64) ([]int64, error) {
	return db.AllIn[int64](ctx, tx, `SELECT id FROM agents WHERE id IN ($in)`, ids)
}

func addDays(ctx context.Context, tx *db.Tx, days map[[2]int64]*used) error {
	rows := make([][]any, 0, len(days))
	for _, u := range days {
		rows = append(rows, []any{u.agent, u.day, u.requests, u.denied, u.tokens, u.last})
	}
	return db.DoRows(ctx, tx, `INSERT INTO agent_usage (agent_id, day, requests, denied, tokens, last_at) VALUES `, rows,
		` ON CONFLICT (agent_id, day) DO UPDATE SET requests = agent_usage.requests + excluded.requests, denied = agent_usage.denied + excluded.denied,
		tokens = agent_usage.tokens + excluded.tokens,
		last_at = CASE WHEN excluded.last_at > agent_usage.last_at THEN excluded.last_at ELSE agent_usage.last_at END`)
}

func removeDays(ctx context.Context, tx *db.Tx, before time.Time) error {
	return tx.Do(ctx, `DELETE FROM agent_usage WHERE day < $1`, before)
}

func toolNames(ctx context.Context, tx *db.Tx, id int64) ([]string, error) {
	return db.All[string](ctx, tx, `SELECT name FROM agent_tools WHERE agent_id = $1`, id)
}

func addTools(ctx context.Context, tx *db.Tx, list []*called) error {
	rows := make([][]any, len(list))
	for i, c := range list {
		rows[i] = []any{c.agent, c.name, c.calls, c.last}
	}
	return db.DoRows(ctx, tx, `INSERT INTO agent_tools (agent_id, name, calls, last_at) VALUES `, rows,
		` ON CONFLICT (agent_id, name) DO UPDATE SET calls = agent_tools.calls + excluded.calls,
		last_at = CASE WHEN excluded.last_at > agent_tools.last_at THEN excluded.last_at ELSE agent_tools.last_at END`)
}

func usageSince(ctx context.Context, tx *db.Tx, id int64, from time.Time) (Usage, error) {
	return db.One[Usage](ctx, tx, `SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT) AS requests, CAST(COALESCE(SUM(denied), 0) AS BIGINT) AS denied,
		CAST(COALESCE(SUM(tokens), 0) AS BIGINT) AS tokens FROM agent_usage WHERE agent_id = $1 AND day >= $2`, id, from)
}

func toolsOf(ctx context.Context, tx *db.Tx, id int64) ([]ToolUse, error) {
	return db.All[ToolUse](ctx, tx, `SELECT name, calls, last_at FROM agent_tools WHERE agent_id = $1`, id)
}

// seenRow says when an agent was last seen.
type seenRow struct {
	ID int64     `db:"agent_id"`
	At time.Time `db:"at"`
}

func lastSeen(ctx context.Context, tx *db.Tx, ids []int64) ([]seenRow, error) {
	return db.AllIn[seenRow](ctx, tx, `SELECT agent_id, MAX(last_at) AS at FROM agent_usage WHERE agent_id IN ($in) GROUP BY agent_id`, ids)
}

func removeUsage(ctx context.Context, tx *db.Tx, id int64) error {
	if err := tx.Do(ctx, `DELETE FROM agent_usage WHERE agent_id = $1`, id); err != nil {
		return err
	}
	return tx.Do(ctx, `DELETE FROM agent_tools WHERE agent_id = $1`, id)
}
