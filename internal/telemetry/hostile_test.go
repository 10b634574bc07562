package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestServerRepeatsTheKey: if a license server repeats the API key in an answer or an update, it is
// neither shown nor recorded.
func TestServerRepeatsTheKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, b := context.Background(), newBench(t, c)
		b.configure()
		for _, member := range []string{"customer_id", "subscription_tier", "tier", "subscription_status"} {
			for _, value := range []string{apiKey, "x" + apiKey + "y"} {
				said := map[string]string{"tier": "pro", "subscription_status": "active"}
				said[member] = value
				body, err := json.Marshal(said)
				if err != nil {
					t.Fatal(err)
				}
				b.server.set(200, strings.Replace(string(body), "key", `\u006bey`, 1))
				if got, err := b.TestConnection(ctx, admin); err != nil || got.Status != Failed {
					t.Errorf("%s: %+v %v", member, got, err)
				}
			}
		}
		b.server.set(200, `{"subscription_tier":"pro","subscription_status":"active"}`)
		if got, err := b.TestConnection(ctx, admin); err != nil || got.Status != Success {
			t.Fatalf("%+v %v", got, err)
		}
		content := fmt.Sprintf(`{"customer_id":%q,"effective_date":"2026-12-01","subscription_status":"active","subscription_tier":%q}`, scope.DefaultTenant, apiKey)
		signed := strings.TrimSuffix(content, "}") + `,"webhook_signature":"` + outbound.Signature([]byte(apiKey), []byte(content)) + `"}`
		if out, err := b.ApplyUpdate(ctx, scope.DefaultTenant, "", []byte(signed)); err == nil {
			t.Errorf("an update with the key: %+v", out)
		}
		seen := fmt.Sprint(b.status())
		preview, err := b.Preview(ctx, admin)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			audited, err := db.All[string](ctx, tx, `SELECT changes FROM audit_events`)
			seen += fmt.Sprint(preview, audited)
			return err
		})
		if err != nil || strings.Contains(seen, apiKey) {
			t.Errorf("the key is in %s (%v)", seen, err)
		}
	})
}

// TestClockGoesBack: after the clock goes back, an earlier answer or failure of the license server
// does not count as fresh.
func TestClockGoesBack(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	b.clock.move(365 * 24 * time.Hour)
	if b.gates() != "yes yes" {
		t.Fatal(b.gates())
	}
	b.clock.move(-365 * 24 * time.Hour)
	b.server.set(200, `{"subscription_tier":"enterprise","subscription_status":"canceled"}`)
	if got := b.gates(); got == "yes yes" {
		t.Error("a license that ended is still in force")
	}
	b.clock.move(365 * 24 * time.Hour)
	b.server.set(500, "")
	b.gates()
	b.clock.move(-365 * 24 * time.Hour)
	b.server.set(200, `{"subscription_tier":"enterprise","subscription_status":"active"}`)
	if got := b.gates(); got != "yes yes" {
		t.Errorf("a failure of the future still counts: %s", got)
	}
}

// TestClockComesBack: after a clock was a year ahead, the reports and wake-ups that it planned do not
// delay the next reports.
func TestClockComesBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		b := newBench(t, c)
		b.configure()
		b.replica()
		b.quiet()
		b.clock.move(365 * 24 * time.Hour)
		b.eventually(func() error {
			if len(b.history()) == 0 {
				return errors.New("nothing was reported")
			}
			return nil
		})
		b.quiet()
		future := db.Stamp(b.clock.now())
		r, err := b.measure(t.Context(), scope.DefaultTenant, state{Frequency: daily}, period{future.Add(-24 * time.Hour), future})
		if err != nil {
			t.Fatal(err)
		}
		var late transmission
		if err := b.Stores.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
			late, err = insertTransmission(t.Context(), tx, b.transmission(r, future, future.Add(time.Hour)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		b.clock.move(-365 * 24 * time.Hour)
		if err := b.Wake(t.Context(), scope.DefaultTenant); err != nil {
			t.Fatal(err)
		}
		b.clock.move(2 * time.Hour)
		want := at(t, "2026-11-15")
		b.eventually(func() error {
			return b.Stores.Read(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
				st, err := find(t.Context(), tx)
				if err != nil {
					return err
				}
				if st.NextAt == nil || !st.NextAt.Equal(want) || st.PeriodStart == nil || !st.PeriodStart.Equal(at(t, "2026-11-01")) {
					return fmt.Errorf("the next report is due at %v, from %v", st.NextAt, st.PeriodStart)
				}
				return nil
			})
		})
		b.eventually(func() error {
			for _, e := range b.history() {
				if e.ID == late.ID && e.Status == Success {
					return nil
				}
			}
			return errors.New("the report that waits was not sent")
		})
	})
}
