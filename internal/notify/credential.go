package notify

import (
	"maps"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// place returns the associated data that binds a sealed credential to one channel of one tenant.
func place(tenant scope.TenantID, id int64) string {
	return "notification_channels:" + string(tenant) + ":" + strconv.FormatInt(id, 10)
}

// seal encrypts the secrets of a channel for the store. It returns nil if there are none.
func (s *Service) seal(tenant scope.TenantID, id int64, secrets map[string]string) ([]byte, error) {
	return s.Box.SealMembers(secrets, place(tenant, id))
}

// open decrypts the secrets of a channel.
func (s *Service) open(tenant scope.TenantID, c Channel) (map[string]string, error) {
	return s.Box.OpenMembers(c.Credential, place(tenant, c.ID))
}

// channel converts a channel to the form that its type takes, with decrypted secrets.
func (s *Service) channel(tenant scope.TenantID, c Channel) (format.Channel, error) {
	secrets, err := s.open(tenant, c)
	if err != nil {
		return format.Channel{}, err
	}
	return format.Channel{Endpoint: c.Endpoint, Settings: maps.Clone(c.Settings), Credential: secrets, Source: s.Outbox.Root}, nil
}
