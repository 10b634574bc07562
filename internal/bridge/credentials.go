package bridge

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// SealedCredentials are the credentials that a bouncer sends to its application in
// place of its callers' credentials. They are encrypted with a key that is derived from
// the bouncer's token.
type SealedCredentials struct {
	BouncerID int64  `json:"bouncer_id" doc:"The bouncer."`
	No        int64  `json:"no" doc:"Grows with each change; bouncer.credentials in the bundle's metadata holds the same number."`
	Sealed    []byte `json:"sealed" doc:"Encrypted with AES-256-GCM; the key is derived from the bouncer's token (base64)."`
}

// CredentialsPurpose is the purpose in the derivation of their key.
const CredentialsPurpose = "upstream credentials"

// CredentialsPlace returns the associated data of the encrypted value.
func CredentialsPlace(bouncerID, no int64) string {
	return fmt.Sprintf("credentials/%d/%d", bouncerID, no)
}

// Credentials returns a bouncer's own credentials, encrypted for the holder of token.
// No other caller can read them, and no bundle contains them.
func (s *Service) Credentials(ctx context.Context, sc scope.Scope, token string) (SealedCredentials, error) {
	if _, err := callingBouncer(sc); err != nil {
		return SealedCredentials{}, err
	}
	var b bouncer.Bouncer
	var list []bouncer.SealedCredential
	err := s.cfg.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if b, err = bouncer.ByToken(ctx, tx, secret.DigestOf(token)); err != nil {
			return err
		}
		list, err = s.cfg.Bouncers.OpenCredentials(ctx, tx, sc.Tenant, b)
		return err
	})
	if err != nil {
		return SealedCredentials{}, err
	}
	out := SealedCredentials{BouncerID: b.ID, No: b.CredentialsNo}
	plain, err := json.Marshal(list)
	if err != nil {
		return out, fault.Wrap(err, "write credentials")
	}
	box, err := secret.FromToken(token, CredentialsPurpose)
	if err != nil {
		return out, fault.Wrap(err, "seal credentials")
	}
	out.Sealed, err = box.Seal(plain, CredentialsPlace(out.BouncerID, out.No))
	return out, fault.Wrap(err, "seal credentials")
}
