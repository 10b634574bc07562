package connect

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

type webhookTestIn struct {
	WebhookPath
	Body webhook.TestSend
}

type deliveryListIn struct {
	WebhookPath
	rest.Window
	rest.Scroll
	Status    string `query:"status" enum:"pending,delivered,dead" doc:"Only deliveries in this state"`
	EventType string `query:"event_type" maxLength:"100" doc:"Only events of this type"`
}

type deliveryPath struct {
	WebhookPath
	DeliveryID int64 `path:"delivery_id" minimum:"1" doc:"Id of the delivery"`
}

type redeliverIn struct {
	WebhookPath
	Body webhook.Range
}

// webhookDeliveries registers the deliveries of events.
func (h *Handler) webhookDeliveries(r *rest.Router) {
	tags := []string{"Webhooks"}
	rest.Register(r, rest.Op{
		ID: "test-webhook", Method: http.MethodPost, Path: "/webhooks/{webhook_id}/test", Permission: "webhooks:write", Tags: tags,
		Summary:     "Send a test event",
		Description: "Sends an event with example data and `test` set, at once and signed like any other. The answer shows the receiver's response. It is tried once, even while the webhook is disabled.",
	}, func(ctx context.Context, sc scope.Scope, in *webhookTestIn) (*rest.JSON[webhook.TestResult], error) {
		return rest.Answer(h.Webhooks.Test(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "list-webhook-deliveries", Method: http.MethodGet, Path: "/webhooks/{webhook_id}/deliveries", Permission: "webhooks:read", Tags: tags,
		Summary: "List the deliveries of a webhook", Description: "Newest first. Completed deliveries are kept for 30 days.",
	}, func(ctx context.Context, sc scope.Scope, in *deliveryListIn) (*rest.JSON[webhook.DeliveryPage], error) {
		start, end, err := in.Period()
		if err != nil {
			return nil, err
		}
		return rest.Answer(h.Webhooks.Deliveries(ctx, sc, in.ID, webhook.DeliveryFilter{Status: in.Status, EventType: in.EventType, Start: start, End: end}, in.Cursor, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "redeliver-webhook-range", Method: http.MethodPost, Path: "/webhooks/{webhook_id}/deliveries/redeliver", Permission: "webhooks:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Redeliver the events of a period",
		Description: "Sends each event once, oldest first. Events that are still pending, and dead ones that were delivered since, are left out. While the webhook is disabled: 409 `webhook_disabled`.",
	}, func(ctx context.Context, sc scope.Scope, in *redeliverIn) (*rest.JSON[webhook.Requeued], error) {
		return rest.Answer(h.Webhooks.RedeliverRange(ctx, sc, in.ID, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "get-webhook-delivery", Method: http.MethodGet, Path: "/webhooks/{webhook_id}/deliveries/{delivery_id}", Permission: "webhooks:read", Tags: tags,
		Summary: "Read a delivery",
	}, func(ctx context.Context, sc scope.Scope, in *deliveryPath) (*rest.JSON[webhook.Delivery], error) {
		return rest.Answer(h.Webhooks.Delivery(ctx, sc, in.ID, in.DeliveryID))
	})
	rest.Register(r, rest.Op{
		ID: "redeliver-webhook-delivery", Method: http.MethodPost, Path: "/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", Permission: "webhooks:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Send a delivery again",
		Description: "Creates a new delivery of the same event, for another three days. A delivery that is still pending: 409 `delivery_pending`; a disabled webhook: 409 `webhook_disabled`.",
	}, func(ctx context.Context, sc scope.Scope, in *deliveryPath) (*rest.JSON[webhook.Delivery], error) {
		return rest.Answer(h.Webhooks.Redeliver(ctx, sc, in.ID, in.DeliveryID))
	})
}
