// Package identity proves who a request is from: by a bearer token that configured keys
// verify, or by the identity headers of a trusted proxy.
package identity

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/jwks"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Caller is who asks, as far as that is proven. The zero value is nobody.
type Caller struct {
	ID, Email string
	Groups    []string
	// Agent is the client that acts for the user, when the proof names one.
	Agent string
	// Doc is input.user; Undefined for nobody.
	Doc value.Value
	// Expires is when the proof runs out; zero for headers of a proxy.
	Expires time.Time
}

// Proven reports whether anybody was proven.
func (i *Caller) Proven() bool { return i.ID != "" }

// What can be wrong with a proof. They are told apart because a bad token is
// the caller's fault (401) and missing keys are ours (503).
var (
	ErrBadToken    = errors.New("the bearer token is not valid")
	ErrUnavailable = jwks.ErrUnavailable
	ErrAmbiguous   = errors.New("the request has two identities")
)

// maxIdentityHeader bounds one identity header, in bytes.
const maxIdentityHeader = 8 << 10

// Proxies are the networks whose identity and forwarding headers are taken.
type Proxies []netip.Prefix

// Trusts reports whether a is in one of the networks.
func (p Proxies) Trusts(a netip.Addr) bool {
	for _, n := range p {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// ParseProxies reads CIDRs or plain addresses.
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

// ClientOf is the address of the client: the peer, or, when the peer is a
// trusted proxy, the nearest hop of X-Forwarded-For that is none.
func (p Proxies) ClientOf(peer netip.Addr, h http.Header) netip.Addr {
	if !p.Trusts(peer) {
		return peer
	}
	lines := h["X-Forwarded-For"]
	at := peer
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
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

// Identify proves who asks: a bearer token that the configured keys verify, or
// the identity headers of a trusted proxy where byHeader allows them. A bearer
// token while no keys are configured is the application's own affair.
func Identify(ctx context.Context, h http.Header, names header.Names, tokens *Verifier, byHeader bool) (*Caller, error) {
	var fromProxy *Caller
	if byHeader {
		who, err := identityHeaders(h, names)
		if err != nil {
			return Nobody(), err
		}
		fromProxy = who
	}
	if tokens != nil {
		token, err := tokenOf(h, names.Token)
		if err != nil {
			return Nobody(), err
		}
		if token != "" {
			who, err := tokens.Verify(ctx, token)
			if err != nil {
				return Nobody(), err
			}
			if fromProxy != nil && fromProxy.ID != who.ID {
				return Nobody(), ErrAmbiguous
			}
			return who, nil
		}
	}
	if fromProxy != nil {
		return fromProxy, nil
	}
	return Nobody(), nil
}

var nobody = &Caller{}

// Nobody is the caller of whom nothing is proven.
func Nobody() *Caller { return nobody }

// tokenOf is the caller's token: a bearer token, or what stands in the header that
// is configured for it, with or without the word Bearer; "" when there is none.
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

// bearer is the token of the Authorization header; "" when there is none.
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

// identityHeaders reads what a trusted proxy says; nil when it says nothing.
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

// userDoc is input.user. Roles are the token's roles, or its groups where it has
// no claim of roles at all, so that one control reads both kinds of proof.
func userDoc(who *Caller, roles []string, attributes value.Value) value.Value {
	members := make([]value.Member, 0, 5)
	members = append(members, value.Member{Key: "id", Value: value.String(who.ID)})
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
