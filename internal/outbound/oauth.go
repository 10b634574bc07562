package outbound

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
)

// ClientGrant is a client credentials grant of OAuth 2.0 (RFC 6749 section 4.4).
type ClientGrant struct {
	TokenURL, ID, Secret string
	// Scope lists the requested scopes, separated by spaces; empty: the server's default.
	Scope string
	// Basic sends the client's credentials with HTTP Basic authentication instead of in the body.
	Basic bool
}

// ClientToken requests an access token. The token is empty if the endpoint's answer contains none.
// status is the HTTP status of that answer. The error is that of Do.
func (c *Client) ClientToken(ctx context.Context, g ClientGrant) (token string, status int, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if g.Scope != "" {
		form.Set("scope", g.Scope)
	}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	if g.Basic {
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(g.ID)+":"+url.QueryEscape(g.Secret))))
	} else {
		form.Set("client_id", g.ID)
		form.Set("client_secret", g.Secret)
	}
	res, err := c.Do(ctx, Request{Method: http.MethodPost, URL: g.TokenURL, Header: header, Body: []byte(form.Encode())})
	if err != nil {
		return "", 0, err
	}
	var got struct {
		AccessToken string `json:"access_token"`
	}
	if !res.OK() || res.Truncated || json.Unmarshal(res.Body, &got) != nil {
		return "", res.Status, nil
	}
	return got.AccessToken, res.Status, nil
}
