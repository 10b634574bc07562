// Package connect serves what connects gatehouse to other systems: webhooks, notifications,
// integrations, AI agents, data sources, telemetry and license.
package connect

import (
	"github.com/gatehouse-dev/gatehouse/internal/agent"
	"github.com/gatehouse-dev/gatehouse/internal/alert"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/pip"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/telemetry"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// Handler serves the operations of this package.
type Handler struct {
	Agents       *agent.Service
	Alerts       *alert.Service
	Channels     *notify.Service
	Integrations *integration.Service
	Sources      *pip.Service
	Webhooks     *webhook.Service
	Telemetry    *telemetry.Service
}

// Mount registers the operations.
func (h *Handler) Mount(r *rest.Router) {
	h.agents(r)
	h.agentKeys(r)
	h.dataSources(r)
	h.webhooks(r)
	h.webhookDeliveries(r)
	h.telemetry(r)
	h.license(r)
	h.channels(r)
	h.channelTypes(r)
	h.alertRules(r)
	h.channelDeliveries(r)
	h.integrations(r)
}
