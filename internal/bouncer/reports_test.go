package bouncer

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// TestEveryActivationIsRecorded checks that each bundle that a bouncer activates counts as its last
// sync, also one without controls and one with an earlier content.
func TestEveryActivationIsRecorded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, g := context.Background(), newGate(c)
		made, err := g.Create(ctx, sc(""), Draft{Name: "edge"})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			hash  string
			items []Item
		}{{"a", []Item{{PolicyID: 1, Version: 1}}}, {"b", []Item{{PolicyID: 1, Version: 1}}}, {"empty", nil}, {"a", []Item{{PolicyID: 1, Version: 1}}}} {
			at := now.Add(time.Duration(i+1) * time.Minute)
			g.Now = func() time.Time { return at }
			g.in(t, func(ctx context.Context, tx *db.Tx) error {
				p, _, err := g.publish(ctx, tx, made.ID, step.hash)
				if err != nil {
					return err
				}
				if err := g.RecordSent(ctx, tx, made.ID, p.Revision, step.items); err != nil {
					return err
				}
				if _, err := g.RecordActivation(ctx, tx, sc(""), made.Bouncer, p.Revision); err != nil {
					return err
				}
				health, err := LoadSyncHealth(ctx, tx, now)
				if err != nil || health.LastSync == nil || !health.LastSync.Equal(at) {
					t.Errorf("%d: the last sync is %v, want %v; %v", i, health.LastSync, at, err)
				}
				return nil
			})
			s, err := g.SyncStatus(ctx, sc(""), made.ID)
			if err != nil || s.LastSyncTime == nil || !s.LastSyncTime.Equal(at) {
				t.Errorf("%d: the bouncer's is %v, want %v; %v", i, s.LastSyncTime, at, err)
			}
		}
	})
}

// TestReachableOnlyIfReported checks that an application counts as reachable only if a connected
// bouncer reports that it reached it.
func TestReachableOnlyIfReported(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, g := context.Background(), newGate(c)
		made, err := g.Create(ctx, sc(""), Draft{Name: "edge", TargetApp: "app.example:80"})
		if err != nil {
			t.Fatal(err)
		}
		is := func(what string, want bool) {
			t.Helper()
			h, err := g.Health(ctx, sc(""), made.ID)
			if err != nil || h.TargetAppReachable != want {
				t.Errorf("%s: %t, %v", what, h.TargetAppReachable, err)
			}
		}
		turn := func(status string, tried *bool) {
			t.Helper()
			g.in(t, func(ctx context.Context, tx *db.Tx) error {
				if _, err := g.SetStatus(ctx, tx, sc(""), made.ID, status, ""); err != nil {
					return err
				}
				return g.RecordHeartbeat(ctx, tx, made.ID, Figures{TargetAppReachable: tried})
			})
		}
		yes, no := true, false
		is("new", false)
		turn(Connected, nil)
		is("a bouncer that never tries", false)
		turn(Connected, &yes)
		is("reached", true)
		turn(Disconnected, nil)
		is("gone", false)
		turn(Degraded, &no)
		is("not reached", false)
	})
}
