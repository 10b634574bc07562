package db_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestNewerSchema: a program that is older than the schema of the system or of a tenant does not
// start. Its error says what to do. A program that already runs continues.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		for _, where := range []string{"system", "tenant"} {
			t.Run(backend+" "+where, func(t *testing.T) {
				ctx := context.Background()
				cfg := dbtest.Config(t, backend)
				c, err := db.Open(ctx, cfg)
				errtest.Must(t, err)
				defer c.Close()
				if err := c.CreateTenant(ctx, scope.DefaultTenant); err != nil && !fault.Is(err, fault.Conflict) {
					t.Fatal(err)
				}
				store, err := c.Tenant(ctx, scope.DefaultTenant)
				errtest.Must(t, err)
				if where == "system" {
					store = c.System()
				}
				if err := store.Write(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9876, TRUE)`)
					return err
				}); err != nil {
					t.Fatal(err)
				}
				again, err := db.Open(ctx, cfg)
				if err == nil {
					_ = again.Close()
				}
				if !errors.Is(err, db.ErrNewer) || !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), "version 9876") || !strings.Contains(err.Error(), "Start the newer program") {
					t.Errorf("db.Open of the older program = %v, want ErrNewer for %s with advice", err, where)
				}
				if _, err := c.System().Revision(ctx, "x"); err != nil {
					t.Errorf("Revision in the running program: %v", err)
				}
				if _, err := c.Tenant(ctx, scope.DefaultTenant); err != nil {
					t.Errorf("Tenant in the running program: %v", err)
				}
			})
		}
	}
}
