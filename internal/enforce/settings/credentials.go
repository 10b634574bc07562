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
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/secret"
)

// credential is one header to set, add or strip on requests to the application. Its value never
// appears in logs, status reports or metrics.
type credential struct {
	Header     string `json:"header"`
	Action     string `json:"action"`
	ResourceID int64  `json:"resource_id"` // 0: every request
	Value      string `json:"value"`
}

// Credentials are the bouncer's credentials, as the control plane last sent them.
type Credentials struct {
	no   int64
	list []credential
	// byResource is true if one of them applies to a single resource.
	byResource bool
}

// credentialsPurpose is the purpose that the control plane encrypts credentials for.
const credentialsPurpose = "upstream credentials"

// ErrNoCredentials means that credentials which a bundle names are not available. The bundle does
// not become active then, because requests would carry the callers' own credentials.
var ErrNoCredentials = errors.New("the credentials for the application are not available")

// sealedCredentials is the control plane's answer, and the file.
type sealedCredentials struct {
	BouncerID int64  `json:"bouncer_id"`
	No        int64  `json:"no"`
	Sealed    []byte `json:"sealed"`
}

// OpenCredentials decrypts credentials that were encrypted for this bouncer. Their number must be
// at least least.
func OpenCredentials(data []byte, token, id string, least int64) (*Credentials, error) {
	var s sealedCredentials
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: the answer is malformed", ErrNoCredentials)
	}
	if s.No < least || fmt.Sprint(s.BouncerID) != id {
		return nil, fmt.Errorf("%w: got version %d for bouncer %d, want at least version %d for bouncer %s", ErrNoCredentials, s.No, s.BouncerID, least, id)
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

// Number returns the number of the credentials. Bundles name it.
func (c *Credentials) Number() int64 { return c.no }

// HasResourceCredentials reports whether some credentials apply to single resources.
func (st *State) HasResourceCredentials() bool {
	return st.Credentials != nil && st.Credentials.byResource
}

// forRequest returns the credentials for a request. Those for its resource replace those for all
// requests.
func (st *State) forRequest(res *target.Resource) []credential {
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

// tokenHeaders returns the headers that may carry the caller's token, if the token must not be
// forwarded.
func (s *Settings) tokenHeaders(who *identity.Caller) []string {
	switch {
	case s.PassToken:
		return nil
	case s.Names.Token != "":
		return nil // reserved: it is never forwarded
	case s.Mode == Enforcing && !who.Expires.IsZero():
		return authorizationOnly
	}
	return nil
}

var authorizationOnly = []string{"Authorization"}

// HeaderChanges returns what the application receives in place of the caller's credentials. A token that
// is meant for the bouncer is not forwarded, unless the configuration asks for that. Shadow mode
// must not differ from direct access, so the token stays there, unless a credential replaces it.
func (st *State) HeaderChanges(headers http.Header, res *target.Resource, who *identity.Caller) (c header.Changes) {
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
		c.Drop = append(slices.Clip(c.Drop), r.Header)
		if r.Action != "strip" {
			c.Set = append(c.Set, header.Field{Name: r.Header, Value: r.Value})
		}
	}
	return c
}
