package hardening_test

import (
	"strings"
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// caller is somebody of a tenant whom the operation is for, at the root; a platform
// administrator where nobody of the tenant is.
func (r *rig) caller(op operation, p *party) *apptest.Client {
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
	return op.shown(c)
}

// tokens are access tokens that were made of keys, by key.
var tokens sync.Map

// tokenOf makes an access token of a key; the key itself where it makes none.
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

// directories are the keys of tenants' directories, by the credentials that stand for the
// whole tenant elsewhere.
var directories sync.Map

// shown is the client with its key where the operation looks for it, with a token that was
// made of the key, or with the key of its tenant's directory.
func (op operation) shown(c *apptest.Client) *apptest.Client {
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

// credential is the header line with which the client shows its credential to the operation.
func (op operation) credential(c *apptest.Client) string {
	if c = op.shown(c); c.APIKey != "" {
		return "X-API-Key: " + c.APIKey + "\r\n"
	}
	return "Authorization: Bearer " + c.Bearer + "\r\n"
}
