// Package simulate serves the simulator: runs of a policy on an input, their
// history and exports, and scenarios.
package simulate

import (
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/simulator"
)

// Handler serves the operations of this package.
type Handler struct {
	Simulator *simulator.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.simulator(r)
	h.scenarios(r)
	h.export(r)
}
