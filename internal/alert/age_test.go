package alert

import (
	"context"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// source stores a data source that was created at a time and was never synced.
func (b *bench) source(id int64, name, frequency string, created time.Time) {
	b.Helper()
	b.write(func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO pip_connections (id, name, provider, connection_type, configuration, sync_enabled, sync_frequency, created_by,
				created_at, updated_at, change_no, credentials) VALUES ($1, $2, 'http_json', '', '{}', $4, $3, 'alice', $5, $5, 1, $6)`, id, name, frequency, true, created, []byte{})
		return err
	})
}

// sync stores a sync of a data source that ended now.
func (b *bench) sync(id int64, status string) {
	b.Helper()
	b.write(func(tx *db.Tx) error {
		if _, err := tx.Exec(context.Background(), `INSERT INTO pip_syncs (connection_id, reason, status, created_at, finished_at) VALUES ($1, 'schedule', $2, $3, $3)`, id, status, b.clock.Now()); err != nil {
			return err
		}
		if status != "completed" {
			return nil
		}
		_, err := tx.Exec(context.Background(), `UPDATE pip_connections SET last_sync_at = $2 WHERE id = $1`, id, b.clock.Now())
		return err
	})
}

// TestDataSourceAge: a rule fires when the data of a source is too old and ends with a
// successful sync, and that its preview says the same for the past.
func TestDataSourceAge(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		begin := b.clock.Now()
		b.source(1, "hr", "hourly", begin)
		b.source(2, "owners", "manual", begin.Add(-90*24*time.Hour))
		trigger := Trigger{Metric: sourceAge, Operator: ">", Threshold: 300, Filter: Filter{ConnectionID: 1}}
		of := b.rule(Draft{Name: "hr is old", Trigger: trigger})
		trigger.Filter.ConnectionID = 0
		all := b.rule(Draft{Name: "anything is old", Trigger: trigger})
		minutes := func(n int, want string) {
			t.Helper()
			for range n {
				b.clock.Move(time.Minute)
				b.evaluate()
			}
			if got := b.fired(); got != want {
				t.Errorf("after %d minutes: fired and ended %s, want %s", n, got, want)
			}
		}
		minutes(5, "0 0") // the age of unread data counts from the source's creation
		minutes(2, "2 0")
		b.sync(1, "failed")
		minutes(1, "2 0")
		b.sync(1, "completed")
		minutes(2, "2 2")
		minutes(10, "2 2") // within the cooldown
		for _, r := range []Rule{of, all} {
			got, err := b.Get(context.Background(), admin, r.ID)
			if err != nil || got.Value == nil || *got.Value != 710 || got.Problem != "" {
				t.Errorf("value of the rule = %v, %+v, %v, want 710", got.Value, got, err)
			}
			trigger.Filter = got.Trigger.Filter
			p, err := b.Preview(context.Background(), admin, Draft{Name: "x", Trigger: trigger, Frequency: Frequency{Cooldown: new(0), MaxFires: 1000}})
			if err != nil || p.Resolved != 1 || p.Held == 0 || p.Fires != p.Held || p.Highest == nil || *p.Highest < 300 || p.Since.After(begin) {
				t.Errorf("Preview = %+v, %v", p, err)
			}
		}
		b.write(func(tx *db.Tx) error {
			_, err := tx.Exec(context.Background(), `DELETE FROM pip_connections WHERE id = 1`)
			return err
		})
		if got, err := b.Get(context.Background(), admin, of.ID); err != nil || got.Problem != "the data source 1 does not exist" {
			t.Errorf("problem without the source = %q, %v", got.Problem, err)
		}
		for _, wrong := range []Trigger{
			{Metric: sourceAge, Operator: ">", Filter: Filter{BouncerID: 1}},
			{Metric: "denial_count", Operator: ">", Filter: Filter{ConnectionID: 1}},
			{Metric: auditEvents, Operator: ">", Filter: Filter{ConnectionID: 1}},
		} {
			if _, err := b.Preview(context.Background(), admin, Draft{Name: "x", Trigger: wrong}); err == nil {
				t.Errorf("Preview of %+v succeeds, want an error", wrong)
			}
		}
	})
}

// TestAgesOfKeptSyncs: a preview starts with the oldest kept sync if older ones were
// removed.
func TestAgesOfKeptSyncs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.source(1, "hr", "hourly", b.clock.Now().Add(-90*24*time.Hour))
		first := b.clock.Now()
		for range keptSyncs {
			b.sync(1, "completed")
			b.clock.Move(10 * time.Minute)
		}
		p, err := b.Preview(context.Background(), admin, Draft{Name: "x", Trigger: Trigger{Metric: sourceAge, Operator: ">", Threshold: 3600}})
		if err != nil || p.Since.Before(first) || p.Since.After(first.Add(5*time.Minute)) || p.Fires != 0 || p.Highest == nil || *p.Highest > 600 {
			t.Errorf("Preview = %+v, %v, want it to start with the sync at %s", p, err, first)
		}
	})
}
