package enforce

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/header"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// identity is who asks, as far as it is proven. The zero value is nobody.
type identity struct {
	id, email string
	groups    []string
	// agent is the client that acts for the user, when the proof names one.
	agent string
	// doc is input.user; Undefined for nobody.
	doc value.Value
	// expires is when the proof runs out; zero for headers of a proxy.
	expires time.Time
}

// known reports whether anybody was proven.
func (i *identity) known() bool { return i.id != "" }

// What can be wrong with a proof. They are told apart because a bad token is
// the caller's fault (401) and missing keys are ours (503).
var (
	errBadToken            = errors.New("the bearer token is not valid")
	errIdentityUnavailable = errors.New("the keys that verify tokens cannot be had")
	errAmbiguousIdentity   = errors.New("two identities in one request")
)

// maxIdentityHeader bounds one identity header, in bytes.
const maxIdentityHeader = 8 << 10

// proxies are the networks whose word is taken.
type proxies []netip.Prefix

// trusts reports whether a is in one of the networks.
func (p proxies) trusts(a netip.Addr) bool {
	for _, n := range p {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// parseProxies reads CIDRs or plain addresses.
func parseProxies(list []string) (proxies, error) {
	var out proxies
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

// peerOf is the address of the connection's other end.
func peerOf(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// clientOf is the address of the client: the peer, or, when the peer is a
// trusted proxy, the nearest hop of X-Forwarded-For that is none.
func clientOf(peer netip.Addr, trusted proxies, h http.Header) netip.Addr {
	if !trusted.trusts(peer) {
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
			if !trusted.trusts(at) {
				return at
			}
		}
	}
	return at
}

// identify proves who asks: a bearer token that the configured keys verify, or
// the identity headers of a trusted proxy where byHeader allows them. A bearer
// token while no keys are configured is the application's own affair.
func identify(ctx context.Context, h http.Header, st *settings, byHeader bool) (*identity, error) {
	var fromProxy *identity
	if byHeader {
		who, err := identityHeaders(h, st.names)
		if err != nil {
			return nobody, err
		}
		fromProxy = who
	}
	if st.tokens != nil {
		token, err := tokenOf(h, st.names.Token)
		if err != nil {
			return nobody, err
		}
		if token != "" {
			who, err := st.tokens.verify(ctx, token)
			if err != nil {
				return nobody, err
			}
			if fromProxy != nil && fromProxy.id != who.id {
				return nobody, errAmbiguousIdentity
			}
			return who, nil
		}
	}
	if fromProxy != nil {
		return fromProxy, nil
	}
	return nobody, nil
}

var nobody = &identity{}

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
		return "", errAmbiguousIdentity
	}
	token := strings.TrimSpace(lines[0])
	if scheme, rest, found := strings.Cut(token, " "); found && strings.EqualFold(scheme, "bearer") {
		token = strings.TrimSpace(rest)
	}
	if token == "" {
		return "", errBadToken
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
		return "", errAmbiguousIdentity
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return "", nil
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return "", errBadToken
	}
	return token, nil
}

// identityHeaders reads what a trusted proxy says; nil when it says nothing.
func identityHeaders(h http.Header, names header.Names) (*identity, error) {
	one := func(name string) (string, error) {
		lines := h[name]
		if len(lines) > 1 {
			return "", errAmbiguousIdentity
		}
		if len(lines) == 0 {
			return "", nil
		}
		if len(lines[0]) > maxIdentityHeader {
			return "", errBadToken
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
	who := &identity{id: user, email: email}
	for g := range strings.SplitSeq(list, ",") {
		if g = strings.TrimSpace(g); g != "" {
			who.groups = append(who.groups, g)
		}
	}
	who.doc = userDoc(who, who.groups, value.Object())
	return who, nil
}

// userDoc is input.user. Roles are the token's roles, or its groups where it has
// no claim of roles at all, so that one control reads both kinds of proof.
func userDoc(who *identity, roles []string, attributes value.Value) value.Value {
	members := make([]value.Member, 0, 5)
	members = append(members, value.Member{Key: "id", Value: value.String(who.id)})
	if who.email != "" {
		members = append(members, value.Member{Key: "email", Value: value.String(who.email)})
	}
	members = append(members,
		value.Member{Key: "roles", Value: stringArray(roles)},
		value.Member{Key: "groups", Value: stringArray(who.groups)},
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
