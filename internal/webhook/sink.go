package webhook

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Topic is the topic of the notifications that wake the Deliverer when a tenant has new deliveries.
const Topic = "webhooks"

// Sink queues deliveries of events. It is an event.Sink.
type Sink struct{}

// Name returns the name of the sink's cursor.
func (Sink) Name() string { return "webhooks" }

// Take queues an event for each subscription that wants it.
func (Sink) Take(ctx context.Context, tx *db.Tx, _ scope.TenantID, o event.Occurrence) error {
	if !slices.Contains(event.Types(), o.Type) {
		return nil // an internal event, such as failed sign-ins
	}
	n, err := queueEvent(ctx, tx, o, objectOf(o), tx.Now())
	if err != nil || n == 0 {
		return err
	}
	data, err := json.Marshal(o.Data)
	if err != nil {
		return fault.Wrap(err, "an event's data")
	}
	clean, ok := redact.JSON(nil, data)
	if !ok {
		clean = []byte("{}")
	}
	if err := insertPayload(ctx, tx, payload{o.ID, o.Type, o.Timestamp, clean}); err != nil {
		return err
	}
	return tx.Notify(ctx, Topic)
}

// objectOf identifies the object that an event is about. Deliveries about one object keep their
// order.
func objectOf(o event.Occurrence) string {
	kind, _, _ := strings.Cut(o.Type, ".")
	switch kind {
	case "policy-bridge":
		kind = "bouncer"
	case "decision":
		kind = "anomaly"
	}
	id, err := json.Marshal(o.Data[kind+"_id"])
	if err != nil {
		return kind
	}
	return kind + ":" + strings.Trim(string(id), `"`)
}
