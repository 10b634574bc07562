package telemetry

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// TestChanges: wrong configurations are refused, and a change of the server or key resets the license.
func TestChanges(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	ctx := context.Background()
	refused := func(code string, c Change) {
		t.Helper()
		_, err := b.Update(ctx, admin, c, 0)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Invalid || f.Code != code {
			t.Errorf("Update(%+v): got %v, want %s", c, err, code)
		}
	}
	refused("validation_failed", Change{Enabled: new(true)})
	refused("validation_failed", Change{URL: &b.server.URL, Enabled: new(true)})
	refused("validation_failed", Change{APIKey: patch.Set("x")})
	for _, url := range []string{"http://10.0.0.1/", "https://169.254.169.254/", "ftp://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://2130706433/", "https://u:p@127.0.0.1/", "https://127.0.0.1./", "license"} {
		refused("target_refused", Change{URL: &url, APIKey: patch.Set("x")})
	}
	first := b.configure()
	if again := b.update(Change{Enabled: new(true)}); again.ChangeNo != first.ChangeNo {
		t.Errorf("version after an Update without a change = %d, want %d", again.ChangeNo, first.ChangeNo)
	}
	if _, err := b.Update(ctx, admin, Change{Frequency: new(daily)}, first.ChangeNo+5); !fault.Is(err, fault.Precondition) {
		t.Errorf("Update of another version: got %v, want a failed precondition", err)
	}
	b.status()
	other := newServer(t)
	refused("credential_required", Change{URL: &other.URL})
	if n := other.calls(); n != 0 {
		t.Errorf("%d calls of the other server, want none", n)
	}
	b.update(Change{URL: new(other.URL + "/base"), APIKey: patch.Set("not its key")})
	if st := b.status(); st.Connected || st.CanPromote || st.Tier != "community" {
		t.Errorf("status after a change of the server = %+v, want no license", st)
	}
	b.update(Change{URL: new(""), Enabled: new(false)})
	if c, err := b.Config(ctx, admin); err != nil || c.APIKeyConfigured || c.URL != "" || c.NextScheduledAt != nil {
		t.Errorf("Config without a server = %+v, %v", c, err)
	}
}

// TestGuardedTargets: a name that resolves to an internal address after it was saved is not called,
// and redirects are not followed.
func TestGuardedTargets(t *testing.T) {
	b := newBench(t, dbtest.Open(t, dbtest.SQLite))
	canary := newServer(t)
	inner := false
	b.Target = outbound.New(outbound.Config{
		AllowHTTP: true, Resolve: func(context.Context, string) ([]netip.Addr, error) {
			if inner {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		},
	})
	t.Cleanup(b.Target.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(canary.URL, "http://"), ":")
	b.update(Change{URL: new("http://license.example.com:" + port + "/base"), APIKey: patch.Set(apiKey), Enabled: new(true)})
	inner = true
	if got, err := b.TestConnection(context.Background(), admin); err != nil || got.Status != Failed || got.Message != unreachable {
		t.Errorf("TestConnection to an internal address = %+v, %v, want failed", got, err)
	}
	if _, err := b.SendNow(context.Background(), admin); !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), unreachable) {
		t.Errorf("SendNow to an internal address: got %v, want unreachable", err)
	}
	b = newBench(t, dbtest.Open(t, dbtest.SQLite))
	b.configure()
	b.server.redirect = canary.URL + "/base/license"
	b.server.set(302, "")
	if got, err := b.TestConnection(context.Background(), admin); err != nil || got.Status != Failed {
		t.Errorf("TestConnection with a redirect = %+v, %v, want failed", got, err)
	}
	reports, _ := canary.got()
	if canary.calls() != 0 || len(reports) != 0 {
		t.Errorf("%d calls and %d reports reached the canary, want none", canary.calls(), len(reports))
	}
}
