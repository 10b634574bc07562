package audit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestSeries: the counts of a series are the same whether they were made when its decisions were
// stored or recounted from the log. They are not added to the counts of whole environments.
func TestSeries(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx := context.Background()
		l := storeOnly(t, c, at(noon))
		series := map[string]stats.Series{
			"resource": {Environment: scope.Sandbox, Resource: "7"}, "control": {Environment: scope.Sandbox, Control: 3}, "bouncer": {Environment: scope.Sandbox, Bouncer: 5},
			"subject": {Environment: scope.Sandbox, Subject: "bob"}, "all of them": {Environment: scope.Sandbox, Resource: "7", Control: 3, Bouncer: 5, Subject: "bob"},
			"nothing": {Environment: scope.Sandbox, Subject: "nobody"},
		}
		var counted []stats.Series
		for _, s := range series {
			counted = append(counted, s, s)
		}
		errtest.Must(t, c.Write(ctx, scope.DefaultTenant, func(tx *db.Tx) error { return stats.Count(ctx, tx, counted) }))
		var rows []row
		want := map[string]stats.Rollup{}
		total := int64(0)
		for i := range 64 {
			d := Decision{
				DecisionID: fmt.Sprint(i), Timestamp: noon.Add(-time.Duration(i) * time.Second), Environment: scope.Sandbox, Decision: Deny, Effect: "DENY", AuditLevel: Basic,
				EvaluationTimeMS: 2, PolicyID: 1, BouncerID: 1,
			}
			d.User.ID = "eve"
			in := map[string]bool{"resource": i&1 > 0, "control": i&2 > 0, "bouncer": i&4 > 0, "subject": i&8 > 0}
			if in["resource"] {
				d.ResourceID = 7
			}
			if in["control"] {
				d.PolicyID = 3
			}
			if in["bouncer"] {
				d.BouncerID = 5
			}
			if in["subject"] {
				d.User.ID = "bob"
			}
			if i&16 > 0 {
				d.Decision, d.Effect = Permit, "ALLOW"
			}
			in["all of them"] = i&15 == 15
			r := rowOf(t, &d)
			rows = append(rows, r)
			total++
			for name, is := range in {
				if is {
					sum := want[name]
					sum.Count(r.decided())
					want[name] = sum
				}
			}
		}
		errtest.Must(t, l.store(ctx, scope.DefaultTenant, rows))
		err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			for name, s := range series {
				from, to := noon.Add(-time.Hour), noon.Add(time.Minute)
				sum, err := stats.Sum(ctx, tx, stats.Minute, s, from, to)
				if err != nil {
					return err
				}
				minutes, since, err := Recount(ctx, tx, s, from, to, 100)
				if err != nil {
					return err
				}
				recounted := stats.Rollup{}
				for i := range minutes {
					recounted.Merge(&minutes[i])
				}
				expected := want[name]
				sum.Start = time.Time{}
				if sum != expected || recounted != expected || !since.Equal(from) {
					t.Errorf("series %s: counted %d, recounted %d since %s, want %d since %s", name, sum.Total(), recounted.Total(), since, expected.Total(), from)
				}
				if newest, since, err := Recount(ctx, tx, s, from, to, 3); err != nil || expected.Total() > 3 && (!since.After(from) || len(newest) == 0) {
					t.Errorf("series %s: recount of the newest 3 = %v since %s, %v", name, newest, since, err)
				}
			}
			return nil
		})
		errtest.Must(t, err)
		sc := admin
		sc.Env = scope.AnyEnv
		if sum, err := l.Totals(ctx, sc, stats.Minute, noon.Add(-time.Hour), noon); err != nil || sum.Total() != total {
			t.Errorf("Totals of both environments = %d decisions, %v, want %d", sum.Total(), err, total)
		}
	})
}
