package tenant

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestAnOpenAlertIsNotHidden: the list has an alert that is open still, however many came and went
// after it, and a bounded number of those.
func TestAnOpenAlertIsNotHidden(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		var list []Alert
		err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200)
				INSERT INTO tenant_alerts (type, severity, subject, message, created_at, resolved_at)
				SELECT 'bouncer_trouble', 'error', CASE WHEN i = 1 THEN 'first' ELSE 'b' END, 'm', 0, CASE WHEN i = 1 THEN NULL ELSE 1 END FROM n`)
			if err != nil {
				return err
			}
			list, err = selectAlerts(ctx, tx)
			return err
		})
		if err != nil || len(list) != 1001 || list[1000].Subject != "first" || list[1000].ResolvedAt != nil || list[0].ID < list[999].ID {
			t.Errorf("%d alerts, %v", len(list), err)
		}
	})
}

// TestReplaceAlert: an alert that says something else takes the place of the open one. The same one is
// not opened twice.
func TestReplaceAlert(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		for _, step := range []struct {
			severity, message string
			alerts            int
		}{{SeverityWarning, "it ends in May", 1}, {SeverityWarning, "it ends in May", 1}, {SeverityWarning, "it ends in June", 2}, {SeverityCritical, "it ends in June", 3}} {
			var list []Alert
			err := c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) (err error) {
				if err = ReplaceAlert(ctx, tx, Alert{Type: "t", Subject: "s", Severity: step.severity, Message: step.message}); err == nil {
					list, err = selectAlerts(ctx, tx)
				}
				return err
			})
			if err != nil || len(list) != step.alerts {
				t.Fatalf("after %s: %d alerts, %v, want %d", step.message, len(list), err, step.alerts)
			}
			for i, a := range list {
				if open := a.ResolvedAt == nil; open != (i == 0) || i == 0 && (a.Message != step.message || a.Severity != step.severity) {
					t.Errorf("after %s: alert %d of %d is %+v, want only the newest open", step.message, i, len(list), a)
				}
			}
		}
	})
}
