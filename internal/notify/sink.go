package notify

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The built-in alerts.
const (
	AlertFailedLogins     = "failed_logins"
	AlertPolicyValidation = "policy_validation_error"
	AlertLicense          = "license_warning"
	AlertBouncerOffline   = "bouncer_offline"
	AlertAnomaly          = "anomaly_detected"
	AlertAuditPipeline    = "audit_pipeline_error"
)

// Sink queues messages about events for channels. It is an event.Sink.
type Sink struct {
	Outbox Outbox
}

// Name returns the name of the sink's cursor.
func (Sink) Name() string { return "notifications" }

// Take queues the messages about an event.
func (s Sink) Take(ctx context.Context, tx *db.Tx, tenant scope.TenantID, o event.Occurrence) error {
	n, told := noteOf(o)
	if !told {
		return nil
	}
	n.ID, n.Env, n.At = o.ID, o.Env, o.Timestamp
	return s.Outbox.Broadcast(ctx, tx, tenant, n)
}

// noteOf returns the message about an event. It returns false if channels get none.
func noteOf(o event.Occurrence) (Note, bool) {
	switch o.Type {
	case event.FailedLogins:
		name := cmp.Or(text(o.Data, "user_name"), "an unknown account")
		return Note{
			Alert: AlertFailedLogins, Severity: format.Warning, Fault: "failed_logins:" + text(o.Data, "user_id"),
			Title: "Failed sign-ins of " + name, Text: "Somebody tries to guess the password of " + name + ".",
			Facts: facts(o.Data, "failures", "ip_address"), Path: "/audit",
		}, true
	case event.HighDenyRate, event.Suspicious:
		return anomalyNote(o), true
	case event.SyncFailed:
		return Note{
			Alert: AlertPolicyValidation, Severity: format.Error, Fault: "refused:" + text(o.Data, "bouncer_id"),
			Title: "The bouncer " + text(o.Data, "bouncer_name") + " refused its policies", Text: text(o.Data, "reason"),
			Facts: facts(o.Data, "bouncer_name", "revision"), Path: "/bouncers/" + text(o.Data, "bouncer_id"),
		}, true
	case event.SyncCompleted:
		return Note{
			Alert: AlertPolicyValidation, Severity: format.Error, Fault: "refused:" + text(o.Data, "bouncer_id"), Resolved: true,
			Title: "The bouncer " + text(o.Data, "bouncer_name") + " runs its newest policies",
			Facts: facts(o.Data, "bouncer_name", "revision"), Path: "/bouncers/" + text(o.Data, "bouncer_id"),
		}, true
	case event.AlertOpened, event.AlertResolved:
		return tenantNote(o), true
	}
	return Note{}, false
}

// anomalyNote returns the message about an anomaly. It is critical at twice the threshold or more.
func anomalyNote(o event.Occurrence) Note {
	kind, subject := text(o.Data, "anomaly_name"), text(o.Data, "subject")
	evidence, _ := o.Data["evidence"].(map[string]any)
	n := Note{
		Alert: AlertAnomaly, Severity: format.Warning, Fault: "anomaly:" + kind + ":" + string(o.Env) + ":" + subject,
		Title: "Anomaly: " + strings.ReplaceAll(kind, "_", " "), Text: text(evidence, "summary"),
		Facts: append(facts(o.Data, "subject"), facts(evidence, "measured", "usual", "threshold", "unit")...), Path: "/",
	}
	if subject != "" {
		n.Title += " of " + subject
	}
	measured, _ := evidence["measured"].(float64)
	threshold, _ := evidence["threshold"].(float64)
	if threshold > 0 && measured >= 2*threshold {
		n.Severity = format.Critical
	}
	return n
}

// tenantNote returns the message about an alert of the tenant, or about its end.
func tenantNote(o event.Occurrence) Note {
	kind, subject := text(o.Data, "type"), text(o.Data, "subject")
	n := Note{
		Alert: builtIn(kind), Severity: text(o.Data, "severity"), Fault: kind + ":" + subject, Resolved: o.Type == event.AlertResolved,
		Title: strings.ReplaceAll(kind, "_", " ") + ": " + subject, Text: text(o.Data, "message"), Path: "/",
	}
	switch n.Alert {
	case AlertBouncerOffline:
		n.Path = "/bouncers/" + subject
	case AlertLicense: // the warning at 80 % and the critical alert at 100 % are separate faults
		n.Fault += ":" + n.Severity
		n.Path = "/tenant"
	}
	if n.Text != "" {
		n.Title = n.Text
	}
	return n
}

// builtIn returns the built-in alert that a type of alert belongs to, or the type itself if there
// is none.
func builtIn(kind string) string {
	switch {
	case kind == "bouncer_disconnected" || kind == "bouncer_trouble":
		return AlertBouncerOffline
	case kind == "usage_limit" || strings.HasPrefix(kind, "license") || strings.HasPrefix(kind, "subscription"):
		return AlertLicense
	case kind == "audit_pipeline" || kind == "disk_space":
		return AlertAuditPipeline
	}
	return kind
}

// facts returns the members of an event's data with these names, without those that are absent.
func facts(data map[string]any, names ...string) []format.Fact {
	var out []format.Fact
	for _, name := range names {
		if s := text(data, name); s != "" {
			out = append(out, format.Fact{Name: strings.ReplaceAll(name, "_", " "), Value: s})
		}
	}
	return out
}

// text returns a member of an event's data as text; "" if it is absent.
func text(data map[string]any, name string) string {
	switch v := data[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case float64: // the store returns numbers of events as float64
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
