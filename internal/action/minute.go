package action

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// jobKind is the kind of the jobs that report the decisions that were only counted.
const jobKind = "actions.folded"

// minute records what the actions of one control did in a minute.
type minute struct {
	// At is when the minute began.
	At time.Time `db:"minute"`
	// Sent is the number of decisions for which actions ran.
	Sent   int64    `db:"sent"`
	Folded []folded `db:"folded"`

	control actions.Control
	touched bool
}

// folded counts decisions for which an action sent no message of its own.
type folded struct {
	Action      actions.Action `json:"action"`
	Severity    string         `json:"severity"`
	Environment scope.Env      `json:"environment"`
	Decisions   int64          `json:"decisions"`
}

// fold counts a decision for which an action sends no message of its own.
func (m *minute) fold(a actions.Action, d *audit.Decision) {
	severity := severityOf(a, d.Decision == audit.Deny)
	for i := range m.Folded {
		if f := &m.Folded[i]; f.Action == a && f.Severity == severity {
			f.Decisions += decisions(d)
			return
		}
	}
	m.Folded = append(m.Folded, folded{a, severity, d.Environment, decisions(d)})
}

// ended is the payload of the job.
type ended struct {
	Control int64     `json:"control"`
	Minute  time.Time `json:"minute"`
}

// Jobs returns the kinds of jobs that this package handles.
func (s *Service) Jobs() []job.Kind { return []job.Kind{{Name: jobKind, Work: s.sendFolded}} }

// sendFolded reports the decisions of a minute that were only counted, to the targets of the
// actions and in the audit.
func (s *Service) sendFolded(ctx context.Context, t job.Task) error {
	var over ended
	if err := t.Decode(&over); err != nil {
		return err
	}
	return s.Stores.Write(ctx, t.Tenant, func(tx *db.Tx) error {
		m, err := takeMinute(ctx, tx, over.Control, over.Minute)
		if errors.Is(err, db.ErrNoRows) {
			return t.Complete(ctx, tx)
		}
		if err != nil {
			return err
		}
		if m.control, err = controlNow(ctx, tx, over.Control); err != nil {
			return err
		}
		for _, f := range m.Folded {
			if err := s.send(ctx, tx, t.Tenant, f.Action, f.note(t.Tenant, &m), m.control, nil); err != nil {
				return err
			}
		}
		if err := audit.Append(ctx, tx, scope.Scope{Tenant: t.Tenant, Env: m.control.Environment, Actor: scope.Actor{Kind: scope.System, ID: "actions", Name: "actions"}}, tx.Now(), m.entry()); err != nil {
			return err
		}
		return t.Complete(ctx, tx)
	})
}

// controlNow returns the control, or only its id and a name made from it if the control is deleted
// or has no actions any more.
func controlNow(ctx context.Context, tx *db.Tx, id int64) (actions.Control, error) {
	found, err := actions.Of(ctx, tx, []int64{id})
	if err != nil || len(found) == 0 {
		return actions.Control{ID: id, Name: "Control " + strconv.FormatInt(id, 10)}, err
	}
	return found[0], nil
}

// note returns the message about folded decisions.
func (f folded) note(tenant scope.TenantID, m *minute) notify.Note {
	at := m.At.UTC().Format(time.RFC3339)
	return notify.Note{
		ID: noteID(string(tenant), strconv.FormatInt(m.control.ID, 10), at, f.Action.DestinationRef, f.Action.Trigger, f.Severity, f.Action.Payload.Message), Alert: "control_action",
		Severity: f.Severity, Env: f.Environment, Fault: faultOf(m.control.ID, f.Action.Trigger), Channels: channelsOf(f.Action), Path: "/decisions", At: m.At,
		Title: fmt.Sprintf("%s: %d more decisions", m.control.Name, f.Decisions),
		Text: fmt.Sprintf("In the minute from %s, %d more decisions triggered this action (%s). An action sends one message each for %d decisions of a control in a minute.",
			at, f.Decisions, f.Action.Trigger, PerMinute),
	}
}

// entry returns the audit entry about folded decisions.
func (m *minute) entry() audit.Entry {
	var list []map[string]any
	for _, f := range m.Folded {
		list = append(list, map[string]any{"destination_ref": f.Action.DestinationRef, "trigger": f.Action.Trigger, "decisions": f.Decisions})
	}
	return audit.Entry{
		Type: "POLICY_ACTIONS_FOLDED", Object: "policy", ObjectID: strconv.FormatInt(m.control.ID, 10), ObjectName: m.control.Name, Env: m.control.Environment,
		EventContext: map[string]any{"minute": m.At.UTC().Format(time.RFC3339), "told_one_by_one": m.Sent, "folded": list},
	}
}
