package connect

import (
	"context"
	"net/http"
	"reflect"

	"github.com/gatehouse-dev/gatehouse/internal/alert"
	"github.com/gatehouse-dev/gatehouse/internal/rest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// RulePath names an alert rule.
type RulePath struct {
	ID int64 `path:"rule_id" minimum:"1" doc:"Id of the alert rule"`
}

type ruleOut struct {
	ETag string `header:"ETag" doc:"Version of the alert rule; evaluations do not change it"`
	Body alert.Rule
}

type ruleUpdateIn struct {
	RulePath
	rest.IfMatch
	Body alert.Change
}

type ruleDeleteIn struct {
	RulePath
	rest.IfMatch
}

// alertRules registers the alert rules.
func (h *Handler) alertRules(r *rest.Router) {
	tags, record := []string{"Notifications"}, reflect.TypeFor[alert.Rule]()
	rest.Register(r, rest.Op{
		ID: "list-alert-rules", Method: http.MethodGet, Path: "/notifications/alert-rules", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "List alert rules", Description: "By id.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.Page) (*rest.JSON[alert.Page], error) {
		return rest.Answer(h.Alerts.List(ctx, sc, int64(in.Skip), int64(in.Limit)))
	})
	rest.Register(r, rest.Op{
		ID: "create-alert-rule", Method: http.MethodPost, Path: "/notifications/alert-rules", Reach: rest.ReachEnvironment, Permission: "notifications:write",
		Tags: tags, Status: http.StatusCreated, Creates: true, Record: record,
		Errors:      []int{http.StatusConflict},
		Summary:     "Create an alert rule",
		Description: "The rule compares a metric with a threshold each minute, or every 5 minutes for long windows and for audit_event_count. When the condition holds it fires: the audit gets CUSTOM_ALERT_FIRED and the channels a message. While it holds, it fires again after each cooldown. When it no longer holds, the same channels get a message with the status `resolved`. A tenant has at most 50 rules.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[alert.Draft]) (*ruleOut, error) {
		rule, err := h.Alerts.Create(ctx, sc, in.Body)
		return &ruleOut{rest.ETag(rule.ChangeNo), rule}, err
	})
	rest.Register(r, rest.Op{
		ID: "get-alert-rule", Method: http.MethodGet, Path: "/notifications/alert-rules/{rule_id}", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary: "Read an alert rule",
	}, func(ctx context.Context, sc scope.Scope, in *RulePath) (*ruleOut, error) {
		rule, err := h.Alerts.Get(ctx, sc, in.ID)
		return &ruleOut{rest.ETag(rule.ChangeNo), rule}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "update-alert-rule", Method: http.MethodPut, Path: "/notifications/alert-rules/{rule_id}", Reach: rest.ReachEnvironment, Permission: "notifications:write",
		Tags: tags, Record: record,
		Errors:      []int{http.StatusConflict, http.StatusPreconditionFailed},
		Summary:     "Change an alert rule",
		Description: "Members that are not sent keep their value. If a firing rule is disabled or its condition changes, it ends, and its channels get a message about that. The environment cannot be changed.",
	}, func(ctx context.Context, sc scope.Scope, in *ruleUpdateIn, version int64) (*ruleOut, error) {
		rule, err := h.Alerts.Update(ctx, sc, in.ID, in.Body, version)
		return &ruleOut{rest.ETag(rule.ChangeNo), rule}, err
	})
	rest.RegisterChange(r, rest.Op{
		ID: "delete-alert-rule", Method: http.MethodDelete, Path: "/notifications/alert-rules/{rule_id}", Reach: rest.ReachEnvironment, Permission: "notifications:write", Tags: tags,
		Errors:  []int{http.StatusPreconditionFailed},
		Summary: "Remove an alert rule", Description: "If it was firing, the channels get a message that it ended.",
	}, func(ctx context.Context, sc scope.Scope, in *ruleDeleteIn, version int64) (*rest.JSON[rest.Removed], error) {
		err := h.Alerts.Delete(ctx, sc, in.ID, version)
		return rest.Answer(rest.Removed{Message: "Alert rule deleted successfully", ID: in.ID}, err)
	})
	rest.Register(r, rest.Op{
		ID: "preview-alert-rule", Method: http.MethodPost, Path: "/notifications/alert-rules/preview", Reach: rest.ReachEnvironment, Permission: "notifications:read", Tags: tags,
		Summary:     "Try an alert rule on the last 7 days",
		Description: "Shows how often the rule would have fired and ended. Nothing is stored or sent.",
	}, func(ctx context.Context, sc scope.Scope, in *rest.JSON[alert.Draft]) (*rest.JSON[alert.Preview], error) {
		return rest.Answer(h.Alerts.Preview(ctx, sc, in.Body))
	})
}
