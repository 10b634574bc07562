package bridge

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maskKeyOf returns the mask key in a bundle, decrypted with a token, and its id.
func maskKeyOf(t *testing.T, b *bundle.Bundle, tenant, token string) (masking.HashKey, string) {
	t.Helper()
	own, _ := b.Meta[masking.KeyMember].(map[string]any)
	id, _ := own["id"].(string)
	sealed, _ := own["sealed"].(string)
	key, err := masking.OpenHashKey(sealed, token, masking.KeyPlace(tenant, id))
	if err != nil {
		t.Fatalf("the key %v does not open: %v", own, err)
	}
	return key, id
}

// fetchWith fetches a bundle whose mask key is sealed for bearer.
func (g *client) fetchWith(bearer string, tags ...string) *bundle.Bundle {
	g.h.t.Helper()
	_, b := g.read(g.h.Bundle(context.Background(), g.sc, Poll{BouncerID: g.id, Token: g.token, Bearer: bearer, Tags: tags, Wait: 10 * time.Second}))
	return b
}

// All bouncers of a tenant get the same mask key, in both environments and from every replica. It
// is stored encrypted, and only the holder of the token can decrypt it in the bundle. After a
// rotation, they get another key.
func TestMaskKeys(t *testing.T) {
	each(t, func(t *testing.T, h *fixture) {
		ctx := context.Background()
		h.control(scope.Production, "orders", 0, alice)
		one, two := h.bouncer(scope.Production, map[string]any{"signing": "signed"}), h.bouncer(scope.Sandbox, nil)
		bundle := one.fetchWith("token one")
		key, id := maskKeyOf(t, bundle, string(scope.DefaultTenant), "token one")
		if same, _ := maskKeyOf(t, two.fetchWith("token two"), string(scope.DefaultTenant), "token two"); !bytes.Equal(same, key) {
			t.Error("two bouncers of a tenant have different keys, want the same")
		}
		own := bundle.Meta[masking.KeyMember].(map[string]any)
		for _, wrong := range [][3]string{{"token two", string(scope.DefaultTenant), id}, {"", string(scope.DefaultTenant), id}, {"token one", "another", id}, {"token one", string(scope.DefaultTenant), "x"}} {
			if _, err := masking.OpenHashKey(own["sealed"].(string), wrong[0], masking.KeyPlace(wrong[1], wrong[2])); err == nil {
				t.Errorf("the key opens with %v, want an error", wrong)
			}
		}
		store, err := h.stores.Tenant(ctx, scope.DefaultTenant)
		errtest.Must(t, err)
		err = store.Read(ctx, func(tx *db.Tx) error {
			row, _, err := loadMaskKey(ctx, tx)
			if err == nil && (bytes.Contains(row.Sealed, key) || row.ID != id) {
				t.Errorf("the stored key %s is in clear, or not %s", row.ID, id)
			}
			return err
		})
		errtest.Must(t, err)
		again := newFixture(t, h.stores)
		other := &client{h: again, sc: two.sc, id: two.id, token: two.token}
		if same, _ := maskKeyOf(t, other.fetchWith("token two"), string(scope.DefaultTenant), "token two"); !bytes.Equal(same, key) {
			t.Error("another replica has another key, want the same")
		}

		next, err := MaskKeys{h.cfg.Box, rand.Reader, h.now}.Rotate(ctx, h.stores, person(scope.DefaultTenant))
		if err != nil || next == id {
			t.Fatalf("the rotation returns key %s, error %v, want a new one", next, err)
		}
		rotated, got := maskKeyOf(t, one.fetchWith("token one", `"`+bundle.Revision+`"`), string(scope.DefaultTenant), "token one")
		if got != next || bytes.Equal(rotated, key) {
			t.Errorf("after the rotation the key is %s, want %s", got, next)
		}
	})
}
