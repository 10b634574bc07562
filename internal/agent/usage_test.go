package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/actor"
	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestCount: the number of tools is bounded, old days are deleted, times in the future count as now,
// and a removed agent leaves nothing behind.
func TestCount(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		s := &Service{Stores: c, Now: func() time.Time { return now }, Subjects: "subjects"}
		ctx, sc := t.Context(), auth.SystemScope(scope.DefaultTenant, "test", "")
		a, err := s.Create(ctx, sc, Draft{Name: "bot", Type: "llm"})
		errtest.Must(t, err)
		use := func(at time.Time, tool string, tokens, count int64, permit bool) audit.NewDecision {
			return audit.NewDecision{Agent: &actor.AgentUse{ID: scope.AgentSubject(a.ID), Tool: tool, EstimatedTokens: tokens}, At: at, Count: count, Permit: permit}
		}
		take := func(fresh ...audit.NewDecision) {
			t.Helper()
			errtest.Must(t, c.Write(ctx, sc.Tenant, func(tx *db.Tx) error { return s.Count(ctx, tx, fresh) }))
		}
		var many []audit.NewDecision
		for i := range 150 {
			many = append(many, use(now, fmt.Sprintf("tool %03d", i), 1, 1, true))
		}
		take(many...)
		take(use(now.Add(1000*time.Hour), "tool 000", 10, 5, false), use(now, "tool 200", 0, 1, true), audit.NewDecision{PolicyID: 1, At: now, Count: 1},
			audit.NewDecision{Agent: &actor.AgentUse{ID: "agent:99"}, At: now, Count: 1}, audit.NewDecision{Agent: &actor.AgentUse{ID: "somebody"}, At: now, Count: 1})
		got, err := s.GetUsed(ctx, sc, a.ID)
		errtest.Must(t, err)
		u := got.Usage
		if u.Requests != 156 || u.Denied != 5 || u.EstimatedTokens != 200 || len(u.Tools) != maxTools || u.OtherToolCalls != 51 || u.Tools[0].Calls != 6 || !got.LastSeenAt.Equal(now) {
			t.Errorf("%d requests, %d denied, %d tokens, %d tools, %d other calls, seen %v: %+v", u.Requests, u.Denied, u.EstimatedTokens, len(u.Tools), u.OtherToolCalls, got.LastSeenAt, u.Tools[:2])
		}
		now = now.Add(31 * day)
		if got, err = s.GetUsed(ctx, sc, a.ID); err != nil || got.Usage.Requests != 0 || len(got.Usage.Tools) != maxTools || got.LastSeenAt == nil {
			t.Errorf("usage after a month = %+v, %v, want no requests", got.Usage, err)
		}
		now = now.Add(keptDays * day)
		take(use(now, "", 0, 1, true))
		if n := rowsOf(t, ctx, c, `SELECT COUNT(*) FROM agent_usage`); n != 1 {
			t.Errorf("%d days are stored, want 1", n)
		}
		errtest.Must(t, c.Write(ctx, sc.Tenant, func(tx *db.Tx) error { return removeUsage(ctx, tx, a.ID) }))
		if n := rowsOf(t, ctx, c, `SELECT (SELECT COUNT(*) FROM agent_usage) + (SELECT COUNT(*) FROM agent_tools)`); n != 0 {
			t.Errorf("%d rows remain, want none", n)
		}
	})
}

func rowsOf(t *testing.T, ctx context.Context, c *db.Cluster, sql string) (n int64) {
	t.Helper()
	if err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) { n, err = db.One[int64](ctx, tx, sql); return err }); err != nil {
		t.Fatal(err)
	}
	return n
}
