package resource

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

var (
	segmentName = regexp.MustCompile(`^\{[A-Za-z_][A-Za-z0-9_]{0,63}\}$`)
	methodToken = regexp.MustCompile(`^[A-Z][A-Z0-9_-]{0,31}$`)
	hostLabel   = regexp.MustCompile(`^[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?$`)
)

// checkPattern returns what is wrong with a path pattern, or "". Patterns must be canonical,
// like the paths that they match: a pattern that no canonical path can match would protect
// nothing.
func checkPattern(p string) string {
	if !strings.HasPrefix(p, "/") {
		return "a path pattern must begin with /"
	}
	if i := strings.IndexFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd }); i >= 0 {
		return "a path pattern must not have control characters"
	}
	if i := strings.IndexAny(p, `\?#%`); i >= 0 {
		return "a path pattern must not have " + strconv.Quote(p[i:i+1]) + ": requests are matched by their decoded path, without query"
	}
	if p == "/" {
		return ""
	}
	names := map[string]bool{}
	segs := strings.Split(p[1:], "/")
	if len(segs) > 256 {
		return "a path pattern may have at most 256 segments"
	}
	for i, s := range segs {
		switch {
		case strings.HasPrefix(s, ".;"), strings.HasPrefix(s, "..;"):
			return "a path pattern must not have a dot segment with parameters"
		case s == "":
			return "a path pattern must not have an empty segment or a slash at its end"
		case s == "." || s == "..":
			return "a path pattern must not have a . or .. segment"
		case s == "**":
			if i != len(segs)-1 {
				return "** stands for the rest of the path, so it comes last"
			}
		case s == "*":
		case strings.ContainsAny(s, "{}"):
			if !segmentName.MatchString(s) {
				return "a named segment is {name} and nothing else: " + strconv.Quote(s)
			}
			if names[s] {
				return "the name " + strconv.Quote(s) + " occurs twice"
			}
			names[s] = true
		case strings.Contains(s, "*"):
			return "* stands for one whole segment: " + strconv.Quote(s)
		}
	}
	return ""
}

// normalMethods returns the methods in upper case, sorted and without duplicates. "*" means
// every method, which is the empty list. It calls wrong for each invalid method, with its
// position.
func normalMethods(in []string, wrong func(i int, msg string)) []string {
	out := make([]string, 0, len(in))
	every := false
	for i, m := range in {
		m = strings.ToUpper(strings.TrimSpace(m))
		switch {
		case m == "*":
			every = true
		case !methodToken.MatchString(m):
			wrong(i, "not an HTTP method: "+strconv.Quote(m))
		default:
			out = append(out, m)
		}
	}
	if every {
		return []string{}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// normalHost returns a host in lower case, with its port if it has one, or else what is wrong
// with it.
func normalHost(h string) (string, string) {
	if h == "" {
		return "", ""
	}
	h = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(h)), ".")
	host := h
	if name, port, err := net.SplitHostPort(h); err == nil {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "", "not a port: " + strconv.Quote(port)
		}
		host = name
	}
	if net.ParseIP(strings.Trim(host, "[]")) == nil && !validHost(host) {
		return "", "not a host name: " + strconv.Quote(h)
	}
	return h, ""
}

func validHost(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(h), ".") {
		if !hostLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// checkURL returns what is wrong with a resource's address, or "".
func checkURL(raw string) string {
	if raw == "" {
		return ""
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "an address must be an absolute http or https URL"
	}
	if u.User != nil {
		return "an address must not have a user or password"
	}
	return ""
}

// host is the host that requests are matched by: original_host, or else that of the URL.
func (r Resource) host() string {
	if r.OriginalHost != "" || r.URL == "" {
		return r.OriginalHost
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// normal is r in its stored form, and all errors in it.
func (r Resource) normal() (Resource, []fault.Detail) {
	var out []fault.Detail
	add := func(pointer, msg string) {
		if msg != "" {
			out = append(out, fault.Detail{Pointer: pointer, Message: msg})
		}
	}
	if r.Name = strings.TrimSpace(r.Name); r.Name == "" {
		add("/name", "the name is required")
	}
	if r.Type = strings.TrimSpace(r.Type); r.Type == "" {
		add("/type", "the type is required")
	}
	add("/path", checkPattern(r.Path))
	if r.PathMatching == "" {
		r.PathMatching = matchFolded
	}
	var msg string
	r.Methods = normalMethods(r.Methods, func(i int, msg string) { add("/methods/"+strconv.Itoa(i), msg) })
	r.OriginalHost, msg = normalHost(r.OriginalHost)
	add("/original_host", msg)
	add("/url", checkURL(r.URL))
	if r.Attributes == nil {
		r.Attributes = map[string]any{}
	}
	return r, append(out, r.Enrichment.check()...)
}

// matchFolded is the path matching in which every spelling of a path belongs to the resource.
const matchFolded = "folded"
