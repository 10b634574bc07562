// Package origin reads from requests of browsers and proxies where a request comes from and what
// its answer is for.
package origin

import (
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Parse reads an Origin header (RFC 6454): a scheme, http or https, and a host with an optional
// port. ok is false for everything else, including null.
func Parse(text string) (scheme, host string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || !strings.EqualFold(text, u.Scheme+"://"+u.Host) {
		return "", "", false
	}
	return u.Scheme, u.Host, true
}

// IsOf reports whether an origin is that of an address, such as https://example.com/base.
func IsOf(scheme, host, address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == scheme && strings.EqualFold(u.Host, host)
}

// Relayed reports whether a header has fields that proxies and tunnels add.
func Relayed(h http.Header) bool {
	for name := range h {
		if relays[name] || strings.HasPrefix(name, "X-Forwarded-") {
			return true
		}
	}
	return false
}

// relays are the fields besides X-Forwarded-* that proxies and tunnels add.
var relays = map[string]bool{
	"Forwarded": true, "Via": true, "X-Real-Ip": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true, "X-Original-Host": true, "X-Original-Url": true,
	"True-Client-Ip": true, "Cf-Connecting-Ip": true, "Fastly-Client-Ip": true, "Fly-Client-Ip": true, "X-Envoy-External-Address": true,
}

// WantsPage reports whether Accept headers (RFC 9110, section 12.5.1) ask for a page: they
// name HTML, and prefer it to JSON.
func WantsPage(accept []string) bool {
	page, data := 0.0, 0.0
	for one := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(one)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, sent := params["q"]; sent {
			if weight, err = strconv.ParseFloat(q, 64); err != nil {
				weight = 0
			}
		}
		switch media {
		case "text/html", "application/xhtml+xml":
			page = max(page, weight)
		case "application/json", "application/problem+json":
			data = max(data, weight)
		}
	}
	return page > data
}

// Peer returns the address at the other end of the connection; invalid if it is not known.
func Peer(req *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(req.RemoteAddr)
	return ap.Addr().Unmap()
}

// IsCrossOrigin reports whether a page of another origin sent the browser here (Fetch Metadata).
func IsCrossOrigin(h http.Header) bool {
	site := h["Sec-Fetch-Site"]
	return len(site) > 0 && (len(site) > 1 || site[0] != "same-origin" && site[0] != "none")
}
