package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// ChannelPath names a notification channel.
type ChannelPath struct {
	ID int64 `path:"channel_id" minimum:"1" doc:"Id of the channel"`
}

type channelOut struct {
	ETag string `header:"ETag" doc:"Version of the channel; deliveries do not change it"`
	Body notify.Channel
}

type channelUpdateIn struct {
	ChannelPath
	rest.IfMatch
	Body notify.Change
}

type channelDeleteIn struct {
	ChannelPath
	rest.IfMatch
}

// channels registers the notification channels.
func (h *Handler) channels(r *rest.Router) {
	tags, record := []string{"Notifications"}, reflect.TypeFor[notify.Channel]()
	rest.Register(r, rest.Op{
		ID: "list-notification-channels", Method: http.MethodGet, Path: "/notifications/channels", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "List notification channels", Description: "By id. Credentials are never returned; `credential_set` says whether there is one.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[notify.Page], error) {
		return rest.Answer(h.Channels.List(ctx, sc, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "create-notification-channel", Method: http.MethodPost, Path: "/notifications/channels", Reach: rest.ReachEnvironment, Permission: "notifications:write",
		Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Create a notification channel",
		Description: "The channel gets the built-in alerts and other messages about its environment, and those about the whole tenant, from `severity_threshold` on. A message that the receiver does not accept is sent again after 15 min, 30 min and then every hour, until it has been tried `max_attempts` times; then it is `dlq`. In `quiet_hours`, and for `digest_window_seconds` after a message, messages are held and then sent as one digest. `settings` and `credential` depend on the type: docs/notifications.md lists them. Internal networks are not called (422 `target_refused`).",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[notify.Draft]) (*channelOut, error) {
		c, err := h.Channels.Create(ctx, sc, in.Body)
		return &channelOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-notification-channel", Method: http.MethodGet, Path: "/notifications/channels/{channel_id}", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "Read a notification channel",
	}, func(ctx context.Context, sc scope.Scope, in *ChannelPath) (*channelOut, error) {
		c, err := h.Channels.Get(ctx, sc, in.ID)
		return &channelOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-notification-channel", Method: http.MethodPut, Path: "/notifications/channels/{channel_id}", Reach: rest.ReachEnvironment, Permission: "notifications:write",
		Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change a notification channel",
		Description: "Members that are not sent keep their value. `settings` is replaced as a whole. A change to another host needs `credential` again (422 `credential_required`). The type and the environment cannot be changed.",
	}, func(ctx context.Context, sc scope.Scope, in *channelUpdateIn, version int64) (*channelOut, error) {
		c, err := h.Channels.Update(ctx, sc, in.ID, in.Body, version)
		return &channelOut{rest.ETag(c.ChangeNo), c}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-notification-channel", Method: http.MethodDelete, Path: "/notifications/channels/{channel_id}", Reach: rest.ReachEnvironment, Permission: "notifications:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove a notification channel", Description: "Removes its deliveries too. Pending ones are no longer sent.",
	}, func(ctx context.Context, sc scope.Scope, in *channelDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		_, err := h.Channels.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Channel deleted successfully", ID: in.ID}, err)
	})
	h.channelActions(r)
}

// channelActions registers the operations that test a channel and change its state.
func (h *Handler) channelActions(r *rest.Router) {
	tags := []string{"Notifications"}
	enable := func(id, path, summary, description string, on bool) {
		op := rest.Op{
			ID: id, Method: http.MethodPost, Reach: rest.ReachEnvironment, Permission: "notifications:write", Tags: tags, Summary: summary, Description: description,
		}
		op.Path = path
		rest.Register(r, op, func(ctx context.Context, sc scope.Scope, in *ChannelPath) (*channelOut, error) {
			c, err := h.Channels.Enable(ctx, sc, in.ID, on)
			return &channelOut{rest.ETag(c.ChangeNo), c}, err
		})
	}
	enable("enable-notification-channel", "/notifications/channels/{channel_id}/enable", "Enable a notification channel", "Pending deliveries continue; messages from the time while it was disabled are not sent.", true)
	enable("disable-notification-channel", "/notifications/channels/{channel_id}/disable", "Disable a notification channel", "Until it is enabled again, nothing is sent and no message is queued.", false)
	rest.Register(r, rest.Op{
		ID: "test-notification-channel", Method: http.MethodPost, Path: "/notifications/channels/{channel_id}/test", Reach: rest.ReachEnvironment, Permission: "notifications:write", Tags: tags,
		Summary:     "Send a test message",
		Description: "Sends a test message at once and shows the receiver's answer. It is tried once, even while the channel is disabled, and whatever its severity threshold is.",
	}, func(ctx context.Context, sc scope.Scope, in *ChannelPath) (*rest.JSON[notify.TestResult], error) {
		return rest.Answer(h.Channels.Test(ctx, sc, in.ID))
	})
}
