package bouncer

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
)

// TestStoredUnknownMembers checks that a stored configuration with unknown members can be read,
// survives other changes, and can be sent back.
func TestStoredUnknownMembers(t *testing.T) {
	eachStore(t, func(t *testing.T, ctx context.Context, g *gate) {
		made := g.create(t, Draft{Name: "edge", Configuration: map[string]any{"cache_ttl": "5s"}})
		g.in(t, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE bouncers SET configuration = '{"cache_ttl":"5s","colour":{"of":["door",1]},"identity":{"isuer":"x"}}'`)
			return err
		})
		configure := func(members map[string]any) error {
			_, err := g.Update(ctx, sc(""), made.ID, Change{Configuration: patch.Set(members)}, 0)
			return err
		}
		got, err := g.Update(ctx, sc(""), made.ID, Change{Port: new(9090)}, 0)
		if err != nil || got.Configuration["colour"] == nil {
			t.Fatalf("after another change: %+v, %v, want the unknown member", got.Configuration, err)
		}
		colour := func(of string) map[string]any { return map[string]any{"of": []any{of, 1.0}} }
		if err := configure(map[string]any{"cache_ttl": "6s", "colour": colour("door"), "identity": map[string]any{"isuer": "x"}}); err != nil {
			t.Errorf("the stored members sent back: %v, want no error", err)
		}
		wantFault(t, configure(map[string]any{"colour": colour("window")}), fault.Invalid, "/configuration/colour")
		wantFault(t, configure(map[string]any{"identity": map[string]any{"isuer": "y"}}), fault.Invalid, "/configuration/identity/isuer")
		if err := configure(map[string]any{"cache_ttl": "6s"}); err != nil {
			t.Errorf("without the unknown members: %v, want no error", err)
		}
		// Once removed, the member is unknown again.
		wantFault(t, configure(map[string]any{"colour": colour("door")}), fault.Invalid, "/configuration/colour")
	})
}
