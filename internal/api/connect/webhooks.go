package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/webhook"
)

// WebhookPath names a subscription.
type WebhookPath struct {
	ID int64 `path:"webhook_id" minimum:"1" doc:"Id of the webhook"`
}

type webhookOut struct {
	ETag string `header:"ETag" doc:"Version of the webhook; deliveries do not change it"`
	Body webhook.Webhook
}

type webhookIssuedOut struct {
	ETag string `header:"ETag" doc:"Version of the webhook; deliveries do not change it"`
	Body webhook.Issued
}

type webhookUpdateIn struct {
	WebhookPath
	rest.IfMatch
	Body webhook.Change
}

type webhookDeleteIn struct {
	WebhookPath
	rest.IfMatch
}

type webhookRotateIn struct {
	WebhookPath
	Body webhook.Rotation
}

type eventTypesOut struct {
	Body struct {
		EventTypes []webhook.EventType `json:"event_types" doc:"In a fixed order."`
		Total      int                 `json:"total" doc:"How many there are."`
	}
}

// webhooks registers the subscriptions.
func (h *Handler) webhooks(r *rest.Router) {
	tags, record := []string{"Webhooks"}, reflect.TypeFor[webhook.Issued]()
	rest.Register(r, rest.Op{
		ID: "list-webhooks", Method: http.MethodGet, Path: "/webhooks", Permission: "webhooks:read", Tags: tags,
		Summary: "List webhooks", Description: "By id.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[webhook.Page], error) {
		return rest.Answer(h.Webhooks.List(ctx, sc, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "create-webhook", Method: http.MethodPost, Path: "/webhooks", Permission: "webhooks:write", Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Subscribe a URL to events",
		Description: "New events are posted to the URL, in order for each object and at least once. Until the receiver answers 2xx within 10 s, an event is sent again after 5 s, 30 s, 2 min and so on, at most 12 h apart, for three days. Each body has `event_id`, `event_type`, `timestamp`, `data` and `signature`: `sha256=` and the HMAC-SHA256 of the body without that member, keyed with the secret. The header X-Service-Signature signs the body as sent; webhook-id, webhook-timestamp and webhook-signature follow Standard Webhooks. Without `secret`, one is generated, and only this answer contains it. Redirects are not followed, and internal networks are not called (422 `target_refused`).",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[webhook.Draft]) (*webhookIssuedOut, error) {
		made, err := h.Webhooks.Create(ctx, sc, in.Body)
		return &webhookIssuedOut{rest.ETag(made.ChangeNo), made}, err
	})
	rest.Register(r, rest.Op{
		ID: "list-webhook-event-types", Method: http.MethodGet, Path: "/webhooks/event-types", Permission: "webhooks:read", Tags: tags,
		Summary: "List the types of events", Description: "Each type has the JSON Schema of its data and an example.",
	}, func(context.Context, scope.Scope, *struct{}) (*eventTypesOut, error) {
		out := &eventTypesOut{}
		out.Body.EventTypes = webhook.Catalogue()
		out.Body.Total = len(out.Body.EventTypes)
		return out, nil
	})
	rest.Register(r, rest.Op{
		ID: "get-webhook", Method: http.MethodGet, Path: "/webhooks/{webhook_id}", Permission: "webhooks:read", Tags: tags,
		Summary: "Read a webhook",
	}, func(ctx context.Context, sc scope.Scope, in *WebhookPath) (*webhookOut, error) {
		w, err := h.Webhooks.Get(ctx, sc, in.ID)
		return &webhookOut{rest.ETag(w.ChangeNo), w}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-webhook", Method: http.MethodPut, Path: "/webhooks/{webhook_id}", Permission: "webhooks:write", Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a webhook",
		Description: "Members that are not sent keep their value. A change to another host in `url` needs `secret` (422 `credential_required`).",
	}, func(ctx context.Context, sc scope.Scope, in *webhookUpdateIn, version int64) (*webhookOut, error) {
		w, err := h.Webhooks.Update(ctx, sc, in.ID, in.Body, version)
		return &webhookOut{rest.ETag(w.ChangeNo), w}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-webhook", Method: http.MethodDelete, Path: "/webhooks/{webhook_id}", Permission: "webhooks:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove a webhook", Description: "Removes its deliveries too. Pending ones are no longer sent.",
	}, func(ctx context.Context, sc scope.Scope, in *webhookDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Webhooks.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Webhook deleted successfully", ID: in.ID}, err)
	})
	h.webhookActions(r)
	for _, e := range webhook.Catalogue() {
		describeEvent(r, e.Type, e.Description, e.Data)
	}
}

// webhookActions registers the operations that test a subscription and change its state or secret.
func (h *Handler) webhookActions(r *rest.Router) {
	tags := []string{"Webhooks"}
	enable := func(id, path, summary, description string, on bool) {
		op := rest.Op{ID: id, Method: http.MethodPost, Permission: "webhooks:write", Tags: tags, Summary: summary, Description: description}
		op.Path = path
		rest.Register(r, op, func(ctx context.Context, sc scope.Scope, in *WebhookPath) (*webhookOut, error) {
			w, err := h.Webhooks.Enable(ctx, sc, in.ID, on)
			return &webhookOut{rest.ETag(w.ChangeNo), w}, err
		})
	}
	enable("enable-webhook", "/webhooks/{webhook_id}/enable", "Enable a webhook", "Pending deliveries continue; events from the time while it was disabled are not sent.", true)
	enable("disable-webhook", "/webhooks/{webhook_id}/disable", "Disable a webhook", "Until it is enabled again, nothing is sent and no event is queued.", false)
	rest.Register(r, rest.Op{
		ID: "rotate-webhook-secret", Method: http.MethodPost, Path: "/webhooks/{webhook_id}/rotate-secret", Permission: "webhooks:write", Tags: tags,
		Summary:     "Give a webhook a new secret",
		Description: "For `overlap_seconds` (a day by default) both secrets sign: webhook-signature lists a signature of each, X-Service-Signature-Previous is signed with the old one, and `signature` and X-Service-Signature with the new one.",
	}, func(ctx context.Context, sc scope.Scope, in *webhookRotateIn) (*webhookIssuedOut, error) {
		made, err := h.Webhooks.RotateSecret(ctx, sc, in.ID, in.Body)
		return &webhookIssuedOut{rest.ETag(made.ChangeNo), made}, err
	})
}
