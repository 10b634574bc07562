package follow

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/uplink"
)

const (
	// credentialsName is the file that they are kept in, sealed under the token,
	// which is not in the data directory.
	credentialsName = "credentials.sealed"
	maxCredentials  = 2 << 20
)

// fetchCredentials asks the control plane, and keeps the answer for a restart.
func (f *Follower) fetchCredentials(ctx context.Context, id string, least int64) (*settings.Credentials, error) {
	if have := f.State.Load().Credentials; have != nil && have.Number() >= least {
		return have, nil
	}
	req, err := f.Client.Request(ctx, http.MethodGet, "/bridge/credentials", nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, uplink.ErrorOf(resp))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCredentials))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	out, err := settings.OpenCredentials(data, f.Token, id, least)
	if err != nil {
		return nil, err
	}
	if err := uplink.SaveFile(f.Dir, credentialsName, data); err != nil {
		f.Count.SaveFailures.Add(1)
		f.Log.ErrorContext(ctx, "the credentials for the application could not be saved for a restart", "error", err)
	}
	return out, nil
}

// savedCredentials are those of the last run.
func (f *Follower) savedCredentials(id string, least int64) (*settings.Credentials, error) {
	data, err := os.ReadFile(filepath.Join(f.Dir, credentialsName))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", settings.ErrNoCredentials, err)
	}
	return settings.OpenCredentials(data, f.Token, id, least)
}
