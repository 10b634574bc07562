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
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// TestServerRepeatsTheKey: if a license server repeats the API key in an answer or an update, it is
// neither shown nor recorded.
func TestServerRepeatsTheKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, b := context.Background(), newBench(t, c)
		b.configure()
		for _, member := range []string{"customer_id", "subscription_tier", "tier", "subscription_status"} {
			for _, value := range []string{apiKey, "x" + apiKey + "y"} {
				answer := map[string]string{"tier": "pro", "subscription_status": "active"}
				answer[member] = value
				body, err := json.Marshal(answer)
				errtest.Must(t, err)
				b.server.set(200, strings.Replace(string(body), "key", `\u006bey`, 1))
				if got, err := b.TestConnection(ctx, admin); err != nil || got.Status != Failed {
					t.Errorf("TestConnection with the key in %s = %+v, %v, want failed", member, got, err)
				}
			}
		}
		b.server.set(200, `{"subscription_tier":"pro","subscription_status":"active"}`)
		if got, err := b.TestConnection(ctx, admin); err != nil || got.Status != Success {
			t.Fatalf("TestConnection = %+v, %v, want success", got, err)
		}
		content := fmt.Sprintf(`{"customer_id":%q,"effective_date":"2026-12-01","subscription_status":"active","subscription_tier":%q}`, scope.DefaultTenant, apiKey)
		signed := strings.TrimSuffix(content, "}") + `,"webhook_signature":"` + outbound.Signature([]byte(apiKey), []byte(content)) + `"}`
		if out, err := b.ApplyUpdate(ctx, scope.DefaultTenant, "", []byte(signed)); err == nil {
			t.Errorf("ApplyUpdate with the key = %+v, want an error", out)
		}
		shown := fmt.Sprint(b.status())
		preview, err := b.Preview(ctx, admin)
		errtest.Must(t, err)
		err = c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			audited, err := db.All[string](ctx, tx, `SELECT changes FROM audit_events`)
			shown += fmt.Sprint(preview, audited)
			return err
		})
		if err != nil || strings.Contains(shown, apiKey) {
			t.Errorf("status, preview and audit = %s, %v, want no key", shown, err)
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
		t.Fatalf("gates with a license = %s, want yes yes", b.gates())
	}
	b.clock.move(-365 * 24 * time.Hour)
	b.server.set(200, `{"subscription_tier":"enterprise","subscription_status":"canceled"}`)
	if got := b.gates(); got == "yes yes" {
		t.Error("a license that ended is in force after the clock goes back")
	}
	b.clock.move(365 * 24 * time.Hour)
	b.server.set(500, "")
	b.gates()
	b.clock.move(-365 * 24 * time.Hour)
	b.server.set(200, `{"subscription_tier":"enterprise","subscription_status":"active"}`)
	if got := b.gates(); got != "yes yes" {
		t.Errorf("gates after a failure in the future = %s, want yes yes", got)
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
		timetest.Eventually(b, time.Minute, func() error {
			if len(b.history()) == 0 {
				return errors.New("no report was sent")
			}
			return nil
		})
		b.quiet()
		future := db.Stamp(b.clock.now())
		r, err := b.measure(t.Context(), scope.DefaultTenant, state{Frequency: daily}, period{future.Add(-24 * time.Hour), future})
		errtest.Must(t, err)
		var late transmission
		if err := b.Stores.Write(t.Context(), scope.DefaultTenant, func(tx *db.Tx) (err error) {
			late, err = insertTransmission(t.Context(), tx, b.transmission(r, future, future.Add(time.Hour)))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		b.clock.move(-365 * 24 * time.Hour)
		errtest.Must(t, b.Wake(t.Context(), scope.DefaultTenant))
		b.clock.move(2 * time.Hour)
		want := at(t, "2026-11-15")
		timetest.Eventually(b, time.Minute, func() error {
			return b.Stores.Read(t.Context(), scope.DefaultTenant, func(tx *db.Tx) error {
				st, err := find(t.Context(), tx)
				if err != nil {
					return err
				}
				if st.NextAt == nil || !st.NextAt.Equal(want) || st.PeriodStart == nil || !st.PeriodStart.Equal(at(t, "2026-11-01")) {
					return fmt.Errorf("the next report is due at %v for the time from %v, want at %v", st.NextAt, st.PeriodStart, want)
				}
				return nil
			})
		})
		timetest.Eventually(b, time.Minute, func() error {
			for _, e := range b.history() {
				if e.ID == late.ID && e.Status == Success {
					return nil
				}
			}
			return errors.New("the waiting report was not sent")
		})
	})
}
