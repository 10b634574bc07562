package api

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// reserved are the paths below /v1 that clients of other products call. They are not aliases.
var reserved = []string{"/v1/data", "/v1/batch", "/v1/compile"}

// hostForms are served at the root of the host as well as under /api/v1.
var hostForms = []string{"/health", "/metrics", "/devdocs", "/openapi.json", "/docs-assets"}

// canonical maps the alias of a path to the path under which the operation is registered. Aliases
// are /api/<rest>, /v1/<rest>, /api/v1/v1/<rest>, the forms at the root of the host, and former
// names.
func canonical(path string) string { return renamed(prefixed(path)) }

// renamed maps a former path to the current one: the policies that use a library were listed at
// /policies/{policy_id}/users.
func renamed(path string) string {
	id, ok := strings.CutSuffix(path, "/users")
	if !ok {
		return path
	}
	if id, ok = strings.CutPrefix(id, rest.Root+"/policies/"); !ok || id == "" || strings.Contains(id, "/") {
		return path
	}
	return rest.Root + "/policies/" + id + "/dependents"
}

// prefixed maps the aliases of a path's prefix.
func prefixed(path string) string {
	switch {
	case rest.IsBelow(path, "/api/v1"):
		if tail := path[len(rest.Root):]; rest.IsBelow(tail, "/v1") {
			return rest.Root + tail[len("/v1"):]
		}
		return path
	case rest.IsBelow(path, "/api/v2"):
		return path
	case rest.IsBelow(path, "/api"):
		return rest.Root + path[len("/api"):]
	case rest.IsBelow(path, "/v1"):
		if isBelowAny(path, reserved) {
			return path
		}
		return rest.Root + path[len("/v1"):]
	}
	if isBelowAny(path, hostForms) {
		return rest.Root + path
	}
	return path
}

func isBelowAny(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return rest.IsBelow(path, p) })
}

// apiRoots are the prefixes of the API's paths.
var apiRoots = []string{"/api", "/v1", "/access", "/scim", "/.well-known"}

// isAPI reports whether a path belongs to the API. An unknown path there gets an error body and not
// the console.
func isAPI(path string) bool { return isBelowAny(path, apiRoots) }
