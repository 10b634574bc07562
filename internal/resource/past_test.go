package resource

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// rewind takes a copy back in time, change by change, and compares it with the copies that
// the reader had at earlier revisions.
func (p *copyOf) rewind(t *testing.T, store *db.DB, s *Service) {
	t.Helper()
	ctx := context.Background()
	rest := slices.Sorted(maps.Keys(p.was))
	compareFrom := func(revision int64) {
		for len(rest) > 0 && rest[len(rest)-1] >= revision {
			at := rest[len(rest)-1]
			rest = rest[:len(rest)-1]
			if diff := cmp.Diff(p.was[at], p.docs); diff != "" {
				t.Fatalf("%s back at revision %d (-then +now): %s", p.env, at, diff)
			}
		}
	}
	err := store.Read(ctx, func(tx *db.Tx) error {
		return PastSince(ctx, tx, p.env, time.Time{}, p.revision, func(past Past) bool {
			compareFrom(past.Revision)
			if past.Doc == nil {
				delete(p.docs, past.ID)
			} else {
				p.docs[past.ID] = render(*past.Doc)
			}
			return true
		})
	})
	errtest.Must(t, err)
	compareFrom(0)
	if len(p.docs) != 0 {
		t.Errorf("documents before the first change = %v, want none", p.docs)
	}
}

// TestForget: Forget deletes only states that are too old for any replay, a few revisions
// at a time.
func TestForget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		at := now
		s.Now = func() time.Time { return at }
		r := create(t, s, Draft{Name: "a"})
		enrich := func(team string) {
			t.Helper()
			errtest.Must(t, errtest.Of(s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{OwnerTeam: patch.Set(team)}, 0)))
		}
		for i := range 2 * forgetStep {
			enrich([]string{"a", "b"}[i%2])
		}
		at = at.Add(audit.Detailed.Keep())
		enrich("late")
		if n, err := s.Forget(ctx, scope.DefaultTenant); err != nil || n != 0 {
			t.Errorf("Forget within the time = %d, %v, want 0", n, err)
		}
		at = at.Add(25 * time.Hour)
		if n, err := s.Forget(ctx, scope.DefaultTenant); err != nil || n != 2*forgetStep+1 {
			t.Errorf("Forget after the time = %d, %v, want %d", n, err, 2*forgetStep+1)
		}
		var states []Past
		err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			return PastSince(ctx, tx, scope.Sandbox, time.Time{}, 1<<60, func(p Past) bool { states = append(states, p); return true })
		})
		if err != nil || len(states) != 1 {
			t.Fatalf("states after Forget = %+v, %v, want 1", states, err)
		}
		if team, _ := states[0].Doc.Doc.Get("owner_team").Str(); team != "b" {
			t.Errorf("team in the last state = %q, want b", team)
		}
	})
}
