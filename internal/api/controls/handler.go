// Package controls serves the work of authors: policies and their versions, policies as code, and
// templates.
package controls

import (
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/policycode"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	Policies *policy.Service
	// PolicyCode deploys controls from the repositories of authors.
	PolicyCode *policycode.Service
	// Resources provide the enrichment that fills in templates.
	Resources *resource.Service
	// Replays report which policies decided, and make test cases of decisions.
	Replays *replay.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.policies(r)
	h.trials(r)
	h.versions(r)
	h.libraries(r)
	h.recorded(r)
	h.policiesAsCode(r)
	h.templates(r)
}
