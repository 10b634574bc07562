// Package identity establishes who sent a request: by a bearer token that configured keys verify,
// or by the identity headers of a trusted proxy.
package identity

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Caller is the proven identity of the client. The zero value is an anonymous caller.
type Caller struct {
	ID, Email string
	Groups    []string
	// Agent is the client that acts for the user, if the proof names one.
	Agent string
	// Actor is who acts for the user, by the claim act (RFC 8693); empty: nobody does.
	Actor string
	// Doc is input.user; undefined for an anonymous caller.
	Doc value.Value
	// Expires is when the proof expires; zero for headers of a proxy.
	Expires time.Time
}

// IsKnown reports whether the caller is known.
func (c *Caller) IsKnown() bool { return c.ID != "" }

// The errors of a proof. A bad token is the caller's fault (401); missing keys are the bouncer's
// (503).
var (
	ErrBadToken    = errors.New("the bearer token is not valid")
	ErrUnavailable = jwks.ErrUnavailable
	ErrAmbiguous   = errors.New("the request has two identities")
)

// maxIdentityHeader limits the length of one identity header, in bytes.
const maxIdentityHeader = 8 << 10

// Proxies are the networks whose identity and forwarding headers are trusted.
type Proxies []netip.Prefix

// Trusts reports whether a is in one of the networks.
func (p Proxies) Trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// ParseProxies parses CIDRs and plain addresses.
func ParseProxies(list []string) (Proxies, error) {
	var out Proxies
	for _, s := range list {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		n, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, errors.New("trusted proxy " + s + " is neither an address nor a CIDR")
		}
		out = append(out, n.Masked())
	}
	return out, nil
}

// ClientOf returns the address of the client: the peer or, if the peer is a trusted proxy, the last
// hop in X-Forwarded-For that is not one.
func (p Proxies) ClientOf(peer netip.Addr, h http.Header) netip.Addr {
	if !p.Trusts(peer) {
		return peer
	}
	lines := h["X-Forwarded-For"]
	at := peer
	for _, rest := range slices.Backward(lines) {
		for rest != "" {
			var hop string
			if c := strings.LastIndexByte(rest, ','); c >= 0 {
				rest, hop = rest[:c], rest[c+1:]
			} else {
				rest, hop = "", rest
			}
			a, err := netip.ParseAddr(strings.TrimSpace(hop))
			if err != nil {
				return at
			}
			at = a.Unmap()
			if !p.Trusts(at) {
				return at
			}
		}
	}
	return at
}

// Identify returns the caller, proven by a bearer token that the configured keys verify or, if
// byHeader allows it, by the identity headers of a trusted proxy. If no keys are configured, bearer
// tokens are left to the application.
func Identify(ctx context.Context, h http.Header, names header.Names, tokens *Verifier, byHeader bool) (*Caller, error) {
	var fromProxy *Caller
	if byHeader {
		who, err := identityHeaders(h, names)
		if err != nil {
			return Anonymous(), err
		}
		fromProxy = who
	}
	if tokens != nil {
		token, err := tokenOf(h, names.Token)
		if err != nil {
			return Anonymous(), err
		}
		if token != "" {
			who, err := tokens.Verify(ctx, token)
			if err != nil {
				return Anonymous(), err
			}
			if fromProxy != nil && fromProxy.ID != who.ID {
				return Anonymous(), ErrAmbiguous
			}
			return who, nil
		}
	}
	if fromProxy != nil {
		return fromProxy, nil
	}
	return Anonymous(), nil
}

var anonymous = &Caller{}

// Anonymous returns the anonymous caller.
func Anonymous() *Caller { return anonymous }

// tokenOf returns the caller's token: the bearer token, or the value of the configured header with
// or without the word Bearer. It returns "" if there is none.
func tokenOf(h http.Header, name string) (string, error) {
	if name == "" {
		return bearer(h)
	}
	lines := h[name]
	switch {
	case len(lines) == 0:
		return "", nil
	case len(lines) > 1:
		return "", ErrAmbiguous
	}
	token := strings.TrimSpace(lines[0])
	if scheme, rest, found := strings.Cut(token, " "); found && strings.EqualFold(scheme, "bearer") {
		token = strings.TrimSpace(rest)
	}
	if token == "" {
		return "", ErrBadToken
	}
	return token, nil
}

// bearer returns the token of the Authorization header, or "".
func bearer(h http.Header) (string, error) {
	lines := h["Authorization"]
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		return "", ErrAmbiguous
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", nil
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return "", ErrBadToken
	}
	return token, nil
}

// identityHeaders reads the identity headers of a trusted proxy. It returns nil if there are none.
func identityHeaders(h http.Header, names header.Names) (*Caller, error) {
	one := func(name string) (string, error) {
		lines := h[name]
		if len(lines) > 1 {
			return "", ErrAmbiguous
		}
		if len(lines) == 0 {
			return "", nil
		}
		if len(lines[0]) > maxIdentityHeader {
			return "", ErrBadToken
		}
		return strings.TrimSpace(lines[0]), nil
	}
	user, err := one(names.User)
	if err != nil {
		return nil, err
	}
	email, err := one(names.Email)
	if err != nil {
		return nil, err
	}
	list, err := one(names.Groups)
	if err != nil {
		return nil, err
	}
	if user == "" && email != "" {
		user = email
	}
	if user == "" {
		return nil, nil
	}
	who := &Caller{ID: user, Email: email}
	for g := range strings.SplitSeq(list, ",") {
		if g = strings.TrimSpace(g); g != "" {
			who.Groups = append(who.Groups, g)
		}
	}
	who.Doc = userDoc(who, who.Groups, value.Object())
	return who, nil
}

// userDoc returns input.user. Its roles are those of the token, or the groups if the token has no
// claim for roles, so that one control works with both kinds of proof.
func userDoc(who *Caller, roles []string, attributes value.Value) value.Value {
	members := make([]value.Member, 0, 6)
	members = append(members, value.Member{Key: "id", Value: value.String(who.ID)})
	if strings.HasPrefix(who.ID, scope.AgentPrefix) {
		members = append(members, value.Member{Key: "type", Value: value.String(string(scope.Agent))})
	}
	if who.Email != "" {
		members = append(members, value.Member{Key: "email", Value: value.String(who.Email)})
	}
	members = append(members,
		value.Member{Key: "roles", Value: stringArray(roles)},
		value.Member{Key: "groups", Value: stringArray(who.Groups)},
		value.Member{Key: "attributes", Value: attributes})
	return value.Object(members...)
}

func stringArray(list []string) value.Value {
	vs := make([]value.Value, len(list))
	for i, s := range list {
		vs[i] = value.String(s)
	}
	return value.Array(vs...)
}
