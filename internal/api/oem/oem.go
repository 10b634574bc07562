// Package oem serves the API for embedding vendors, which has a document of its own.
package oem

import (
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/vendor"
)

// Family is the name of the family of operations, and Root the path below which they are.
const (
	Family = "oem"
	Root   = "/api/v2/oem"
)

// Handler serves the operations of this package.
type Handler struct {
	Vendors *vendor.Service
	// Languages are the languages of the document, which is written in the first one.
	Languages []string
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.tenants(r)
	h.usage(r)
	h.openapi(r)
}
