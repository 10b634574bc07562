package format

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
)

// pagerSummary is the longest summary of an event, in characters.
const pagerSummary = 1024

// pagerEvents is the path to which events are sent.
const pagerEvents = "/v2/enqueue"

// pagerDutyType sends events to PagerDuty (Events API v2). All messages about one fault have the
// same dedup key, so they make one incident. The message about its end resolves the incident.
func pagerDutyType() Type {
	return Type{
		Name: PagerDuty, Endpoint: "https://events.pagerduty.com", Secrets: []string{RoutingKey}, Lasting: true,
		Settings:    []Setting{{Name: "default_severity", Kind: kindChoice, Values: Severities()}},
		Credentials: [][]string{{RoutingKey}},
		Send: func(call Call, c Channel, m Message) Outcome {
			res, out := exchange{c, call}.do("POST", c.address(pagerEvents), pagerEvent(c, m), pagerErrorText)
			if out.Error != "" {
				return out
			}
			var answer struct {
				Status string `json:"status"`
			}
			if json.Unmarshal(res.Body, &answer) == nil && answer.Status != "" && answer.Status != "success" {
				return out.refuse("PagerDuty refused the event")
			}
			return out
		},
	}
}

// pagerEvent returns the event for a message.
func pagerEvent(c Channel, m Message) map[string]any {
	event := map[string]any{"routing_key": c.Credential[RoutingKey], "event_action": "trigger", "dedup_key": c.key(m)}
	if m.Status == Resolved {
		event["event_action"] = "resolve"
		return event
	}
	details := map[string]string{"message": m.Text}
	for _, f := range m.facts() {
		details[f.Name] = f.Value
	}
	event["payload"] = map[string]any{
		"summary": truncateUTF16(cmp.Or(strings.TrimSpace(m.Title), m.Alert), pagerSummary), "source": m.source(), "severity": m.Severity, "timestamp": m.At.UTC().Format(time.RFC3339Nano),
		"component": "gatehouse", "class": m.Alert, "custom_details": details,
	}
	event["client"] = "gatehouse"
	if m.Link != "" {
		event["client_url"] = m.Link
		event["links"] = []map[string]string{{"href": m.Link, "text": "Open in gatehouse"}}
	}
	return event
}

// pagerErrorText returns the message and the errors in an answer.
func pagerErrorText(body []byte) string {
	var answer struct {
		Message string   `json:"message"`
		Errors  []string `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return strings.Trim(answer.Message+": "+strings.Join(answer.Errors, "; "), ": ")
}
