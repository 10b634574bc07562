package bouncer

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
)

// TestEveryActivationIsRecorded checks that each bundle that a bouncer activates counts as its last
// sync, also one without controls and one with an earlier content.
func TestEveryActivationIsRecorded(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge"})
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
					t.Errorf("activation %d: the last sync is %v, %v, want %v", i, health.LastSync, err, at)
				}
				return nil
			})
			s, err := g.SyncStatus(ctx, sc(""), made.ID)
			if err != nil || s.LastSyncTime == nil || !s.LastSyncTime.Equal(at) {
				t.Errorf("activation %d: the last sync of the bouncer is %v, %v, want %v", i, s.LastSyncTime, err, at)
			}
		}
	})
}

// TestReachableOnlyIfReported checks that an application counts as reachable only if a connected
// bouncer reports that it reached it.
func TestReachableOnlyIfReported(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge", TargetApp: "app.example:80"})
		wantReachable := func(what string, want bool) {
			t.Helper()
			h, err := g.Health(ctx, sc(""), made.ID)
			if err != nil || h.TargetAppReachable != want {
				t.Errorf("%s: reachable %t, %v, want %t", what, h.TargetAppReachable, err, want)
			}
		}
		report := func(status string, tried *bool) {
			t.Helper()
			g.in(t, func(ctx context.Context, tx *db.Tx) error {
				if _, err := g.SetStatus(ctx, tx, sc(""), made.ID, status, ""); err != nil {
					return err
				}
				return g.RecordHeartbeat(ctx, tx, made.ID, Figures{TargetAppReachable: tried})
			})
		}
		yes, no := true, false
		wantReachable("new", false)
		report(Connected, nil)
		wantReachable("a bouncer that has not tried it", false)
		report(Connected, &yes)
		wantReachable("reached", true)
		report(Disconnected, nil)
		wantReachable("disconnected", false)
		report(Degraded, &no)
		wantReachable("not reached", false)
	})
}
