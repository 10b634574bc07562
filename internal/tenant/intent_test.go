package tenant

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// killed runs f on a service that dies at its n-th pause, and reports whether it got that far. Open
// transactions are rolled back, as by a kill.
func killed(c *db.Cluster, n int, f func(s *Service)) (died bool) {
	s := service(c)
	s.between = func() {
		if n--; n == 0 {
			panic("killed")
		}
	}
	defer func() { died = recover() == "killed" }()
	f(s)
	return false
}

// audited counts the audit entries of one type about a tenant.
func audited(t *testing.T, c *db.Cluster, home, id scope.TenantID, kind string) (n int64) {
	t.Helper()
	err := c.Read(context.Background(), home, func(tx *db.Tx) (err error) {
		n, err = db.One[int64](context.Background(), tx, `SELECT count(*) FROM audit_events WHERE object = 'tenant' AND object_id = $1 AND type = $2`, id, kind)
		return err
	})
	if err != nil {
		t.Errorf("audit of %s: %v", home, err)
	}
	return n
}

// TestKilledBetweenCommits: if a server dies between the commits of a tenant's record and its log,
// the next server completes the change once.
func TestKilledBetweenCommits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c)
		wantRecovery := func(what string) {
			t.Helper()
			if n, err := s.Recover(ctx, time.Now()); n != 1 || err != nil {
				t.Errorf("Recover after %s = %d, %v, want 1", what, n, err)
			}
			if n, err := s.Recover(ctx, time.Now()); n != 0 || err != nil {
				t.Errorf("Recover again after %s = %d, %v, want 0", what, n, err)
			}
		}
		for at := 1; at <= 2; at++ {
			what := fmt.Sprintf("killed at pause %d", at)
			id := scope.TenantID(fmt.Sprintf("acme-%d", at))
			if !killed(c, at, func(s *Service) {
				_, _ = s.Create(ctx, root, Draft{Name: string(id), Settings: Settings{"max_policies": int64(3)}})
			}) {
				t.Fatalf("Create has no pause %d", at)
			}
			wantRecovery("a Create " + what)
			var copied Settings
			err := c.Read(ctx, id, func(tx *db.Tx) (err error) { copied, err = SettingsIn(ctx, tx); return err })
			if n, _ := copied.Limit(Policies); err != nil || n != 3 || audited(t, c, id, id, "TENANT_CREATED") != 1 {
				t.Errorf("settings after a Create %s = %v, %v, want 3 policies and one audit entry", what, copied, err)
			}

			if !killed(c, at, func(s *Service) {
				_, _ = s.Update(ctx, root, id, Change{Status: patch.Set(Suspended), Settings: patch.Set(Settings{"max_policies": int64(4)})})
			}) {
				t.Fatalf("Update has no pause %d", at)
			}
			wantRecovery("an Update " + what)
			err = c.Read(ctx, id, func(tx *db.Tx) (err error) { copied, err = SettingsIn(ctx, tx); return err })
			got, failed := s.Get(ctx, root, id)
			if n, _ := copied.Limit(Policies); errors.Join(err, failed) != nil || n != 4 || got.Status != Suspended || audited(t, c, id, id, "TENANT_UPDATED") != 1 {
				t.Errorf("tenant after an Update %s = %+v with %v, %v, %v, want it suspended with 4 policies and one audit entry", what, got, copied, err, failed)
			}

			if !killed(c, at, func(s *Service) { _, _ = s.Delete(ctx, root, id, false) }) {
				t.Fatalf("Delete has no pause %d", at)
			}
			wantRecovery("a Delete " + what)
			if got, err := s.Get(ctx, root, id); err != nil || got.Status != Deleted || audited(t, c, id, id, "TENANT_DELETED") != 1 {
				t.Errorf("tenant after a Delete %s = %+v, %v, want it deleted with one audit entry", what, got, err)
			}

			if !killed(c, at, func(s *Service) { _, _ = s.Delete(ctx, root, id, true) }) {
				t.Fatalf("a purge has no pause %d", at)
			}
			wantRecovery("a purge " + what)
			if _, err := s.Get(ctx, root, id); !fault.Is(err, fault.NotFound) || audited(t, c, scope.DefaultTenant, id, "TENANT_PURGED") != 1 {
				t.Errorf("Get after a purge %s: got %v, want not found and one audit entry", what, err)
			}
			if _, err := c.Tenant(ctx, id); !fault.Is(err, fault.NotFound) {
				t.Errorf("store after a purge %s: got %v, want not found", what, err)
			}
		}
		// A complete change has one entry and leaves no intent.
		a, err := s.Create(ctx, root, Draft{Name: "Well"})
		if err == nil {
			_, err = s.Update(ctx, root, a.ID, Change{Name: patch.Set("Better")})
		}
		if n, failed := s.Recover(ctx, time.Now()); n != 0 || errors.Join(err, failed) != nil {
			t.Errorf("Recover after complete changes = %d, %v, %v, want 0", n, err, failed)
		}
		if audited(t, c, a.ID, a.ID, "TENANT_CREATED") != 1 || audited(t, c, a.ID, a.ID, "TENANT_UPDATED") != 1 {
			t.Error("a complete change has not one audit entry")
		}
	})
}
