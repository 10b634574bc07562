// Package rest is the kit of the HTTP API. It contains no subject matter: the packages below
// internal/api register operations, and this package does everything that operations share, in this
// order:
//
//	request id, security headers   exchange.go
//	aliases, 404, 405              path.go, exchange.go
//	credential, tenant             credential.go
//	rate limit                     ratelimit.go
//	reach and permission           reach.go, exchange.go
//	media type, size, body         body.go, largebody.go
//	parameters and body by schema  params.go, package schema
//	idempotency                    idempotency.go
//	the handler
//	error bodies by area           errors.go
//
// Requests are checked against the same OpenAPI document that describes the
// operations (openapi.go).
package rest

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-dev/gatehouse/internal/cache"
	"github.com/gatehouse-dev/gatehouse/internal/contract"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest/measure"
	"github.com/gatehouse-dev/gatehouse/internal/rest/site"
)

// Config has the dependencies of a Router. Authenticate is required unless every operation is
// public; Now, NewID and Log are always required.
type Config struct {
	// Version is the version of the build, for the metric gatehouse_build_info.
	Version string
	// Now is the clock. NewID makes request ids (unique, not secret).
	Now   func() time.Time
	NewID func() string
	Log   *slog.Logger
	// Ticks is the clock for deadlines of connections. It has the monotonic reading, which Now may
	// lack, so a change of the wall clock ends no connection. Nil means Now.
	Ticks func() time.Time

	// Document describes the API as a whole.
	Document Document
	// Areas are the rules of path prefixes. The first matching prefix applies.
	Areas []Area
	// Canonical maps an alias of a path to the path under which its operation is registered. Nil:
	// there are no aliases.
	Canonical func(path string) string
	// IsAPI reports whether a path belongs to the API. An unknown path there gets an error body and
	// not the console. Nil: every path does.
	IsAPI func(path string) bool
	// Console serves paths outside the API that have no operation. Nil: 404.
	Console http.Handler

	// Hosts are the host names that identify tenants.
	Hosts site.Hosts
	// TrustedProxies may name the client and the host (X-Forwarded-For and -Host).
	TrustedProxies []netip.Prefix

	// PublicURL is the address at which clients reach the service, without a path. Empty: unknown.
	PublicURL string

	// Authenticate turns a credential into a scope.
	Authenticate Authenticator
	// Count adds n to a counter of a fixed window. Nil turns rate limits off.
	Count func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	// Limits are the operator's request limits.
	Limits Limits

	// Trace starts the span of a request and returns the function that ends it. Nil: nothing is
	// traced.
	Trace func(*http.Request) (*http.Request, func(operation string, status int))
	// Meter counts requests for the tenants' bills. Nil: nothing is counted.
	Meter measure.Meter

	// Panics counts recovered panics.
	Panics *fault.Panics
	// Registry gets the Router's own collectors. Nil: a registry of its own.
	Registry *prometheus.Registry
	// DiskFull reports that only the reserve for decisions and sign-in is left on the disk.
	// Operations that write anything else are refused. Nil: never.
	DiskFull func() bool
	// Idempotency stores first answers. A nil Cluster turns Idempotency-Key off.
	Idempotency Idempotency
}

// Document describes an API as a whole.
type Document struct {
	Title, Description, Version, License string
	// Extensions are further members of info, by name.
	Extensions map[string]any
	// OwnTypes is the import path of packages whose types get schemas without a package name. It
	// includes the packages below. Schemas of other types begin with the name of their package.
	OwnTypes string
	// Prefixes are the prefixes of schema names by the import path of a package, for packages that
	// were renamed after clients knew their schemas.
	Prefixes map[string]string
	// Names are the members of request bodies that contain names for people, or lists of names.
	// They must not contain control or invisible characters.
	Names []string
	// Languages are the languages of the document, which is written in the first one.
	Languages []string
	// Catalogues hold the translations: <language>/<topic>.json maps each English
	// text to its translation.
	Catalogues fs.FS
	// Families are parts of the API with a document of their own.
	Families []contract.Family
}

// root returns the path below which the operations of a family are; without a family, that of the
// API.
func (d Document) root(family string) string {
	for _, f := range d.Families {
		if f.Name == family {
			return f.Root
		}
	}
	return Root
}

// Area is what the operations below a path have in common.
type Area struct {
	// Prefix is the path under which operations are registered.
	Prefix string
	// Errors is the form of error bodies.
	Errors Shape
	// Unprocessable returns 422 for an invalid body, if Errors alone would return 400.
	Unprocessable bool
	// AnyQuery allows unknown query parameters, which foreign protocols need.
	AnyQuery bool
	// OwnLimit counts requests against Limits.Decisions, if that is set.
	OwnLimit bool
}
