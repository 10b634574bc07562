package insight

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type replayIn struct{ Body replay.Request }

type impactOut struct{ Body replay.Impact }

type replayOut struct{ Body replay.Run }

type replayListIn struct {
	rest.InEnvironment
	rest.Page
}

type replayListOut struct{ Body replay.Runs }

// ReplayPath names a replay.
type ReplayPath struct {
	ID int64 `path:"replay_id" minimum:"1" doc:"Id of the replay"`
}

type replayReadIn struct {
	ReplayPath
	Wait int `query:"wait" minimum:"0" maximum:"30" doc:"Seconds to wait, at most, for it to get further or to end; absent: answer at once"`
}

// compliance registers what replays recorded decisions.
func (h *Handler) compliance(r *rest.Router) {
	tags := []string{"Compliance"}
	rest.Register(r, rest.Op{
		ID: "impact-preview", Method: http.MethodPost, Path: "/compliance/impact-preview", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Errors:      []int{http.StatusServiceUnavailable},
		Summary:     "What controls would do to requests that were made",
		Description: "Decides the recorded decisions of the window again, each by the controls, libraries and resources of the revision that decided then, and by these with control_ids and candidates in force: what differs is due to them alone. The inputs of decisions are kept for 24 hours, or as the tenant's setting replay says; those of resources at audit level detailed or comprehensive as long as the audit; nothing recorded: zeros and a note. It answers within 30 s with what it has by then (`truncated`). Samples and subjects are shown with the permission audit:read; without it there are figures alone.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayIn) (*impactOut, error) {
			out, err := h.Replays.Preview(ctx, sc, in.Body)
			return &impactOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "start-replay", Method: http.MethodPost, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusAccepted, Creates: true,
		Errors:      []int{http.StatusTooManyRequests},
		Summary:     "Start a replay",
		Description: "As impact-preview, without its limit of time: it runs by itself, and a server that ends in between has it start anew. Ten at most may run or wait; the newest 200 that ended are kept.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayIn) (*replayOut, error) {
			run, err := h.Replays.Start(ctx, sc, in.Body)
			return &replayOut{run}, err
		})
	rest.Register(r, rest.Op{
		ID: "list-replays", Method: http.MethodGet, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Summary: "List replays", Description: "Newest first, without their results.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayListIn) (*replayListOut, error) {
			runs, err := h.Replays.List(ctx, sc, int64(in.Skip), int64(in.Limit))
			return &replayListOut{runs}, err
		})
	rest.Register(r, rest.Op{
		ID: "get-replay", Method: http.MethodGet, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Summary: "Read a replay", Description: "Its state, its progress and, once it is completed, its result. With wait, the answer comes when it has got further.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayReadIn) (*replayOut, error) {
			run, err := h.Replays.Await(ctx, sc, in.ID, time.Duration(in.Wait)*time.Second)
			return &replayOut{run}, err
		})
	rest.Register(r, rest.Op{
		ID: "cancel-replay", Method: http.MethodDelete, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusOK,
		Errors:  []int{http.StatusConflict},
		Summary: "Cancel a replay", Description: "It ends within a second or two, and stays to be read. One that has ended: 409.",
	},
		func(ctx context.Context, sc scope.Scope, in *ReplayPath) (*replayOut, error) {
			run, err := h.Replays.Cancel(ctx, sc, in.ID)
			return &replayOut{run}, err
		})
}
