package bridge

import (
	"context"
	"encoding/hex"
	"io"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// maskKey is the key with which a tenant's masks hash values.
type maskKey struct {
	id  string
	key masking.HashKey
}

// MaskKeys creates the keys with which tenants' masks hash values.
type MaskKeys struct {
	Box    *secret.Box
	Random io.Reader
	Now    func() time.Time
}

// Rotate creates a new key for a tenant and makes every bouncer fetch it. From then on,
// values have other hashes than before. It returns the key's id.
func (m MaskKeys) Rotate(ctx context.Context, stores *db.Cluster, sc scope.Scope) (string, error) {
	var made storedMaskKey
	err := stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "bridge.mask_keys"); err != nil {
			return err
		}
		var err error
		if made, err = m.add(ctx, tx, sc.Tenant); err != nil {
			return err
		}
		if err := audit.Append(ctx, tx, sc, m.Now(), audit.Entry{Type: "MASK_KEY_ROTATED", Object: "tenant", ObjectID: string(sc.Tenant), Changes: map[string]any{"mask_key": made.ID}}); err != nil {
			return err
		}
		_, err = tx.Bump(ctx, bouncer.Topic)
		return err
	})
	return made.ID, err
}

// add creates a key and stores it encrypted, bound to its tenant and name.
func (m MaskKeys) add(ctx context.Context, tx *db.Tx, tenantID scope.TenantID) (storedMaskKey, error) {
	var raw [masking.HashKeyBytes + 6]byte
	if _, err := io.ReadFull(m.Random, raw[:]); err != nil {
		return storedMaskKey{}, fault.Wrap(err, "create a mask key")
	}
	now := m.Now()
	row := storedMaskKey{ID: now.UTC().Format("masks-20060102-150405-") + hex.EncodeToString(raw[masking.HashKeyBytes:])}
	var err error
	if row.Sealed, err = m.Box.Seal(raw[:masking.HashKeyBytes], masking.KeyPlace(string(tenantID), row.ID)); err != nil {
		return storedMaskKey{}, fault.Wrap(err, "seal a mask key")
	}
	return row, insertMaskKey(ctx, tx, row, now)
}

// maskKeyIn returns the tenant's newest key; the zero value if there is none.
func (s *Service) maskKeyIn(ctx context.Context, tx *db.Tx, tenantID scope.TenantID) (maskKey, error) {
	row, found, err := loadMaskKey(ctx, tx)
	if err != nil || !found {
		return maskKey{}, err
	}
	return s.openMaskKey(row, tenantID)
}

func (s *Service) openMaskKey(row storedMaskKey, tenantID scope.TenantID) (maskKey, error) {
	key, err := s.cfg.Box.Open(row.Sealed, masking.KeyPlace(string(tenantID), row.ID))
	if err != nil {
		return maskKey{}, fault.Wrap(err, "open a mask key")
	}
	return maskKey{id: row.ID, key: key}, nil
}

// firstMaskKey creates a tenant's first key, unless another replica has just done so.
func (s *Service) firstMaskKey(ctx context.Context, store *db.DB, tenantID scope.TenantID) (maskKey, error) {
	var row storedMaskKey
	err := store.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "bridge.mask_keys"); err != nil {
			return err
		}
		var found bool
		var err error
		if row, found, err = loadMaskKey(ctx, tx); err != nil || found {
			return err
		}
		row, err = MaskKeys{s.cfg.Box, s.cfg.Random, s.cfg.Now}.add(ctx, tx, tenantID)
		return err
	})
	if err != nil {
		return maskKey{}, err
	}
	return s.openMaskKey(row, tenantID)
}

// metaFor returns the bouncer's part of the manifest with the key of the tenant's masks. Only the
// holder of the bouncer's token can decrypt the key, because a stock OPA shows the manifest to
// everybody who asks.
func (t *desiredBundle) metaFor(tenantID scope.TenantID, bearer string) (value.Value, error) {
	sealed, err := t.masks.key.SealFor(bearer, masking.KeyPlace(string(tenantID), t.masks.id))
	if err != nil {
		return value.Value{}, err
	}
	return t.manifestMeta(value.Member{Key: masking.KeyMember, Value: value.Object(
		value.Member{Key: "id", Value: value.String(t.masks.id)},
		value.Member{Key: "sealed", Value: value.String(sealed)},
	)}), nil
}
