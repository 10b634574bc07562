// Package rest is the kit that the HTTP API is built with. It knows no subject:
// the packages below internal/api register operations, and everything that
// operations share happens here, in this order:
//
//	request id, security headers   exchange.go
//	aliases, 404, 405              path.go, exchange.go
//	credential, tenant             credential.go
//	rate limit                     ratelimit.go
//	reach and permission           reach.go, exchange.go
//	media type, size, body         body.go, largebody.go
//	parameters and body by schema  params.go, validate.go
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

// Config is what a Router depends on. Authenticate is needed unless every
// operation is public; Now, NewID and Log are always needed.
type Config struct {
	// Version is the version of the build, for the metric gatehouse_build_info.
	Version string
	// Now is the clock. NewID makes request ids (unique, not secret).
	Now   func() time.Time
	NewID func() string
	Log   *slog.Logger
	// Ticks is the clock that sets deadlines of connections. It keeps the
	// monotonic reading, which Now may lack, so that a step of the wall clock ends
	// no connection. Nil means Now.
	Ticks func() time.Time

	// Document describes the API as a whole.
	Document Document
	// Areas are the rules of path prefixes. The first prefix that fits wins.
	Areas []Area
	// Canonical maps an alias of a path to the path that its operation is
	// registered under. Nil: there are no aliases.
	Canonical func(path string) string
	// IsAPI reports whether a path belongs to the API. What is not found there
	// gets an error body and not the console. Nil: every path does.
	IsAPI func(path string) bool
	// Console answers paths outside the API that no operation takes. Nil: 404.
	Console http.Handler

	// Hosts are the host names that name tenants.
	Hosts site.Hosts
	// TrustedProxies may name the client and the host (X-Forwarded-For and -Host).
	TrustedProxies []netip.Prefix

	// PublicURL is where clients reach the service, without a path. Empty: unknown.
	PublicURL string

	// Authenticate turns a credential into a scope.
	Authenticate Authenticator
	// Count adds n to a counter of a fixed window. Nil turns rate limits off.
	Count func(ctx context.Context, tenant, key string, n int64, window time.Duration) (cache.Window, error)
	// Limits are the operator's request limits.
	Limits Limits

	// Trace starts the span of a request and returns what ends it. Nil: nothing is traced.
	Trace func(*http.Request) (*http.Request, func(operation string, status int))
	// Meter counts requests for the tenants' bills. Nil: nothing is counted.
	Meter measure.Meter

	// Panics counts recovered panics.
	Panics *fault.Panics
	// Registry gets the Router's own collectors. Nil: a registry of its own.
	Registry *prometheus.Registry
	// DiskFull reports that only the reserve for decisions and sign-in is left on
	// the disk. Operations that write anything else are refused. Nil: never.
	DiskFull func() bool
	// Idempotency stores first answers. A nil Cluster turns Idempotency-Key off.
	Idempotency Idempotency
}

// Document describes an API as a whole.
type Document struct {
	Title, Description, Version, License string
	// Extensions are further members of info, by name.
	Extensions map[string]any
	// OwnTypes is the import path at and below which types give their schema its
	// name alone. Other types have the name of their package in front.
	OwnTypes string
	// Names are the members of request bodies that hold names for people, or
	// lists of names. They take no control or invisible characters.
	Names []string
	// Languages are those of the document; it is written in the first one.
	Languages []string
	// Catalogs hold the translations: <language>/<topic>.json maps each English
	// text to its translation.
	Catalogs fs.FS
	// Families are parts of the API with a document of their own.
	Families []contract.Family
}

// root is the path below which the operations of a family are; that of the API for none.
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
	// Prefix is the path, as operations are registered under it.
	Prefix string
	// Errors is the form of error bodies.
	Errors Shape
	// Unprocessable has an invalid body answered with 422, where Errors alone would
	// have it answered with 400.
	Unprocessable bool
	// AnyQuery lets unknown query parameters pass, as foreign protocols want it.
	AnyQuery bool
	// OwnLimit counts requests against Limits.Decisions, where there is one.
	OwnLimit bool
}
