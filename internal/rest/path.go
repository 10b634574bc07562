package rest

import (
	"net/http"
	"net/url"
	"strings"
)

// Root is the path below which operations are registered, unless Op.Root says otherwise.
const Root = "/api/v1"

// canonical returns the path under which an operation is registered.
func (r *Router) canonical(path string) string {
	if r.cfg.Canonical == nil {
		return path
	}
	return r.cfg.Canonical(path)
}

// isAPI reports whether a path belongs to the API.
func (r *Router) isAPI(path string) bool { return r.cfg.IsAPI == nil || r.cfg.IsAPI(path) }

// resolve returns the request under its canonical path, or the request itself if nothing changes.
// ok is false for paths that no operation can have. Empty and dot segments are not removed: only
// the documented spelling exists.
func (r *Router) resolve(req *http.Request) (*http.Request, bool) {
	path := req.URL.Path
	if path == "" || path[0] != '/' || strings.Contains(path, "//") || dotted(path) {
		return req, false
	}
	to := r.canonical(path)
	if to == path {
		return req, true
	}
	u := *req.URL
	u.Path = to
	if u.RawPath != "" {
		u.RawPath = r.canonical(u.RawPath)
		if plain, err := url.PathUnescape(u.RawPath); err != nil || plain != to {
			return req, false
		}
	}
	out := *req
	out.URL = &u
	return &out, true
}

// dotted reports whether a path contains a segment "." or "..".
func dotted(path string) bool {
	if !strings.Contains(path, "/.") {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// IsBelow reports whether path is prefix or is below it.
func IsBelow(path, prefix string) bool {
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}

// Pattern returns the path under which the operation of a request is registered; empty if there is
// none.
func (r *Router) Pattern(req *http.Request) string {
	req, ok := r.resolve(req)
	if !ok {
		return ""
	}
	_, pattern := r.mux.Handler(req)
	_, path, _ := strings.Cut(pattern, " ")
	return path
}
