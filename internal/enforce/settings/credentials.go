package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
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

// Credentials are those of the bouncer, as the control plane last gave them.
type Credentials struct {
	no   int64
	list []credential
	// byResource is set when one of them is for one resource alone.
	byResource bool
}

const (
	// The key and the place that the control plane seals them under and for.
	credentialsPurpose = "upstream credentials"
)

// ErrNoCredentials keeps a bundle waiting that names credentials which are not to
// be had: without them requests would go out with their callers' own.
var ErrNoCredentials = errors.New("the credentials for the application are not available")

// sealedCredentials is the control plane's answer, and the file.
type sealedCredentials struct {
	BouncerID int64  `json:"bouncer_id"`
	No        int64  `json:"no"`
	Sealed    []byte `json:"sealed"`
}

// OpenCredentials reads what was sealed for us, of the number least or a later one.
func OpenCredentials(data []byte, token, id string, least int64) (*Credentials, error) {
	var s sealedCredentials
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: the answer is malformed", ErrNoCredentials)
	}
	if s.No < least || fmt.Sprint(s.BouncerID) != id {
		return nil, fmt.Errorf("%w: number %d of bouncer %d, want %d of %s", ErrNoCredentials, s.No, s.BouncerID, least, id)
	}
	box, err := secret.FromToken(token, credentialsPurpose)
	if err != nil {
		return nil, err
	}
	plain, err := box.Open(s.Sealed, fmt.Sprintf("credentials/%d/%d", s.BouncerID, s.No))
	if err != nil {
		return nil, fmt.Errorf("%w: they do not open with this token", ErrNoCredentials)
	}
	out := &Credentials{no: s.No}
	if err := json.Unmarshal(plain, &out.list); err != nil {
		return nil, fmt.Errorf("%w: they are malformed", ErrNoCredentials)
	}
	for i := range out.list {
		c := &out.list[i]
		name, odd := header.Fold(textproto.CanonicalMIMEHeaderKey(c.Header))
		if odd || name == "" || header.IsHopByHop(name) || !header.IsSafe(c.Value) {
			return nil, fmt.Errorf("%w: %q cannot be sent", ErrNoCredentials, c.Header)
		}
		c.Header = name
		out.byResource = out.byResource || c.ResourceID != 0
	}
	return out, nil
}

// Number is the credentials' number, which bundles name.
func (c *Credentials) Number() int64 { return c.no }

// HasResourceCredentials reports whether credentials count for some resources alone.
func (st *State) HasResourceCredentials() bool {
	return st.Credentials != nil && st.Credentials.byResource
}

// forRequest are the credentials that count for a request: those for all, and
// those for its resource, which come before them.
func (st *State) forRequest(res *rego.Resource) []credential {
	if st.Credentials == nil || len(st.Credentials.list) == 0 {
		return nil
	}
	if !st.Credentials.byResource {
		return st.Credentials.list
	}
	var own, all []credential
	for _, c := range st.Credentials.list {
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
func (s *Settings) tokenHeaders(who *identity.Caller) []string {
	switch {
	case s.PassToken:
		return nil
	case s.Names.Token != "":
		return nil // reserved: it never goes on
	case s.Mode == Enforcing && !who.Expires.IsZero():
		return authorizationOnly
	}
	return nil
}

var authorizationOnly = []string{"Authorization"}

// Credit works out what the application gets in place of the caller's credentials.
// A token that was for us is not for who stands behind, unless it is to pass; in
// shadow mode, where nothing may differ from direct access, it stays, but for
// what a credential takes the place of.
func (st *State) Credit(headers http.Header, res *rego.Resource, who *identity.Caller) (c header.Changes) {
	c.Drop = st.tokenHeaders(who)
	for _, r := range st.forRequest(res) {
		switch r.Action {
		case "add":
			if len(headers[r.Header]) > 0 && !slices.Contains(c.Drop, r.Header) {
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
