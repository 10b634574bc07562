package hardening_test

import (
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// callerFor returns a caller in the tenant who may call the operation, or a platform
// administrator. Its paths begin at the root.
func (r *fixture) callerFor(op operation, p *party) *apptest.Client {
	c := &apptest.Client{Base: r.s.URL}
	switch {
	case op.public:
	case op.platform():
		c.Bearer = r.s.Admin.Bearer
	case op.directory() || op.takes("api_key"):
		c.APIKey = p.key.APIKey
	default:
		c.Bearer = p.admin.Bearer
	}
	return op.withCredential(c)
}

// tokens has the access tokens that were made with keys, by key.
var tokens sync.Map

// tokenOf returns an access token that was made with a key, or the key if it cannot make one.
func tokenOf(c *apptest.Client) string {
	if known, ok := tokens.Load(c.APIKey); ok {
		return known.(string)
	}
	holder := &apptest.Client{Base: strings.TrimSuffix(c.Base, "/api/v1") + "/api/v1", APIKey: c.APIKey}
	res, err := holder.Try("POST", "/developer-portal/token", body{})
	var made struct {
		AccessToken string `json:"access_token"`
	}
	if err != nil || res.Status != 200 || res.Decode(&made) != nil {
		return c.APIKey
	}
	tokens.Store(c.APIKey, made.AccessToken)
	return made.AccessToken
}

// directories has the tokens of tenants' directories, by the other credentials of the tenant.
var directories sync.Map

// withCredential returns the client with the credential that the operation takes, where it takes
// it: its key, a token that was made with the key, or the token of its tenant's directory.
func (op operation) withCredential(c *apptest.Client) *apptest.Client {
	if op.directory() {
		if key, ok := directories.Load(c.APIKey + c.Bearer); ok {
			own := *c
			own.Bearer, own.APIKey = key.(string), ""
			return &own
		}
		return c
	}
	if !op.bearer || c.APIKey == "" {
		return c
	}
	bearer := *c
	bearer.Bearer, bearer.APIKey = c.APIKey, ""
	if op.token {
		bearer.Bearer = tokenOf(c)
	}
	return &bearer
}

// credential returns the header line with the client's credential for the operation.
func (op operation) credential(c *apptest.Client) string {
	if c = op.withCredential(c); c.APIKey != "" {
		return "X-API-Key: " + c.APIKey + "\r\n"
	}
	return "Authorization: Bearer " + c.Bearer + "\r\n"
}
