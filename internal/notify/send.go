package notify

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/outbound"
)

// send makes one attempt to send a message.
func (s *Service) send(ctx context.Context, kind string, c format.Channel, m format.Message) Attempt {
	began := s.Now()
	a := s.exchange(ctx, kind, c, m)
	a.At, a.DurationMS = db.Stamp(began), s.Now().Sub(began).Milliseconds()
	return a
}

func (s *Service) exchange(ctx context.Context, kind string, c format.Channel, m format.Message) Attempt {
	t, known := format.Find(kind)
	if !known {
		return Attempt{Error: "this version has no such type of channel"}
	}
	if c.Credential[format.ClientID] != "" {
		var a Attempt
		if c.Token, a = s.obtainToken(ctx, t, c); !a.ok() {
			return a
		}
	}
	if t.Send == nil {
		return s.mail(ctx, c, m)
	}
	var pause time.Duration
	out := t.Send(func(r outbound.Request) (outbound.Response, error) {
		res, err := s.Target.Do(ctx, r)
		pause = res.RetryAfter(s.Now(), longestPause)
		return res, err
	}, c, m)
	a := Attempt{ResponseCode: out.Status, Response: out.Response, Error: out.Error, ticket: out.Ticket}
	if !a.ok() {
		a.pause = pause
	}
	return a
}

// longestPause is the longest pause that a receiver can ask for with Retry-After.
const longestPause = time.Hour

// obtainToken gets an access token for an OAuth client (RFC 6749, section 4.4). The Attempt says
// why there is none.
func (s *Service) obtainToken(ctx context.Context, t format.Type, c format.Channel) (string, Attempt) {
	g := outbound.ClientGrant{ID: c.Credential[format.ClientID], Secret: c.Credential[format.ClientSecret]}
	g.TokenURL, _ = c.Settings["token_url"].(string)
	if g.Scope, _ = c.Settings["scope"].(string); g.Scope == "" {
		g.Scope = t.Scope
	}
	auth, _ := c.Settings["client_auth"].(string)
	g.Basic = auth == "basic"
	token, status, err := s.Target.ClientToken(ctx, g)
	switch {
	case err != nil:
		return "", Attempt{Error: "the token endpoint could not be reached"}
	case token == "":
		return "", Attempt{ResponseCode: status, Error: "the token endpoint returned no token"}
	}
	return token, Attempt{}
}
