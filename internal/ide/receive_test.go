package ide

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestReplayAfterItsDeployment: a delivery that was received before is not an error and does nothing
// while its digests are kept, also when its deployment is not kept any more.
func TestReplayAfterItsDeployment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, made := context.Background(), 0
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		s := &Service{Stores: c, Now: func() time.Time { return now }, NewID: func() string { made++; return fmt.Sprint("d", made) }}
		sc := scope.Scope{Tenant: scope.DefaultTenant, Permissions: scope.Permissions{All: true}, Actor: scope.Actor{Kind: scope.Person, ID: "u1", Name: "ada"}}
		receive := func(name string) Receipt {
			t.Helper()
			r, err := s.Receive(ctx, sc, Delivery{Source: Signed, Delivery: name, Body: []byte(
				`{"branch":"main","event_type":"push","policy_files":[{"path":"a.rego","content":"package a\n\nallow if true\n"}]}`)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return r
		}
		if r := receive("one"); r.Replayed || r.ID != "d1" {
			t.Fatalf("%+v", r)
		}
		if r := receive("one"); !r.Replayed || r.ID != "d1" || r.Ignored != "" {
			t.Errorf("while its deployment is kept: %+v", r)
		}
		now = now.Add(keepDeployments + time.Hour)
		if r := receive("two"); r.Replayed { // old deployments are deleted
			t.Fatalf("%+v", r)
		}
		if r := receive("one"); !r.Replayed || r.ID != "" || r.Ignored == "" {
			t.Errorf("after its deployment: %+v", r)
		}
		if page, err := s.Deployments(ctx, sc, 0, 0, 10); err != nil || page.Total != 1 {
			t.Errorf("%d deployments, %v", page.Total, err)
		}
	})
}
