package connect

import (
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/rest"
)

// describeEvent documents a request that gatehouse sends, under webhooks in the document: an
// event of this type, whose member data has the type data.
func describeEvent(r *rest.Router, event, summary string, data reflect.Type) {
	api := r.OpenAPI()
	if api.Webhooks == nil {
		api.Webhooks = map[string]*huma.PathItem{}
	}
	text := func(format, doc string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Format: format, Description: doc}
	}
	kind := text("", "The type of the event.")
	kind.Enum = []any{event}
	body := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"event_id", "event_type", "timestamp", "data", "signature"},
		Properties: map[string]*huma.Schema{
			"event_id":   text("", "The event; the same in each attempt."),
			"event_type": kind,
			"timestamp":  text("date-time", "When it happened."),
			"data":       api.Components.Schemas.Schema(data, true, data.Name()),
			"signature":  text("", "sha256= and the HMAC-SHA256, in lower-case hex, of the body without this member."),
		},
	}
	api.Webhooks[event] = &huma.PathItem{Post: &huma.Operation{
		OperationID: "event-" + strings.NewReplacer(".", "-", "_", "-").Replace(event), Tags: []string{"Webhooks"}, Summary: summary,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: body}}},
		Responses:   map[string]*huma.Response{"2XX": {Description: "The receiver accepted the event."}},
	}}
}
