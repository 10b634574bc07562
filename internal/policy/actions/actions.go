// Package actions has the actions of controls: what runs after a decision, and which controls have
// actions.
package actions

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The decisions of a control that trigger an action.
const (
	OnDeny   = "on_deny"
	OnPermit = "on_permit"
	OnMask   = "on_mask"
	Always   = "always"
)

// Notification is the type of actions that send a message to a channel.
const Notification = "notification"

// Action runs after a decision of its control.
type Action struct {
	Type           string  `json:"type" enum:"notification,webhook,workflow,approval_queue,policy_engine,break_glass_bridge,siem_forwarder" doc:"Action."`
	DestinationRef string  `json:"destination_ref" pattern:"^(channel|integration):[1-9][0-9]{0,17}$" doc:"Target: channel:<id> for a notification, integration:<id> for the others." example:"channel:3"`
	Trigger        string  `json:"trigger" enum:"on_deny,on_permit,on_mask,always" doc:"Which decisions of the control trigger it."`
	Payload        Payload `json:"payload,omitzero" doc:"The message."`
}

// Payload is the content of an action.
type Payload struct {
	Message  string `json:"message,omitempty" maxLength:"2000" doc:"Template of the message. {{reason}} stands for the reason of the decision; docs/controls.md lists all placeholders. Absent: the reason." example:"{{user.id}} may not open {{resource.path}}: {{reason}}"`
	Severity string `json:"severity,omitempty" enum:"info,warning,error,critical" doc:"Severity. Absent: warning for a denial, else info."`
}

// Placeholders lists what a message may show of a decision: members of its entry in the
// audit, which contains no secrets.
func Placeholders() []string {
	return []string{
		"user.id", "user.email", "resource.id", "resource.type", "resource.path", "action", "decision", "effect", "reason",
		"policy.id", "policy.name", "environment", "ip_address", "decision_id", "timestamp",
	}
}

var placeholder = regexp.MustCompile(`\{\{([^{}]*)\}\}`)

// Text returns the message with its placeholders replaced by their values. Placeholders inside a
// value are not replaced.
func (p Payload) Text(value func(name string) string) string {
	return placeholder.ReplaceAllStringFunc(p.Message, func(found string) string {
		return value(strings.TrimSpace(found[2 : len(found)-2]))
	})
}

// Offence returns what is wrong with the message; "" if nothing is.
func (p Payload) Offence() string {
	for _, found := range placeholder.FindAllStringSubmatch(p.Message, -1) {
		if name := strings.TrimSpace(found[1]); !slices.Contains(Placeholders(), name) {
			return fmt.Sprintf("there is no placeholder %q; there are %s", name, strings.Join(Placeholders(), ", "))
		}
	}
	if rest := placeholder.ReplaceAllString(p.Message, ""); strings.Contains(rest, "{{") || strings.Contains(rest, "}}") {
		return "a placeholder is not complete: write {{reason}}"
	}
	return ""
}

// Destination returns the kind of an action's target, channel or integration, and its id.
func (a Action) Destination() (kind string, id int64) {
	kind, digits, _ := strings.Cut(a.DestinationRef, ":")
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return kind, 0 // no target has this id
	}
	return kind, id
}

// Offence returns why an action's target does not fit its type; "" if it fits.
func (a Action) Offence() string {
	kind, _ := a.Destination()
	if want := map[bool]string{true: "channel", false: "integration"}[a.Type == Notification]; kind != want {
		return fmt.Sprintf("the target of an action of type %s must be %s:<id>", a.Type, want)
	}
	return ""
}

// Control is a control with actions.
type Control struct {
	ID          int64     `db:"id"`
	Name        string    `db:"name"`
	Environment scope.Env `db:"environment"`
	Actions     []Action  `db:"actions"`
}

// Of returns the controls with these ids that have actions, with their current actions.
// The ids must be sorted.
func Of(ctx context.Context, tx *db.Tx, ids []int64) ([]Control, error) {
	all, err := db.All[int64](ctx, tx, actingIDs)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(all, func(id int64) bool {
		_, asked := slices.BinarySearch(ids, id)
		return !asked
	})
	if len(kept) == 0 {
		return nil, nil
	}
	return listActing(ctx, tx, kept)
}
