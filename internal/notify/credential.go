package notify

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// place is what a sealed credential is bound to.
func place(tenant scope.TenantID, id int64) string {
	return "notification_channels:" + string(tenant) + ":" + itoa(id)
}

// seal gives the secrets as they are stored; none are nothing.
func (s *Service) seal(tenant scope.TenantID, id int64, secrets map[string]string) ([]byte, error) {
	if len(secrets) == 0 {
		return []byte{}, nil
	}
	clear, err := json.Marshal(secrets)
	if err != nil {
		return nil, fault.Wrap(err, "write a credential")
	}
	sealed, err := s.Box.Seal(clear, place(tenant, id))
	if err != nil {
		return nil, fault.Wrap(err, "seal")
	}
	return sealed, nil
}

// open gives the secrets of a channel in clear.
func (s *Service) open(tenant scope.TenantID, c Channel) (map[string]string, error) {
	out := map[string]string{}
	if len(c.Credential) == 0 {
		return out, nil
	}
	clear, err := s.Box.Open(c.Credential, place(tenant, c.ID))
	if err == nil {
		err = json.Unmarshal(clear, &out)
	}
	if err != nil {
		return nil, fault.Wrap(err, "open a credential")
	}
	return out, nil
}

// channel gives a channel as its type takes it, with its secrets in clear.
func (s *Service) channel(tenant scope.TenantID, c Channel) (format.Channel, error) {
	secrets, err := s.open(tenant, c)
	if err != nil {
		return format.Channel{}, err
	}
	return format.Channel{Endpoint: c.Endpoint, Settings: maps.Clone(c.Settings), Credential: secrets}, nil
}

// Reseal seals a tenant's credentials anew that are still under an old key, so that the
// operator can drop that key.
func (s *Service) Reseal(ctx context.Context, tenant scope.TenantID) error {
	return s.Stores.WriteUnder(ctx, tenant, changes, func(tx *db.Tx) error {
		all, err := listChannels(ctx, tx, scope.AnyEnv, 0, maxChannels)
		if err != nil {
			return err
		}
		for _, c := range all {
			if len(c.Credential) == 0 || !s.Box.Stale(c.Credential) {
				continue
			}
			secrets, err := s.open(tenant, c)
			if err != nil {
				return err
			}
			sealed, err := s.seal(tenant, c.ID, secrets)
			if err != nil {
				return err
			}
			if err := saveCredential(ctx, tx, c, sealed); err != nil {
				return err
			}
		}
		return nil
	})
}
