package connect

import (
	"context"
	"net/http"

	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type channelTypesOut struct {
	Body struct {
		Types []format.Description `json:"types" doc:"The types."`
	}
}

// channelTypes registers the list of types of channels.
func (h *Handler) channelTypes(r *rest.Router) {
	rest.Register(r, rest.Op{
		ID: "list-notification-channel-types", Method: http.MethodGet, Path: "/notifications/channel-types", Reach: rest.ReachEnvironment, Permission: "notifications:read",
		Tags: []string{"Notifications"}, Summary: "List the types of notification channels",
		Description: "The settings and the members of the credential that each type takes, for forms. docs/notifications.md says what they mean.",
	}, func(context.Context, scope.Scope, *struct{}) (*channelTypesOut, error) {
		out := &channelTypesOut{}
		for _, t := range format.Types() {
			out.Body.Types = append(out.Body.Types, t.Describe())
		}
		return out, nil
	})
}
