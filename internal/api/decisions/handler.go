// Package decisions serves decisions: our own API, OPA's query and AuthZEN, and the
// log of decisions.
package decisions

import (
	"github.com/gatehouse-dev/gatehouse/internal/access"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/authzen"
	"github.com/gatehouse-dev/gatehouse/internal/decision"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	Access    *access.Service
	Decisions *decision.Service
	AuthZEN   *authzen.Service
	// PublicURL is the address at which clients reach this service, without a path.
	PublicURL string
	// Audit stores the decision log; Replays explain its entries.
	Audit   *audit.DecisionLog
	Replays *replay.Service

	answers answers
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.decisions(r)
	h.log(r)
	h.opa(r)
	h.authzen(r)
	h.accessRequests(r)
	h.discovery(r)
}
