// Package origin reads what browsers and proxies say of where a request comes from.
package origin

import (
	"net/http"
	"net/url"
	"strings"
)

// Parse reads an Origin header (RFC 6454): a scheme, http or https, and a host
// with perhaps a port. ok is false for everything else, null too.
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
