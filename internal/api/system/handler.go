// Package system serves operators and tools with information about the process: health, metrics and
// the OpenAPI document.
package system

import (
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	// Version is the version of the build.
	Version string
	// Now is the clock.
	Now func() time.Time
	// Started is when the process began to serve.
	Started time.Time
	Probes  Probes
	// OpenMetrics lets /metrics be read without a credential.
	OpenMetrics bool
	// Languages are the languages of the document, which is written in the first one.
	Languages []string
	// Portal serves the pages for developers.
	Portal http.Handler
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.health(r)
	h.metrics(r)
	h.openapi(r)
	h.docsAssets(r)
	h.devdocs(r)
}
