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
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// rewind takes a copy back in time, change by change, and compares it with the copies that
// the reader had at earlier revisions.
func (p *copyOf) rewind(t *testing.T, store *db.DB, s *Service) {
	t.Helper()
	ctx := context.Background()
	looked := slices.Sorted(maps.Keys(p.was))
	holdTo := func(revision int64) {
		for len(looked) > 0 && looked[len(looked)-1] >= revision {
			at := looked[len(looked)-1]
			looked = looked[:len(looked)-1]
			if diff := cmp.Diff(p.was[at], p.docs); diff != "" {
				t.Fatalf("%s back at revision %d: %s", p.env, at, diff)
			}
		}
	}
	err := store.Read(ctx, func(tx *db.Tx) error {
		return PastSince(ctx, tx, p.env, time.Time{}, p.revision, func(past Past) bool {
			holdTo(past.Revision)
			if past.Doc == nil {
				delete(p.docs, past.ID)
			} else {
				p.docs[past.ID] = render(*past.Doc)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	holdTo(0)
	if len(p.docs) != 0 {
		t.Errorf("in the beginning there was %v", p.docs)
	}
}

// TestForget: Forget deletes only states that are too old for any replay, a few revisions
// at a time.
func TestForget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, s := context.Background(), service(c, nil, nil)
		at := now
		s.Now = func() time.Time { return at }
		r := make1(t, s, Draft{Name: "a"})
		enrich := func(team string) {
			t.Helper()
			if _, err := s.Enrich(ctx, sc(""), r.ID, EnrichmentChange{OwnerTeam: patch.Set(team)}, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 * forgetStep {
			enrich([]string{"a", "b"}[i%2])
		}
		at = at.Add(audit.Detailed.Keep())
		enrich("late")
		if n, err := s.Forget(ctx, scope.DefaultTenant); err != nil || n != 0 {
			t.Errorf("forgot %d, %v", n, err)
		}
		at = at.Add(25 * time.Hour)
		if n, err := s.Forget(ctx, scope.DefaultTenant); err != nil || n != 2*forgetStep+1 {
			t.Errorf("forgot %d, %v", n, err)
		}
		var left []Past
		err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			return PastSince(ctx, tx, scope.Sandbox, time.Time{}, 1<<60, func(p Past) bool { left = append(left, p); return true })
		})
		if team, _ := left[0].Doc.Doc.Get("owner_team").Str(); err != nil || len(left) != 1 || team != "b" {
			t.Errorf("left %+v, %v", left, err)
		}
	})
}
