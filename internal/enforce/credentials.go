package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// credential is one header that we set, add or strip on what goes to the
// application. Its value is in no log, no status and no metric.
type credential struct {
	Header     string `json:"header"`
	Action     string `json:"action"`
	ResourceID int64  `json:"resource_id"` // 0: every request
	Value      string `json:"value"`
}

// upstreamCredentials are those of the bouncer, as the control plane last gave them.
type upstreamCredentials struct {
	no   int64
	list []credential
	// byResource is set when one of them is for one resource alone.
	byResource bool
}

const (
	// credentialsName is the file that they are kept in, sealed under the token,
	// which is not in the data directory.
	credentialsName = "credentials.sealed"
	maxCredentials  = 2 << 20
	// The key and the place that the control plane seals them under and for.
	credentialsPurpose = "upstream credentials"
)

// errNoCredentials keeps a bundle waiting that names credentials which are not to
// be had: without them requests would go out with their callers' own.
var errNoCredentials = errors.New("the credentials for the application are not to be had")

// sealedCredentials is the control plane's answer, and the file.
type sealedCredentials struct {
	BouncerID int64  `json:"bouncer_id"`
	No        int64  `json:"no"`
	Sealed    []byte `json:"sealed"`
}

// openCredentials reads what was sealed for us, of the number least or a later one.
func (b *Bouncer) openCredentials(data []byte, id string, least int64) (*upstreamCredentials, error) {
	var s sealedCredentials
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: the answer is malformed", errNoCredentials)
	}
	if s.No < least || fmt.Sprint(s.BouncerID) != id {
		return nil, fmt.Errorf("%w: number %d of bouncer %d, want %d of %s", errNoCredentials, s.No, s.BouncerID, least, id)
	}
	box, err := secret.FromToken(b.cfg.Token, credentialsPurpose)
	if err != nil {
		return nil, err
	}
	plain, err := box.Open(s.Sealed, fmt.Sprintf("credentials/%d/%d", s.BouncerID, s.No))
	if err != nil {
		return nil, fmt.Errorf("%w: they do not open with this token", errNoCredentials)
	}
	out := &upstreamCredentials{no: s.No}
	if err := json.Unmarshal(plain, &out.list); err != nil {
		return nil, fmt.Errorf("%w: they are malformed", errNoCredentials)
	}
	for i := range out.list {
		c := &out.list[i]
		name, odd := header.Fold(textproto.CanonicalMIMEHeaderKey(c.Header))
		if odd || name == "" || header.IsHopByHop(name) || !header.IsSafe(c.Value) {
			return nil, fmt.Errorf("%w: %q cannot be sent", errNoCredentials, c.Header)
		}
		c.Header = name
		out.byResource = out.byResource || c.ResourceID != 0
	}
	return out, nil
}

// fetchCredentials asks the control plane, and keeps the answer for a restart.
func (b *Bouncer) fetchCredentials(ctx context.Context, id string, least int64) (*upstreamCredentials, error) {
	if have := b.state.Load().credentials; have != nil && have.no >= least {
		return have, nil
	}
	req, err := b.request(ctx, http.MethodGet, "/bridge/credentials", nil)
	if err != nil {
		return nil, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCredentials, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %w", errNoCredentials, failedStatus(resp))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCredentials))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCredentials, err)
	}
	out, err := b.openCredentials(data, id, least)
	if err != nil {
		return nil, err
	}
	if err := saveFile(b.cfg.DataDir, credentialsName, data); err != nil {
		b.count.saveFailures.Add(1)
		b.log.ErrorContext(ctx, "the credentials for the application could not be saved for a restart", "error", err)
	}
	return out, nil
}

// savedCredentials are those of the last run.
func (b *Bouncer) savedCredentials(id string, least int64) (*upstreamCredentials, error) {
	data, err := os.ReadFile(filepath.Join(b.cfg.DataDir, credentialsName))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoCredentials, err)
	}
	return b.openCredentials(data, id, least)
}

// forRequest are the credentials that count for a request: those for all, and
// those for its resource, which come before them.
func (st *state) forRequest(in *inbound, res *rego.Resource) []credential {
	if st.credentials == nil || len(st.credentials.list) == 0 {
		return nil
	}
	if !st.credentials.byResource {
		return st.credentials.list
	}
	if res == nil && st.set != nil {
		res = st.set.Match(in.locator())
	}
	var own, all []credential
	for _, c := range st.credentials.list {
		switch {
		case c.ResourceID == 0:
			all = append(all, c)
		case res != nil && res.ID == c.ResourceID:
			own = append(own, c)
		}
	}
	for _, c := range all {
		if !slices.ContainsFunc(own, func(o credential) bool { return o.Header == c.Header }) {
			own = append(own, c)
		}
	}
	return own
}

// tokenHeaders is what carried the caller's token, when it is not to go on.
func (s *settings) tokenHeaders(who *identity.Caller) []string {
	switch {
	case s.passToken:
		return nil
	case s.names.Token != "":
		return nil // reserved: it never goes on
	case s.mode == enforcing && !who.Expires.IsZero():
		return authorizationOnly
	}
	return nil
}

var authorizationOnly = []string{"Authorization"}

// credit works out what the application gets in place of the caller's credentials.
// A token that was for us is not for who stands behind, unless it is to pass; in
// shadow mode, where nothing may differ from direct access, it stays, but for
// what a credential takes the place of.
func (st *state) credit(in *inbound, res *rego.Resource, who *identity.Caller) (c header.Changes) {
	c.Drop = st.tokenHeaders(who)
	for _, r := range st.forRequest(in, res) {
		switch r.Action {
		case "add":
			if len(in.headers[r.Header]) > 0 && !slices.Contains(c.Drop, r.Header) {
				continue
			}
		case "set", "strip":
		default:
			continue
		}
		c.Drop = append(c.Drop[:len(c.Drop):len(c.Drop)], r.Header)
		if r.Action != "strip" {
			c.Set = append(c.Set, header.Field{Name: r.Header, Value: r.Value})
		}
	}
	return c
}
