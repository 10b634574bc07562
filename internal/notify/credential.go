package notify

import (
	"context"
	"maps"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// place is what a sealed credential is bound to.
func place(tenant scope.TenantID, id int64) string {
	return "notification_channels:" + string(tenant) + ":" + strconv.FormatInt(id, 10)
}

// seal gives the secrets as they are stored; none are nothing.
func (s *Service) seal(tenant scope.TenantID, id int64, secrets map[string]string) ([]byte, error) {
	return s.Box.SealMembers(secrets, place(tenant, id))
}

// open gives the secrets of a channel in clear.
func (s *Service) open(tenant scope.TenantID, c Channel) (map[string]string, error) {
	return s.Box.OpenMembers(c.Credential, place(tenant, c.ID))
}

// channel gives a channel as its type takes it, with its secrets in clear.
func (s *Service) channel(tenant scope.TenantID, c Channel) (format.Channel, error) {
	secrets, err := s.open(tenant, c)
	if err != nil {
		return format.Channel{}, err
	}
	return format.Channel{Endpoint: c.Endpoint, Settings: maps.Clone(c.Settings), Credential: secrets, Source: s.Outbox.Root}, nil
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
			sealed, err := s.Box.ResealMembers(c.Credential, place(tenant, c.ID))
			if err != nil {
				return err
			}
			if sealed == nil {
				continue
			}
			if err := saveCredential(ctx, tx, c, sealed); err != nil {
				return err
			}
		}
		return nil
	})
}
