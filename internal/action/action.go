// Package action runs the actions of controls after decisions. It works behind the decision log, so
// a decision never waits for its actions:
//
//	server ──┐
//	         ├─▶ audit.DecisionLog ─▶ Service.Take ─┬─▶ notify.Outbox ─────▶ channel
//	bouncer ─┘                                      └─▶ integration.Queue ─▶ webhook, workflow
//	              one transaction: the decisions, and what their actions send
//
// So the actions of a decision run once, wherever it was made. A control runs its actions for a
// limited number of decisions a minute. Further decisions are counted, and reported in one message
// when the minute is over.
package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/integration"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/policy/actions"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// PerMinute is the number of decisions a minute for which a control runs its actions.
const PerMinute = 10

// Service runs actions.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// Outbox queues the messages.
	Outbox notify.Outbox
}

// Take queues the messages that the actions of controls send about decisions. It is
// audit.Config.Stored.
func (s *Service) Take(ctx context.Context, tx *db.Tx, tenant scope.TenantID, fresh []audit.NewDecision) error {
	acting, err := actions.Of(ctx, tx, controlsOf(fresh))
	if err != nil || len(acting) == 0 {
		return err
	}
	now := s.Now().UTC().Truncate(time.Minute)
	minutes := map[int64]*minute{}
	for _, c := range acting {
		if minutes[c.ID], err = loadMinute(ctx, tx, c, now); err != nil {
			return err
		}
	}
	for _, f := range fresh {
		m := minutes[f.PolicyID]
		if m == nil {
			continue
		}
		d, err := f.Decision()
		if err != nil {
			return fault.Wrap(err, "read a stored decision")
		}
		if err := s.take(ctx, tx, tenant, m, &d); err != nil {
			return err
		}
	}
	for _, c := range acting {
		if err := s.save(ctx, tx, minutes[c.ID]); err != nil {
			return err
		}
	}
	return nil
}

// take runs the actions of one decision, or counts the decision if the limit of its minute is
// reached.
func (s *Service) take(ctx context.Context, tx *db.Tx, tenant scope.TenantID, m *minute, d *audit.Decision) error {
	var wanted []actions.Action
	for _, a := range m.control.Actions {
		if triggers(a.Trigger, d) {
			wanted = append(wanted, a)
		}
	}
	if len(wanted) == 0 || d.Environment != m.control.Environment { // the control was promoted since
		return nil
	}
	m.touched = true
	if m.Sent >= PerMinute {
		for _, a := range wanted {
			m.fold(a, d)
		}
		return nil
	}
	m.Sent++
	for _, a := range wanted {
		if err := s.send(ctx, tx, tenant, a, noteOf(tenant, m.control, a, d), m.control, d); err != nil {
			return err
		}
	}
	return nil
}

// send queues a message for the target of an action. d is the decision; nil: the message reports
// decisions that were only counted.
func (s *Service) send(ctx context.Context, tx *db.Tx, tenant scope.TenantID, a actions.Action, n notify.Note, c actions.Control, d *audit.Decision) error {
	if a.Type == actions.Notification {
		return s.Outbox.Broadcast(ctx, tx, tenant, n)
	}
	data, err := json.Marshal(called{PolicyID: c.ID, PolicyName: c.Name, Environment: n.Env, Trigger: a.Trigger, Severity: n.Severity, Message: n.Text, Decision: d})
	if err != nil {
		return fault.Wrap(err, "write the message of an action")
	}
	_, id := a.Destination()
	m := integration.Message{EventID: n.ID, At: n.At, Data: data, Cause: integration.Cause{PolicyID: c.ID, PolicyName: c.Name, Summary: n.Text}}
	if d != nil {
		m.Cause.DecisionID = d.DecisionID
	}
	return integration.Queue(ctx, tx, id, n.Env, m)
}

// called is the data that the system of an action receives.
type called struct {
	PolicyID    int64           `json:"policy_id"`
	PolicyName  string          `json:"policy_name"`
	Environment scope.Env       `json:"environment"`
	Trigger     string          `json:"trigger"`
	Severity    string          `json:"severity"`
	Message     string          `json:"message"`
	Decision    *audit.Decision `json:"decision,omitempty"`
}

// save stores a minute. If decisions were only counted, it adds a job that reports them when the
// minute is over.
func (s *Service) save(ctx context.Context, tx *db.Tx, m *minute) error {
	if !m.touched {
		return nil
	}
	if err := saveMinute(ctx, tx, m); err != nil || len(m.Folded) == 0 {
		return err
	}
	_, err := job.Insert(ctx, tx, job.Job{
		Kind: jobKind, Payload: ended{m.control.ID, m.At}, RunAt: m.At.Add(time.Minute),
		UniqueKey: strconv.FormatInt(m.control.ID, 10) + " " + m.At.Format(time.RFC3339),
	})
	return err
}

// controlsOf returns the controls that made decisions, each once.
func controlsOf(fresh []audit.NewDecision) []int64 {
	ids := make([]int64, len(fresh))
	for i, f := range fresh {
		ids[i] = f.PolicyID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// triggers reports whether a decision triggers an action. In shadow mode a bouncer permits what
// it would deny or mask; that triggers only actions.Always.
func triggers(trigger string, d *audit.Decision) bool {
	switch trigger {
	case actions.OnDeny:
		return d.Decision == audit.Deny
	case actions.OnMask:
		return d.Effect == "MASK"
	case actions.OnPermit:
		return d.Decision == audit.Permit && (d.Effect == "ALLOW" || d.Effect == "")
	}
	return trigger == actions.Always
}

// decisions returns how many decisions an entry of the log stands for.
func decisions(d *audit.Decision) int64 {
	if d.Folded == nil {
		return 1
	}
	return max(1, d.Folded.Count)
}

// severityOf returns the severity of an action's message.
func severityOf(a actions.Action, denied bool) string {
	switch {
	case a.Payload.Severity != "":
		return a.Payload.Severity
	case denied:
		return format.Warning
	}
	return format.Info
}

// noteOf returns the message of an action about a decision.
func noteOf(tenant scope.TenantID, c actions.Control, a actions.Action, d *audit.Decision) notify.Note {
	value := valuesOf(c, d)
	n := notify.Note{
		ID: noteID(string(tenant), d.DecisionID, a.DestinationRef, a.Trigger, a.Payload.Message), Alert: "control_action",
		Severity: severityOf(a, d.Decision == audit.Deny), Env: d.Environment, Fault: faultOf(c.ID, a.Trigger),
		Title: c.Name + ": " + effectOf(d), Text: a.Payload.Text(value), Channels: channelsOf(a), Path: "/decisions/" + d.DecisionID, At: d.Timestamp,
	}
	if n.Text == "" {
		n.Text = d.Reason
	}
	if d.AuditLevel == audit.None {
		n.Path = "" // the decision is not in the log
	}
	for _, name := range []string{"user.id", "resource.type", "resource.path", "action", "reason", "decision_id"} {
		if v := value(name); v != "" {
			n.Facts = append(n.Facts, format.Fact{Name: name, Value: v})
		}
	}
	if times := decisions(d); times > 1 {
		n.Facts = append(n.Facts, format.Fact{Name: "decisions", Value: strconv.FormatInt(times, 10)})
	}
	return n
}

// effectOf returns the effect of a decision, or the decision itself if it has no effect.
func effectOf(d *audit.Decision) string {
	if d.Effect != "" {
		return d.Effect
	}
	return d.Decision
}

// faultOf returns the fault of an action's messages. It is the same in all of them, so that a pager
// or a ticketing system keeps one incident or ticket.
func faultOf(control int64, trigger string) string {
	return "control:" + strconv.FormatInt(control, 10) + ":" + trigger
}

// channelsOf returns the channels that an action sends to.
func channelsOf(a actions.Action) []int64 {
	_, id := a.Destination()
	return []int64{id}
}

// noteID returns the id of a message, derived from what it is about.
func noteID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return "act_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// valuesOf returns the values of actions.Placeholders, from the decision as the log has it.
func valuesOf(c actions.Control, d *audit.Decision) func(name string) string {
	values := map[string]string{
		"user.id": d.User.ID, "user.email": d.User.Email, "resource.id": d.Resource.ID, "resource.type": d.Resource.Type, "resource.path": d.Resource.Path,
		"action": d.Action, "decision": d.Decision, "effect": effectOf(d), "reason": d.Reason, "policy.id": strconv.FormatInt(c.ID, 10), "policy.name": c.Name,
		"environment": string(d.Environment), "ip_address": d.IPAddress, "decision_id": d.DecisionID, "timestamp": d.Timestamp.UTC().Format(time.RFC3339),
	}
	return func(name string) string { return values[name] }
}
