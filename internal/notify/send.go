package notify

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// send sends a message once.
func (s *Service) send(ctx context.Context, kind string, c format.Channel, m format.Message) Attempt {
	began := s.Now()
	a := s.exchange(ctx, kind, c, m)
	a.At, a.DurationMS = db.Stamp(began), s.Now().Sub(began).Milliseconds()
	for _, secret := range c.Credential { // a receiver may repeat what it was sent
		if len(secret) >= 4 {
			a.Response = strings.ReplaceAll(a.Response, secret, "[redacted]")
		}
	}
	return a
}

func (s *Service) exchange(ctx context.Context, kind string, c format.Channel, m format.Message) Attempt {
	t, known := format.Find(kind)
	if !known {
		return Attempt{Error: "this version has no such type of channel"}
	}
	if c.Credential[format.ClientID] != "" {
		var a Attempt
		if c.Token, a = s.obtainToken(ctx, c); !a.ok() {
			return a
		}
	}
	if t.Request == nil {
		return s.mail(ctx, c, m)
	}
	r, err := t.Request(c, m)
	if err != nil {
		return Attempt{Error: "the message cannot be written"}
	}
	res, err := s.Target.Do(ctx, r)
	if err != nil {
		return Attempt{Error: fault.Message(err)}
	}
	a := Attempt{ResponseCode: res.Status}
	if !res.OK() {
		a.Error = "the receiver answered " + strconv.Itoa(res.Status)
	}
	return a
}

// obtainToken gets an access token for an OAuth client (RFC 6749, 4.4).
func (s *Service) obtainToken(ctx context.Context, c format.Channel) (string, Attempt) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if scope, _ := c.Settings["scope"].(string); scope != "" {
		form.Set("scope", scope)
	}
	id, secret := c.Credential[format.ClientID], c.Credential[format.ClientSecret]
	endpoint, _ := c.Settings["token_url"].(string)
	header := map[string][]string{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"},
	}
	if in, _ := c.Settings["client_auth"].(string); in == "basic" {
		header["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret)))}
	} else {
		form.Set("client_id", id)
		form.Set("client_secret", secret)
	}
	res, err := s.Target.Do(ctx, outbound.Request{Method: "POST", URL: endpoint, Header: header, Body: []byte(form.Encode())})
	if err != nil {
		return "", Attempt{Error: "the token endpoint could not be reached"}
	}
	var got struct {
		AccessToken string `json:"access_token"`
	}
	if !res.OK() || json.Unmarshal(res.Body, &got) != nil || got.AccessToken == "" {
		return "", Attempt{ResponseCode: res.Status, Error: "the token endpoint gave no token"}
	}
	return got.AccessToken, Attempt{}
}
