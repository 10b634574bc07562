package bundlesync

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/controlplane"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
)

const (
	// credentialsName is the file of the credentials. It is encrypted with a key derived from the
	// token, which is not in the data directory.
	credentialsName = "credentials.sealed"
	maxCredentials  = 2 << 20
)

// fetchCredentials requests the credentials from the control plane, and saves them for a restart.
func (s *Syncer) fetchCredentials(ctx context.Context, id string, least int64) (*settings.Credentials, error) {
	if have := s.State.Load().Credentials; have != nil && have.Number() >= least {
		return have, nil
	}
	req, err := s.Client.Request(ctx, http.MethodGet, "/bridge/credentials", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, controlplane.ErrorOf(resp))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCredentials))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	out, err := settings.OpenCredentials(data, s.Token, id, least)
	if err != nil {
		return nil, err
	}
	if err := controlplane.SaveFile(s.Dir, credentialsName, data); err != nil {
		s.Count.SaveFailures.Add(1)
		s.Log.ErrorContext(ctx, "the credentials for the application could not be saved for a restart", "error", err)
	}
	return out, nil
}

// savedCredentials returns the credentials that were saved before a restart.
func (s *Syncer) savedCredentials(id string, least int64) (*settings.Credentials, error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, credentialsName))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	return settings.OpenCredentials(data, s.Token, id, least)
}
