package api

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
	InEnvironment
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

type unusedIn struct {
	InEnvironment
	Days int `query:"days" default:"30" minimum:"1" maximum:"365" doc:"For how many days no decision may have touched them"`
}

type unusedOut struct{ Body replay.Unused }

type casesIn struct {
	PolicyPath
	Body replay.FromDecisions
}

type casesOut struct{ Body replay.Made }

// compliance registers what replays recorded decisions.
func (s *Server) compliance(r *rest.Router) {
	tags := []string{"Compliance"}
	rest.Register(r, rest.Op{
		ID: "impact-preview", Method: http.MethodPost, Path: "/compliance/impact-preview", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Errors:      []int{http.StatusServiceUnavailable},
		Summary:     "What controls would do to requests that were made",
		Description: "Decides the recorded decisions of the window again, each by the controls, libraries and resources of the revision that decided then, and by these with control_ids and candidates in force: what differs is due to them alone. The inputs of decisions are kept for 24 hours, or as the tenant's setting replay says; those of resources at audit level detailed or comprehensive as long as the audit; nothing recorded: zeros and a note. It answers within 30 s with what it has by then (`truncated`). Samples and subjects are shown with the permission audit:read; without it there are figures alone.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayIn) (*impactOut, error) {
			out, err := s.Replays.Preview(ctx, sc, in.Body)
			return &impactOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "start-replay", Method: http.MethodPost, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusAccepted, Creates: true,
		Errors:      []int{http.StatusTooManyRequests},
		Summary:     "Start a replay",
		Description: "As impact-preview, without its limit of time: it runs by itself, and a server that ends in between has it start anew. Ten at most may run or wait; the newest 200 that ended are kept.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayIn) (*replayOut, error) {
			run, err := s.Replays.Start(ctx, sc, in.Body)
			return &replayOut{run}, err
		})
	rest.Register(r, rest.Op{
		ID: "list-replays", Method: http.MethodGet, Path: "/compliance/replays", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags,
		Summary: "List replays", Description: "Newest first, without their results.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayListIn) (*replayListOut, error) {
			runs, err := s.Replays.List(ctx, sc, int64(in.Skip), int64(in.Limit))
			return &replayListOut{runs}, err
		})
	rest.Register(r, rest.Op{
		ID: "get-replay", Method: http.MethodGet, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Slow: true,
		Summary: "Read a replay", Description: "Its state, its progress and, once it is completed, its result. With wait, the answer comes when it has got further.",
	},
		func(ctx context.Context, sc scope.Scope, in *replayReadIn) (*replayOut, error) {
			run, err := s.Replays.Await(ctx, sc, in.ID, time.Duration(in.Wait)*time.Second)
			return &replayOut{run}, err
		})
	rest.Register(r, rest.Op{
		ID: "cancel-replay", Method: http.MethodDelete, Path: "/compliance/replays/{replay_id}", Reach: rest.ReachEnvironment, Permission: "policies:write", Tags: tags, Status: http.StatusOK,
		Errors:  []int{http.StatusConflict},
		Summary: "Cancel a replay", Description: "It ends within a second or two, and stays to be read. One that has ended: 409.",
	},
		func(ctx context.Context, sc scope.Scope, in *ReplayPath) (*replayOut, error) {
			run, err := s.Replays.Cancel(ctx, sc, in.ID)
			return &replayOut{run}, err
		})
	s.recordedPolicies(r)
}

// recordedPolicies registers what the log says about policies.
func (s *Server) recordedPolicies(r *rest.Router) {
	tags := []string{"Policies"}
	rest.Register(r, rest.Op{
		ID: "list-unused-policies", Method: http.MethodGet, Path: "/policies/unused", Reach: rest.ReachEnvironment, Permission: "policies:read", Tags: tags,
		Summary:     "List active policies that decided nothing",
		Description: "Counted by the decisions that name a policy: one that matched and was overruled by another is not named. Rules are told where resources at audit level detailed or comprehensive recorded why they decided.",
	},
		func(ctx context.Context, sc scope.Scope, in *unusedIn) (*unusedOut, error) {
			out, err := s.Replays.Unused(ctx, sc, in.Days)
			return &unusedOut{out}, err
		})
	rest.Register(r, rest.Op{
		ID: "test-cases-from-decisions", Method: http.MethodPost, Path: "/policies/{policy_id}/test-cases/from-decisions", Reach: rest.ReachEnvironment, Permission: "policies:write", Also: "audit:read", Tags: tags,
		Errors:      []int{http.StatusPreconditionFailed},
		Summary:     "Make test cases of recorded decisions",
		Description: "Each case holds the input as the policies saw it, the matched resource's fields included, and whether access was granted by all policies together (in shadow mode: would have been). The new cases are run against this policy alone at once, so that those show which other policies decide. A decision of which no input is kept makes none. It shows what requests held, so it needs the permission audit:read too.",
	},
		func(ctx context.Context, sc scope.Scope, in *casesIn) (*casesOut, error) {
			out, err := s.Replays.Cases(ctx, sc, in.ID, in.Body)
			return &casesOut{out}, err
		})
}
