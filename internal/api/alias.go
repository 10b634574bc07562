package api

import (
	"net/http"
	"net/url"
	"strings"
)

// reserved are the paths below /v1 that clients of others speak; they are not
// aliases of ours.
var reserved = []string{"/v1/data", "/v1/batch", "/v1/compile"}

// hostForms answer at the host's root as they do under /api/v1.
var hostForms = []string{"/health", "/metrics", "/devdocs", "/openapi.json", "/docs-assets"}

// canonical rewrites the aliases of a path to the path that the
// operation is registered under: /api/<rest>, /v1/<rest>, /api/v1/v1/<rest>
// and the forms at the host's root.
func canonical(path string) string {
	switch {
	case under(path, "/api/v1"):
		if rest := path[len(root):]; under(rest, "/v1") {
			return root + rest[len("/v1"):]
		}
		return path
	case under(path, "/api/v2"):
		return path
	case under(path, "/api"):
		return root + path[len("/api"):]
	case under(path, "/v1"):
		for _, p := range reserved {
			if under(path, p) {
				return path
			}
		}
		return root + path[len("/v1"):]
	}
	for _, p := range hostForms {
		if under(path, p) {
			return root + path
		}
	}
	return path
}

// resolve gives the request under its canonical path; the request itself where
// nothing changes. ok is false for paths that no operation can have: empty and
// dot segments are not cleaned away, since what is not written as documented
// does not exist.
func resolve(req *http.Request) (*http.Request, bool) {
	path := req.URL.Path
	if path == "" || path[0] != '/' || strings.Contains(path, "//") || dotted(path) {
		return req, false
	}
	to := canonical(path)
	if to == path {
		return req, true
	}
	u := *req.URL
	u.Path = to
	if u.RawPath != "" {
		u.RawPath = canonical(u.RawPath)
		if plain, err := url.PathUnescape(u.RawPath); err != nil || plain != to {
			return req, false
		}
	}
	out := *req
	out.URL = &u
	return &out, true
}

// dotted reports whether a path holds a segment "." or "..".
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

// apiPath reports whether a path belongs to the API, so that what is not found
// there gets an error body and not the console.
func apiPath(path string) bool {
	return under(path, "/api") || under(path, "/v1") || under(path, "/access") || under(path, "/.well-known")
}
