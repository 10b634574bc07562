package policy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
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

// offence returns what is wrong with the message; "" if nothing is.
func (p Payload) offence() string {
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

// offence returns why an action's target does not fit its type; "" if it fits.
func (a Action) offence() string {
	kind, _ := a.Destination()
	if want := map[bool]string{true: "channel", false: "integration"}[a.Type == Notification]; kind != want {
		return fmt.Sprintf("the target of an action of type %s must be %s:<id>", a.Type, want)
	}
	return ""
}

// checkActions returns what is wrong with the actions of a control in an environment.
func (l *Links) checkActions(ctx context.Context, tx *db.Tx, env scope.Env, actions []Action) ([]fault.Detail, error) {
	var offences []fault.Detail
	for i, a := range actions {
		at := fmt.Sprintf("/actions/%d", i)
		if why := a.Payload.offence(); why != "" {
			offences = append(offences, fault.Detail{Pointer: at + "/payload/message", Message: why})
		}
		why := a.offence()
		if why == "" {
			ok, err := l.DestinationExists(ctx, tx, env, a)
			if err != nil {
				return nil, err
			}
			if !ok {
				why = fmt.Sprintf("no %s in %s", a.DestinationRef, env)
			}
		}
		if why != "" {
			offences = append(offences, fault.Detail{Pointer: at + "/destination_ref", Message: why})
		}
	}
	return offences, nil
}

// dropActions removes from p the actions whose targets its environment does not have, and returns
// a warning about them. A promotion calls it, because a channel belongs to one environment.
func (l *Links) dropActions(ctx context.Context, tx *db.Tx, p *Policy) ([]Warning, error) {
	var kept []Action
	var left []string
	for _, a := range p.Actions {
		ok, err := l.DestinationExists(ctx, tx, p.Environment, a)
		if err != nil {
			return nil, err
		}
		if ok {
			kept = append(kept, a)
		} else {
			left = append(left, a.DestinationRef)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	p.Actions = kept
	return []Warning{p.warning(warnActions, fmt.Sprintf("policy %d was copied without its actions for %s, which %s does not have", p.ID, strings.Join(left, ", "), p.Environment))}, nil
}

// ActiveControl is a control with actions.
type ActiveControl struct {
	ID          int64     `db:"id"`
	Name        string    `db:"name"`
	Environment scope.Env `db:"environment"`
	Actions     []Action  `db:"actions"`
}

// WithActions returns the controls with these ids that have actions, with their current actions.
// The ids must be sorted.
func WithActions(ctx context.Context, tx *db.Tx, ids []int64) ([]ActiveControl, error) {
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

// Targets returns the targets of the control's actions, each once, sorted and separated by spaces.
func (c Control) Targets() string {
	var refs []string
	for _, a := range c.Actions {
		refs = append(refs, a.DestinationRef)
	}
	slices.Sort(refs)
	return strings.Join(slices.Compact(refs), " ")
}
