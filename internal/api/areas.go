package api

import "github.com/gatehouse-dev/gatehouse/internal/rest"

// areas returns the rules of path prefixes: the form of their error bodies, whether unknown query
// parameters pass, and which requests have a limit of their own.
func areas() []rest.Area {
	return []rest.Area{
		{Prefix: rest.Root + "/tenants", Errors: rest.ShapeTenant},
		{Prefix: rest.Root + "/telemetry", Errors: rest.ShapeDetail, Unprocessable: true},
		{Prefix: rest.Root + "/pis", Errors: rest.ShapeDetail},
		{Prefix: rest.Root + "/ide-integration", Errors: rest.ShapeEditor},
		{Prefix: rest.Root + "/auth/token", Errors: rest.ShapeOAuth},
		{Prefix: rest.Root + "/auth/sso/callback", AnyQuery: true},
		{Prefix: rest.Root + "/bridge", AnyQuery: true},
		{Prefix: rest.Root + "/devdocs", AnyQuery: true},
		{Prefix: rest.Root + "/decisions", OwnLimit: true},
		{Prefix: "/v1/data", Errors: rest.ShapeOPA, AnyQuery: true},
		{Prefix: "/v1/batch", Errors: rest.ShapeOPA},
		{Prefix: "/v1/compile", Errors: rest.ShapeOPA},
		{Prefix: "/scim", Errors: rest.ShapeSCIM, AnyQuery: true},
		{Prefix: "/access/v1/requests", AnyQuery: true},
		{Prefix: "/access/v1", Errors: rest.ShapeAuthZEN, AnyQuery: true},
	}
}
