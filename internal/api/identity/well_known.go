package identity

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/auth"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type jwksOut struct {
	CacheControl string `header:"Cache-Control" doc:"The set may be cached for five minutes"`
	Body         auth.JWKS
}

// wellKnown registers the operation that returns the public keys of session tokens.
func (h *Handler) wellKnown(r *rest.Router) {
	tags := []string{"Authentication"}
	rest.Register(r, rest.Op{
		ID: "get-jwks", Method: http.MethodGet, Path: "/.well-known/jwks.json", Root: true, Public: true, Tags: tags,
		Summary:     "Keys that tokens are signed with",
		Description: "A JSON Web Key Set (RFC 7517). Keys rotate; a new one is published before it signs.",
	}, func(context.Context, scope.Scope, *struct{}) (*jwksOut, error) {
		return &jwksOut{"public, max-age=300", h.Auth.JWKS()}, nil
	})
}
