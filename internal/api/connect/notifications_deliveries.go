package connect

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type notificationListIn struct {
	rest.Window
	rest.Scroll
	Channel int64  `query:"channel_id" minimum:"1" doc:"Only deliveries to this channel"`
	Digest  int64  `query:"digest_id" minimum:"1" doc:"Only messages in the digest that this delivery is"`
	Status  string `query:"status" enum:"pending,held,digested,sent,failed,dlq" doc:"Only deliveries in this state"`
	Alert   string `query:"alert" maxLength:"100" doc:"Only messages about this alert, such as bouncer_offline"`
}

type notificationPath struct {
	ID int64 `path:"delivery_id" minimum:"1" doc:"Id of the delivery"`
}

// channelDeliveries registers the deliveries of messages.
func (h *Handler) channelDeliveries(r *rest.Router) {
	tags := []string{"Notifications"}
	rest.Register(r, rest.Op{
		ID: "list-notification-deliveries", Method: http.MethodGet, Path: "/notifications/deliveries", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "List the deliveries of notifications", Description: "Newest first. Deliveries that are sent or given up are kept for 30 days.",
	}, func(ctx context.Context, sc scope.Scope, in *notificationListIn) (*rest.JSON[notify.DeliveryPage], error) {
		start, end, err := in.Period()
		if err != nil {
			return nil, err
		}
		return rest.Answer(h.Channels.Deliveries(ctx, sc, notify.DeliveryFilter{Channel: in.Channel, Digest: in.Digest, Status: in.Status, Alert: in.Alert, Start: start, End: end}, in.Cursor, in.Limit))
	})
	rest.Register(r, rest.Op{
		ID: "get-notification-delivery", Method: http.MethodGet, Path: "/notifications/deliveries/{delivery_id}", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "Read the delivery of a notification",
	}, func(ctx context.Context, sc scope.Scope, in *notificationPath) (*rest.JSON[notify.Delivery], error) {
		return rest.Answer(h.Channels.Delivery(ctx, sc, in.ID))
	})
	rest.Register(r, rest.Op{
		ID: "retry-notification-delivery", Method: http.MethodPost, Path: "/notifications/deliveries/{delivery_id}/retry", Reach: rest.ReachEnvironment, Permission: "notifications:write", Tags: tags,
		Errors:      []int{http.StatusConflict},
		Summary:     "Try a delivery again now",
		Description: "A delivery that failed or was given up is tried at once, and again up to `max_attempts` times. One that has not been tried yet: 409 `delivery_pending`; one that was sent, or is in a digest: 409 `delivery_sent`; a disabled channel: 409 `channel_disabled`.",
	}, func(ctx context.Context, sc scope.Scope, in *notificationPath) (*rest.JSON[notify.Delivery], error) {
		return rest.Answer(h.Channels.Retry(ctx, sc, in.ID))
	})
}
