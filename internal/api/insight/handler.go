// Package insight serves the views of operators and auditors: the administrative log, replays of
// decisions, and the dashboard.
package insight

import (
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/anomaly"
	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/dashboard"
	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// Handler serves the operations of this package.
type Handler struct {
	Audit     *audit.DecisionLog
	Replays   *replay.Service
	Dashboard *dashboard.Service
	Anomalies *anomaly.Service
	// Now is the clock.
	Now func() time.Time
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.audit(r)
	h.compliance(r)
	h.dashboard(r)
}
