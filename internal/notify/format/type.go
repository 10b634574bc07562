package format

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// The types of channels.
const (
	Email   = "email"
	Webhook = "webhook"
)

// The members of credentials.
const (
	Username     = "username"
	Password     = "password"
	AccessToken  = "access_token"
	ClientID     = "client_id"
	ClientSecret = "client_secret"
	HMACSecret   = "hmac_secret"
	BearerToken  = "bearer_token"
)

// Channel is what a Type has to know of a channel.
type Channel struct {
	Endpoint   string
	Settings   map[string]any
	Credential map[string]string
	// Token is the access token that was obtained for the credential, if it is an OAuth
	// client.
	Token string
}

// Type is one type of channel.
type Type struct {
	Name string
	// Secrets are the members that a credential may have. The first is the one that a
	// credential given as text stands for.
	Secrets []string
	// Check lists what is wrong with a channel.
	Check func(c Channel) []fault.Detail
	// Request makes the request for a message. It is nil for mail.
	Request func(c Channel, m Message) (outbound.Request, error)
}

// Types lists the types of channels.
func Types() []Type {
	return []Type{emailType(), webhookType()}
}

// Find is the type of a name.
func Find(name string) (Type, bool) {
	all := Types()
	i := slices.IndexFunc(all, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return all[i], true
}

// Hosts are the hosts that a channel sends its credential to.
func (c Channel) Hosts() []string {
	out := []string{Origin(c.Endpoint)}
	if t := c.text("token_url"); t != "" {
		out = append(out, Origin(t))
	}
	return out
}

// Origin is scheme and host of a URL.
func Origin(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + strings.ToLower(u.Host)
}

// text is a setting that is text; "" where it is absent.
func (c Channel) text(name string) string {
	s, _ := c.Settings[name].(string)
	return s
}

// list is a setting that is one text or several.
func (c Channel) list(name string) ([]string, bool) {
	switch v := c.Settings[name].(type) {
	case nil:
		return nil, true
	case string:
		return []string{v}, true
	case []any:
		var out []string
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	}
	return nil, false
}

// checks gathers what is wrong with a channel.
type checks struct {
	Channel
	found []fault.Detail
}

func (c *checks) add(pointer, message string) {
	c.found = append(c.found, fault.Detail{Pointer: pointer, Message: message})
}

// texts says which settings are texts.
func (c *checks) texts(names ...string) {
	for _, name := range names {
		v, sent := c.Settings[name]
		s, ok := v.(string)
		switch {
		case sent && !ok:
			c.add("/settings/"+name, "must be a string")
		case len(s) > 2000:
			c.add("/settings/"+name, "must not be longer than 2000 characters")
		}
	}
}

// required says which settings there must be.
func (c *checks) required(names ...string) {
	c.texts(names...)
	for _, name := range names {
		if _, wrong := c.Settings[name]; !wrong {
			c.add("/settings/"+name, "is required for this type of channel")
		} else if s, ok := c.Settings[name].(string); ok && strings.TrimSpace(s) == "" {
			c.add("/settings/"+name, "must not be empty")
		}
	}
}

// oneOf says which values a setting may have.
func (c *checks) oneOf(name string, values ...string) {
	c.texts(name)
	if s, ok := c.Settings[name].(string); ok && !slices.Contains(values, s) {
		c.add("/settings/"+name, "must be one of "+strings.Join(values, ", "))
	}
}

// secrets says that a credential has one of several sets of members, and nothing else.
func (c *checks) secrets(sets ...[]string) {
	var names []string
	for _, set := range sets {
		names = append(names, strings.Join(set, " and "))
		if len(set) != len(c.Credential) {
			continue
		}
		if !slices.ContainsFunc(set, func(n string) bool { return c.Credential[n] == "" }) {
			return
		}
	}
	for i, n := range names {
		if n == "" {
			names[i] = "nothing"
		}
	}
	c.add("/credential", "must have "+strings.Join(names, ", or "))
}

// jsonRequest posts a value as JSON.
func jsonRequest(url string, value any) (outbound.Request, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return outbound.Request{}, err
	}
	return outbound.Request{Method: "POST", URL: url, Body: body, Header: map[string][]string{
		"Content-Type": {"application/json; charset=utf-8"}, "Accept": {"application/json"}, "User-Agent": {"gatehouse-notifications"},
	}}, nil
}

// authorize adds the credential of a channel to a request: a token that was obtained
// for it, a token, or name and password.
func (c Channel) authorize(r outbound.Request) {
	token := c.Token
	for _, name := range []string{AccessToken, BearerToken} {
		if token == "" {
			token = c.Credential[name]
		}
	}
	switch {
	case token != "":
		r.Header["Authorization"] = []string{"Bearer " + token}
	case c.Credential[Username] != "":
		r.Header["Authorization"] = []string{"Basic " + basic(c.Credential[Username], c.Credential[Password])}
	}
}
