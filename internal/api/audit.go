package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Window narrows a log to a stretch of time: embed it in an input.
type Window struct {
	Start string `query:"start_date" minLength:"1" maxLength:"40" doc:"From when on: ISO 8601, a time or a date"`
	End   string `query:"end_date" minLength:"1" maxLength:"40" doc:"Until when, inclusive: ISO 8601, a time or a date"`
}

// Scroll is the paging of logs, newest first: embed it in an input.
type Scroll struct {
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000" doc:"How many entries to answer at most"`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the answer before, for the entries that follow it"`
}

type decisionLogIn struct {
	InEnvironment
	Window
	Scroll
	UserID     string `query:"user_id" maxLength:"4096" doc:"Only decisions about this user"`
	ResourceID string `query:"resource_id" maxLength:"4096" doc:"Only decisions about this resource: a registered one's id, or the id that the request gave where none was matched"`
	Decision   string `query:"decision" enum:"PERMIT,DENY" doc:"Only these decisions"`
	PolicyID   int64  `query:"policy_id" minimum:"1" doc:"Only what this policy decided"`
}

type decisionLogOut struct{ Body audit.Page }

type auditEventsIn struct {
	InEnvironment
	Window
	Scroll
	Type     string `query:"type" maxLength:"100" doc:"Only entries of this type, such as RESOURCE_UPDATED"`
	Object   string `query:"object" maxLength:"100" doc:"Only entries about this kind of object, such as policy"`
	ObjectID string `query:"object_id" maxLength:"200" doc:"Only entries about the object with this id"`
	ActorID  string `query:"actor_id" maxLength:"200" doc:"Only what this actor did"`
}

type auditEventsOut struct{ Body audit.EventPage }

type explanationIn struct {
	ID string `path:"decision_id" minLength:"1" maxLength:"200" doc:"Id of the decision, as the answer and the bouncer's X-Decision-Id name it"`
}

type explanationOut struct{ Body audit.Explanation }

type auditReportOut struct{ Body audit.Report }

// audit registers the two logs: decisions, and changes.
func (s *Server) audit(r *rest.Router) {
	tags := []string{"Audit"}
	rest.Register(r, rest.Op{
		ID: "list-decisions", Method: http.MethodGet, Path: "/decisions/audit", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "Read the decision log",
		Description: "Newest first. `total` counts the entries before the filters, `filtered` after. What is kept of a decision, and for how long, follows the audit level of its resource.",
	},
		func(ctx context.Context, sc scope.Scope, in *decisionLogIn) (*decisionLogOut, error) {
			f := audit.Filter{UserID: in.UserID, ResourceID: in.ResourceID, Decision: in.Decision, PolicyID: in.PolicyID, Limit: in.Limit, Cursor: in.Cursor}
			var err error
			if f.Start, f.End, err = in.Window.read(); err != nil {
				return nil, err
			}
			page, err := s.Audit.Query(ctx, sc, f)
			return &decisionLogOut{page}, err
		})
	rest.Register(r, rest.Op{
		ID: "explain-decision", Method: http.MethodGet, Path: "/decisions/audit/{decision_id}/explanation", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Errors:      []int{http.StatusNotFound},
		Summary:     "Why was this decided?",
		Description: "The rule and line that decided, its conditions with the values that they saw and, where access was not granted, the nearest rule that would have granted it with what was missing. It is kept from audit level detailed up; below that it is worked out from the input that is kept for replay, as long as there is one. Secrets are redacted.",
	},
		func(ctx context.Context, sc scope.Scope, in *explanationIn) (*explanationOut, error) {
			e, err := s.Replays.Explain(ctx, sc, in.ID)
			return &explanationOut{e}, err
		})
	rest.Register(r, rest.Op{
		ID: "list-audit-events", Method: http.MethodGet, Path: "/audit/events", Reach: rest.ReachEnvironment, Permission: "audit:read", Tags: tags,
		Summary:     "Read the administrative log",
		Description: "Who changed what, newest first. An entry is written in the transaction of its change: neither is there without the other.",
	},
		func(ctx context.Context, sc scope.Scope, in *auditEventsIn) (*auditEventsOut, error) {
			f := audit.EventFilter{Type: in.Type, Object: in.Object, ObjectID: in.ObjectID, ActorID: in.ActorID, Limit: in.Limit, Cursor: in.Cursor}
			var err error
			if f.Start, f.End, err = in.Window.read(); err != nil {
				return nil, err
			}
			page, err := s.Audit.Events(ctx, sc, f)
			return &auditEventsOut{page}, err
		})
	rest.Register(r, rest.Op{
		ID: "verify-audit", Method: http.MethodGet, Path: "/audit/verify", Permission: "audit:read", Tags: tags, Slow: true,
		Summary:     "Check that no log entry was changed",
		Description: "Both logs are hash-chained. This reads them from end to end, and names the place of every entry that was edited, removed or moved.",
	},
		func(ctx context.Context, sc scope.Scope, _ *struct{}) (*auditReportOut, error) {
			rep, err := s.Audit.Verify(ctx, sc)
			return &auditReportOut{rep}, err
		})
}

// read parses the window; a date alone stands for the whole of its day.
func (w Window) read() (start, end time.Time, err error) {
	if start, err = moment(w.Start, "start_date", 0); err != nil {
		return
	}
	if end, err = moment(w.End, "end_date", 24*time.Hour-time.Microsecond); err != nil {
		return
	}
	if !start.IsZero() && !end.IsZero() && end.Before(start) {
		return start, end, badMoment("end_date", "end_date lies before start_date")
	}
	return start, end, nil
}

func moment(text, name string, restOfDay time.Duration) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t.Add(restOfDay), nil
	}
	return time.Time{}, badMoment(name, name+" must be a time such as 2026-11-20T23:36:00Z, or a date")
}

func badMoment(name, message string) error {
	e := rest.BadRequest("invalid_parameter", "%s", message)
	e.Details = []fault.Detail{{Pointer: "query." + name, Message: message}}
	return e
}
