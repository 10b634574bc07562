package telemetry

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// gates returns whether testing and promoting are allowed.
func (b *bench) gates() string {
	b.Helper()
	word := func(err error) string {
		switch {
		case err == nil:
			return "yes"
		case fault.Is(err, fault.Forbidden):
			return "no"
		}
		return err.Error()
	}
	ctx := context.Background()
	return word(b.MayTest(ctx, admin)) + " " + word(b.MayPromote(ctx, admin))
}

// alerts returns the subjects of the open license warnings.
func (b *bench) alerts() []string {
	b.Helper()
	out := []string{}
	err := b.Stores.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
		out, err = db.All[string](context.Background(), tx, `SELECT subject FROM tenant_alerts WHERE type = 'license_warning' AND resolved_at IS NULL ORDER BY subject`)
		return err
	})
	errtest.Must(b, err)
	return out
}

// TestGates: the state of the license server decides whether policies may be tested and promoted, and which
// alerts are open.
func TestGates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		step := func(what, gates string, gated bool, alerts ...string) {
			t.Helper()
			st, g := b.status(), b.gates()
			if g != gates || st.FeaturesGated != gated || st.CanTestPolicies != strings.HasPrefix(g, "yes") || st.CanPromote != strings.HasSuffix(g, "yes") {
				t.Errorf("%s: gates %s, want %s, and gated: %v; status %+v", what, g, gates, gated, st)
			}
			if st.FeaturesGated != (st.Warning != nil) && len(alerts) == 0 {
				t.Errorf("%s: warning = %v, want one if features are gated", what, st.Warning)
			}
			if got := b.alerts(); !slices.Equal(got, alerts) && len(got)+len(alerts) > 0 {
				t.Errorf("%s: alerts = %v, want %v", what, got, alerts)
			}
			b.clock.move(failureHolds + time.Second)
		}
		step("no configuration", "yes yes", false)
		if st := b.status(); st.Tier != "community" || st.Connected || st.LicenseAdminURL != "" {
			t.Errorf("status without a configuration = %+v", st)
		}
		b.update(Change{Frequency: new(weekly)})
		step("no server", "yes yes", false)
		b.configure()
		step("an active license", "yes yes", false)
		b.server.set(200, `{"subscription_tier":"trial","subscription_status":"active","trial_end_date":"2026-11-18"}`)
		step("a trial near its end", "yes yes", false, "trial")
		b.server.set(500, "")
		step("a server that fails", "no yes", true, "connection", "trial")
		b.clock.move(5 * 24 * time.Hour)
		step("an ended trial and a failing server", "no no", true, "connection", "license")
		b.server.set(200, "")
		step("an ended trial", "yes no", true, "license")
		b.server.set(200, `{"subscription_tier":"pro","subscription_status":"active"}`)
		step("a bought license", "yes yes", false)
		b.server.set(200, "<html>another page</html>")
		step("another kind of server", "no yes", true, "connection")
		b.server.set(403, "")
		step("a refused key", "no no", true, "connection")
		b.server.set(200, `{}`)
		step("a new connection", "yes yes", false)
		b.server.Close()
		step("a stopped server", "no yes", true, "connection")
		b.update(Change{URL: new("http://127.0.0.1:1/"), APIKey: patch.Set("another")})
		step("a server that never answered", "no no", true, "connection")
		b.update(Change{URL: new(""), Enabled: new(false)})
		step("no server again", "yes yes", false)
	})
}

// TestFailingServerIsSpared: a failed call is not repeated for a minute, except when a person tests
// the connection.
func TestFailingServerIsSpared(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	b.server.set(500, "")
	for range 5 {
		b.gates()
		b.status()
	}
	if n := b.server.calls(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	if got, err := b.TestConnection(context.Background(), admin); err != nil || got.Status != Failed || b.server.calls() != 2 {
		t.Errorf("TestConnection = %+v, %v after %d calls, want failed after 2", got, err, b.server.calls())
	}
	b.clock.move(failureHolds)
	b.gates()
	if n := b.server.calls(); n != 3 {
		t.Errorf("%d calls after a minute, want 3", n)
	}
	b.server.set(200, "")
	got, err := b.TestConnection(context.Background(), admin)
	if err != nil || got.Status != Success || got.URL != b.server.URL+"/base" || b.gates() != "yes yes" {
		t.Errorf("TestConnection = %+v, %v with the gates %s, want success", got, err, b.gates())
	}
}
