package pip

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/pip/source"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// place names the connection that sealed credentials are bound to: they open nowhere else.
func place(tenant scope.TenantID, id int64) string {
	return "pip_connections:" + string(tenant) + ":" + strconv.FormatInt(id, 10)
}

// seal returns credentials as they are stored: sealed, or empty if there are none.
func (s *Service) seal(tenant scope.TenantID, id int64, secrets source.Credentials) ([]byte, error) {
	if secrets.Empty() {
		return []byte{}, nil
	}
	clear, err := json.Marshal(secrets)
	if err != nil {
		return nil, fault.Wrap(err, "write credentials")
	}
	sealed, err := s.Box.Seal(clear, place(tenant, id))
	if err != nil {
		return nil, fault.Wrap(err, "seal")
	}
	return sealed, nil
}

// open returns the credentials of a connection in clear.
func (s *Service) open(tenant scope.TenantID, c Connection) (source.Credentials, error) {
	var out source.Credentials
	if len(c.Credentials) == 0 {
		return out, nil
	}
	clear, err := s.Box.Open(c.Credentials, place(tenant, c.ID))
	if err == nil {
		err = json.Unmarshal(clear, &out)
	}
	if err != nil {
		return out, fault.Wrap(err, "open credentials")
	}
	return out, nil
}

// reseal returns credentials as they are stored. If they are equal to those of the connection, it
// returns its stored bytes: sealing again would make an update without a change look like one. Stored
// bytes that do not open are replaced.
func (s *Service) reseal(tenant scope.TenantID, c Connection, secrets source.Credentials) ([]byte, error) {
	was, err := s.open(tenant, c)
	if err == nil && reflect.DeepEqual(was, secrets) || err != nil && !errors.Is(err, secret.ErrOpen) {
		return c.Credentials, err
	}
	return s.seal(tenant, c.ID, secrets)
}
