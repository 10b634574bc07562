package auth

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestEntryOfAnEndedKeyStays checks that a failure to remove the entry of an ended key does not
// hide the result: the caller gets the new key, and the old one does not work.
func TestEntryOfAnEndedKeyStays(t *testing.T) {
	r, ctx := newSQLite(t), context.Background()
	old := r.createKey(scope.DefaultTenant, "policies:read")
	if err := r.Stores.System().Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `CREATE TRIGGER keep BEFORE DELETE ON credentials BEGIN SELECT RAISE(FAIL, 'the test keeps it'); END`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	fresh, err := r.RotateKey(ctx, root(), old.ID, 0)
	if err != nil {
		t.Fatalf("RotateKey: %v", err)
	}
	r.want("the old key", Credential{APIKey: old.Key}, "401")
	r.want("the new key", Credential{APIKey: fresh.Key}, "ok")
	if _, err := r.RevokeKey(ctx, root(), fresh.ID); err != nil {
		t.Errorf("RevokeKey: %v", err)
	}
	r.want("the revoked key", Credential{APIKey: fresh.Key}, "401")
	issued, err := r.Dedicated.Issue(ctx, root(), scope.Vendor, "v", "vendor", 0, nil)
	if err != nil {
		t.Fatalf("Issue: %v", err)
	}
	if again, err := r.Dedicated.Issue(ctx, root(), scope.Vendor, "v", "vendor", 0, nil); err != nil || again.Key == "" || again.Key == issued.Key {
		t.Errorf("Issue again = %+v, %v, want a new key", again, err)
	}
}
