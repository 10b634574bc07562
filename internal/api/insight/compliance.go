package insight

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

type replayListIn struct {
	rest.InEnvironment
	rest.Page
}

// ReplayPath names a replay.
type ReplayPath struct {
	ID int64 `path:"replay_id" minimum:"1" doc:"Id of the replay"`
}

type replayReadIn struct {
	ReplayPath
	Wait int `query:"wait" minimum:"0" maximum:"30" doc:"Longest wait for progress or for the end, in seconds; absent: answer at once"`
}

// compliance registers the replays of recorded decisions.
func (h *Handler) compliance(r *rest.Router) {
	tags := []string{"Compliance"}
	rest.Register(r, rest.Op{
		ID: "impact-preview", Method: http.MethodPost, Path: "/compliance/impact-preview", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Errors:      []int{http.StatusServiceUnavailable},
		Summary:     "Preview what controls would do to recorded requests",
		Description: "Replays the recorded decisions of a period. Each is decided twice: with the controls, libraries and resources of the revision that decided it, and with control_ids and candidates active as well. So every difference is due to these alone. Inputs are stored for 24 hours, or as the tenant's setting replay says; at audit levels detailed and comprehensive, for as long as the audit. Without recorded decisions, the answer holds zeros and a note. The answer comes within 30 s with the results so far (`truncated`). Samples and subjects need the permission audit:read; without it, the answer has only figures.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[replay.Request]) (*rest.JSON[replay.Impact], error) {
		return rest.Answer(h.Replays.Preview(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "start-replay", Method: http.MethodPost, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusAccepted, Creates: true,
		Errors:      []int{http.StatusTooManyRequests},
		Summary:     "Start a replay",
		Description: "Does the same as impact-preview, without its time limit. The replay runs in the background; if the server stops meanwhile, it starts again from the beginning. At most ten can run or wait; the newest 200 that have ended are kept.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[replay.Request]) (*rest.JSON[replay.Run], error) {
		return rest.Answer(h.Replays.Start(ctx, sc, in.Body))
	})
	rest.Register(r, rest.Op{
		ID: "list-replays", Method: http.MethodGet, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Summary: "List replays", Description: "Newest first, without their results.",
	}, func(ctx context.Context, sc scope.Scope, in *replayListIn) (*rest.JSON[replay.Runs], error) {
		return rest.Answer(h.Replays.List(ctx, sc, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "get-replay", Method: http.MethodGet, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Summary: "Read a replay", Description: "Its state, its progress and, once it is completed, its result. With wait, the answer comes as soon as there is progress.",
	}, func(ctx context.Context, sc scope.Scope, in *replayReadIn) (*rest.JSON[replay.Run], error) {
		return rest.Answer(h.Replays.Await(ctx, sc, in.ID, time.Duration(in.Wait)*time.Second))
	})
	rest.Register(r, rest.Op{
		ID: "cancel-replay", Method: http.MethodDelete, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusOK,
		Errors:  []int{http.StatusConflict},
		Summary: "Cancel a replay", Description: "The replay ends within a second or two, and can still be read. One that has ended: 409.",
	}, func(ctx context.Context, sc scope.Scope, in *ReplayPath) (*rest.JSON[replay.Run], error) {
		return rest.Answer(h.Replays.Cancel(ctx, sc, in.ID))
	})
}
