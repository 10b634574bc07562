package actions

import (
	"context"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestOfUsesTheIndex: every batch of decisions runs the query for all controls with actions.
func TestOfUsesTheIndex(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	err := c.Read(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
		plan, err := db.All[struct {
			ID     int64  `db:"id"`
			Parent int64  `db:"parent"`
			Unused int64  `db:"notused"`
			Detail string `db:"detail"`
		}](context.Background(), tx, "EXPLAIN QUERY PLAN "+actingIDs)
		if err == nil && (len(plan) != 1 || !strings.Contains(plan[0].Detail, "policies_acting")) {
			t.Errorf("plan = %+v, want the index policies_acting", plan)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
