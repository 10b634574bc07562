package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// errRefused is the cause of the fault for each target that the guard refuses.
var errRefused = errors.New("the target is refused")

// hostName is a DNS name in ASCII: letters, digits, hyphens and underscores.
var hostName = regexp.MustCompile(`^(?i:([a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?)$`)

// target is a URL whose form was accepted.
type target struct {
	host string
	port uint16
	// listedOnly is set if only an address of AllowCIDRs may be called, because the URL is plain HTTP.
	listedOnly bool
}

// form checks the form of a URL. It refuses everything that another parser could read as another
// host: user information, numbers other than a plain IPv4 address, a trailing dot, non-ASCII
// characters, and zones.
func (c *Client) form(raw string) (target, error) {
	refuse := func(why string) (target, error) { return target{}, fmt.Errorf("%w: %s", errRefused, why) }
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f || raw[i] == '\\' {
			return refuse("the URL contains a character that is not allowed")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return refuse("it is not a URL")
	}
	ports := map[string]uint16{"https": 443}
	if c.cfg.AllowHTTP || c.cfg.PlainToAllowed && len(c.cfg.AllowCIDRs) > 0 {
		ports["http"] = 80
	}
	port, ok := ports[u.Scheme]
	plain := u.Scheme == "http" && !c.cfg.AllowHTTP
	switch {
	case !ok:
		return refuse("the scheme is not allowed")
	case u.Opaque != "" || u.Host == "" || u.Hostname() == "":
		return refuse("the host is missing")
	case u.User != nil:
		return refuse("the URL contains credentials")
	case strings.HasSuffix(u.Host, ":"):
		return refuse("the port is empty")
	case strings.Contains(raw, "#"):
		return refuse("the URL has a fragment")
	}
	if text := u.Port(); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 || text[0] == '0' {
			return refuse("the port is invalid")
		}
		port = uint16(n)
	}
	host := u.Hostname()
	if strings.Contains(host, "%") {
		return refuse("the host has a zone or an escape")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return target{host, port, plain}, nil
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if !hostName.MatchString(host) || len(host) > 253 || number(last) {
		return refuse("the host name is invalid")
	}
	return target{host, port, plain}, nil
}

// number reports whether a last label makes some parsers read a host as an IPv4 address: it is
// decimal, octal or hexadecimal.
func number(label string) bool {
	if hex, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// Check reports whether a URL may be called, before it is saved. The error is an Invalid fault at
// pointer, with the same text for every reason. A name that does not resolve is accepted; each call
// checks again.
func (c *Client) Check(ctx context.Context, pointer, raw string) error {
	t, err := c.form(raw)
	if err == nil {
		err = c.checkAddresses(ctx, t, webPorts)
	}
	return refusal(pointer, err)
}

// checkAddresses refuses a target if its name resolves to a refused address.
func (c *Client) checkAddresses(ctx context.Context, t target, low lowPorts) error {
	if !c.guarded {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	addrs, err := c.resolve(ctx, t.host)
	if err != nil {
		return nil // the same checks run again on each call
	}
	return c.permitAll(addrs, t.port, t.listedOnly, low)
}

// refusal returns the fault for a refused target; nil for a nil cause.
func refusal(pointer string, cause error) error {
	if cause == nil {
		return nil
	}
	f := fault.Invalidf(pointer, "this address may not be called")
	f.Code = "target_refused"
	return f.Because(cause)
}

func (c *Client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := c.cfg.Resolve(ctx, host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("the name has no address")
	}
	return addrs, err
}

// permitAll refuses a name if any of its addresses is refused: a mixed answer suggests an attack.
func (c *Client) permitAll(addrs []netip.Addr, port uint16, listedOnly bool, low lowPorts) error {
	for _, a := range addrs {
		if listedOnly && !c.listed(a) {
			return fmt.Errorf("%w: plain HTTP to %s is not allowed", errRefused, a)
		}
		if err := c.permit(a, port, low); err != nil {
			return err
		}
	}
	return nil
}

// listed reports whether the operator allows an address (AllowCIDRs).
func (c *Client) listed(addr netip.Addr) bool {
	addr = addr.Unmap()
	return slices.ContainsFunc(c.cfg.AllowCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// lowPorts are the ports below 1024 that a protocol may use on public addresses.
type lowPorts [3]uint16

var webPorts = lowPorts{80, 443}

// permit checks one address and port.
func (c *Client) permit(addr netip.Addr, port uint16, low lowPorts) error {
	if c.listed(addr) {
		return nil
	}
	if addr = addr.Unmap(); !public(addr) {
		return fmt.Errorf("%w: %s is not public", errRefused, addr)
	}
	if port < 1024 && !slices.Contains(low[:], port) {
		return fmt.Errorf("%w: port %d is not allowed", errRefused, port)
	}
	return nil
}

// special4 are the special IPv4 ranges that netip does not know (RFC 6890 and its successors), and
// the address of a cloud's metadata service that is in a public range.
var special4 = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("168.63.129.16/32"),
}

// global6 is the only IPv6 range of public addresses. special6 are the ranges in it that are not
// public, or that embed an IPv4 address. NAT64 is outside of global6.
var (
	global6  = netip.MustParsePrefix("2000::/3")
	special6 = []netip.Prefix{
		netip.MustParsePrefix("2001::/23"),
		netip.MustParsePrefix("2001:db8::/32"),
		netip.MustParsePrefix("2002::/16"),
		netip.MustParsePrefix("3fff::/20"),
	}
)

// public reports whether an address is a public one.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() {
		return false
	}
	ranges := special4
	if a.Is6() {
		if !global6.Contains(a) {
			return false
		}
		ranges = special6
	}
	for _, p := range ranges {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// dial connects for HTTP.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	onlyListed, _ := ctx.Value(listedOnly{}).(bool)
	return c.connect(ctx, network, address, onlyListed, webPorts)
}

// connect resolves a name, checks every address, and connects to one of those that it checked. It
// does not resolve the name again. The address of the socket is checked last.
func (c *Client) connect(ctx context.Context, network, address string, onlyListed bool, low lowPorts) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	if err := c.permitAll(addrs, uint16(port), onlyListed, low); err != nil {
		return nil, err
	}
	control := func(_, address string, _ syscall.RawConn) error { return c.control(address, low) }
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second, Control: control}
	var errs []error
	for _, a := range addrs {
		conn, err := dialer.DialContext(ctx, network, netip.AddrPortFrom(a.Unmap(), uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// control checks the address that a socket is about to connect to.
func (c *Client) control(address string, low lowPorts) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s is not an address with a port", errRefused, address)
	}
	return c.permit(ap.Addr(), ap.Port(), low)
}
