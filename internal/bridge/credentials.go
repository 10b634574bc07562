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

// SealedCredentials are what a bouncer sends to its application in place of its
// callers' credentials, sealed under a key that is derived from its token.
type SealedCredentials struct {
	BouncerID int64  `json:"bouncer_id" doc:"The bouncer."`
	No        int64  `json:"no" doc:"Grows with each change; bouncer.credentials in the bundle's metadata holds the same number."`
	Sealed    []byte `json:"sealed" doc:"Encrypted with AES-256-GCM; the key is derived from the bouncer's token (base64)."`
}

// CredentialsPurpose names the key that they are sealed under.
const CredentialsPurpose = "upstream credentials"

// CredentialsPlace is what the sealed value is bound to.
func CredentialsPlace(bouncerID, no int64) string {
	return fmt.Sprintf("credentials/%d/%d", bouncerID, no)
}

// Credentials gives a bouncer its own credentials, sealed for who holds token.
// Nobody else can ask, and none are in any bundle.
func (s *Service) Credentials(ctx context.Context, sc scope.Scope, token string) (SealedCredentials, error) {
	if _, err := self(sc); err != nil {
		return SealedCredentials{}, err
	}
	var b bouncer.Bouncer
	var list []bouncer.SealedCredential
	store, err := s.cfg.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return SealedCredentials{}, err
	}
	err = store.Read(ctx, func(tx *db.Tx) (err error) {
		if b, err = bouncer.ByToken(ctx, tx, bouncer.Digest(token)); err != nil {
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
