package classify

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hostToken matches a host name in free text. It must have dots and a known last label, so that
// "e.g." and "node.js" do not match.
var hostToken = regexp.MustCompile(`(^|[^a-z0-9.@_-])([a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9][a-z0-9-]{0,62})*\.(?:com|net|org|io|ai|dev|app|cloud|gov|edu|eu|uk|de|fr|es|us|internal|local|corp))\b`)

// maxDestinations is the maximum number of proposed destinations.
const maxDestinations = 20

// destinations returns the host names that the subject mentions besides its own: the host of its
// URL, if that is another one, and those in its business context. It ignores the hosts of e-mail
// addresses.
func (f *finder) destinations(s Subject) []string {
	own := hostOf(s.OriginalHost)
	behind := ""
	if u, err := url.Parse(strings.ToLower(s.URL)); err == nil {
		behind = u.Hostname()
	}
	if own == "" {
		own = behind
	}
	out := []string{}
	add := func(host string) {
		if host != own && !slices.Contains(out, host) && len(out) < maxDestinations && dnsName.MatchString(host) && len(host) <= 253 {
			out = append(out, host)
			f.found("egress_destinations", host)
		}
	}
	add(behind)
	for _, m := range hostToken.FindAllStringSubmatch(strings.ToLower(Redact(s.BusinessContext)), -1) {
		add(m[2])
	}
	return out
}

var dnsName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// hostOf returns a host without its port.
func hostOf(h string) string {
	u, err := url.Parse(fmt.Sprintf("//%s/", strings.ToLower(h)))
	if err != nil {
		return ""
	}
	return u.Hostname()
}
