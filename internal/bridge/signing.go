package bridge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// signingAlgorithm is one that a stock OPA can verify too: ECDSA on P-256.
const signingAlgorithm = "ES256"

// keyring caches the tenants' signing keys that this replica has used.
type keyring struct {
	mu   sync.Mutex
	keys map[scope.TenantID]*bundle.SigningKey
}

// storedKey is a row of bridge_keys.
type storedKey struct {
	ID     string `db:"kid"`
	Public string `db:"public"`
	Sealed []byte `db:"sealed"`
}

// VerifyKey returns the public key for the tenant's signed bundles. The first call creates it.
func (s *Service) VerifyKey(ctx context.Context, tenantID scope.TenantID) (bouncer.VerifyKey, error) {
	key, err := s.signingKey(ctx, tenantID)
	if err != nil {
		return bouncer.VerifyKey{}, err
	}
	public, err := publicPEM(key)
	return bouncer.VerifyKey{ID: key.ID, Algorithm: signingAlgorithm, PEM: public}, err
}

func publicPEM(key *bundle.SigningKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Key.Public())
	if err != nil {
		return "", fault.Wrap(err, "write a public key")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
}

func (s *Service) signingKey(ctx context.Context, tenantID scope.TenantID) (*bundle.SigningKey, error) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	if key := s.keys.keys[tenantID]; key != nil {
		return key, nil
	}
	var row storedKey
	err := s.cfg.Stores.Write(ctx, tenantID, func(tx *db.Tx) (err error) {
		if err := tx.Lock(ctx, "bridge.keys"); err != nil {
			return err
		}
		var found bool
		if row, found, err = loadKey(ctx, tx); err != nil || found {
			return err
		}
		if row, err = s.newKey(tenantID); err != nil {
			return err
		}
		return insertKey(ctx, tx, row, s.cfg.Now())
	})
	if err != nil {
		return nil, err
	}
	plain, err := s.cfg.Box.Open(row.Sealed, sealedFor(tenantID, row.ID))
	if err != nil {
		return nil, fault.Wrap(err, "open a signing key")
	}
	private, err := x509.ParseECPrivateKey(plain)
	if err != nil {
		return nil, fault.Wrap(err, "read a signing key")
	}
	key := &bundle.SigningKey{ID: row.ID, Key: private}
	if s.keys.keys == nil {
		s.keys.keys = map[scope.TenantID]*bundle.SigningKey{}
	}
	s.keys.keys[tenantID] = key
	return key, nil
}

// newKey creates a key and encrypts it, bound to its tenant and name.
func (s *Service) newKey(tenantID scope.TenantID) (storedKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), s.cfg.Random)
	if err != nil {
		return storedKey{}, fault.Wrap(err, "create a signing key")
	}
	plain, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return storedKey{}, fault.Wrap(err, "write a signing key")
	}
	row := storedKey{ID: fmt.Sprintf("bundles-%d", s.cfg.Now().Unix())}
	if row.Public, err = publicPEM(&bundle.SigningKey{ID: row.ID, Key: private}); err != nil {
		return storedKey{}, err
	}
	row.Sealed, err = s.cfg.Box.Seal(plain, sealedFor(tenantID, row.ID))
	return row, fault.Wrap(err, "seal a signing key")
}

func sealedFor(tenantID scope.TenantID, kid string) string {
	return "bridge_keys/" + string(tenantID) + "/" + kid
}
