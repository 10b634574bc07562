package alert

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/job"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// lag is how long after the end of a minute its decisions are counted: until then most of
// them are stored.
const lag = 10 * time.Second

// Evaluator evaluates the rules of all tenants. One replica at a time runs it; a second one
// that runs for a moment does no harm, because what a rule found is in its row.
type Evaluator struct {
	*Service
	// Active reports whether a tenant's rules are to be evaluated.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are looked at, in case that a wake was missed.
	Poll   time.Duration
	Logger *slog.Logger
}

// Run evaluates until ctx ends. A tenant without rules costs nothing between two polls.
func (e *Evaluator) Run(ctx context.Context) {
	agenda := &job.Agenda{Cluster: e.Stores, Topic: Topic, Now: e.Now, Poll: e.Poll, Logger: e.Logger}
	defer agenda.Begin()()
	for {
		tenant, ok := agenda.Next(ctx)
		if !ok {
			return
		}
		some, err := e.evaluateTenant(ctx, tenant)
		if err != nil && ctx.Err() == nil {
			e.Logger.Warn("alert rules: a tenant was skipped", "tenant", tenant, "error", err)
		}
		if some || err != nil {
			agenda.Schedule(tenant, e.Now().Add(-lag).Truncate(time.Minute).Add(time.Minute+lag))
		}
	}
}

// evaluateTenant evaluates the rules of a tenant that are due, and reports whether it has any.
func (e *Evaluator) evaluateTenant(ctx context.Context, tenant scope.TenantID) (some bool, err error) {
	var due []Rule
	now := e.Now().Add(-lag)
	err = e.Stores.Read(ctx, tenant, func(tx *db.Tx) error {
		rules, err := enabledRules(ctx, tx)
		some = len(rules) > 0
		due = nil
		for _, r := range rules {
			if _, is := r.due(now); is {
				due = append(due, r)
			}
		}
		return err
	})
	if err != nil || len(due) == 0 {
		return some, err
	}
	if active, err := e.Active(ctx, tenant); err != nil || !active {
		return some, err
	}
	return some, e.evaluate(ctx, tenant, now)
}

// due gives the end of the window to evaluate, and whether it was not yet. A clock that was
// set back does not stop a rule: what is in the future counts as never.
func (r Rule) due(now time.Time) (time.Time, bool) {
	end := now.UTC().Truncate(r.interval())
	return end, r.EvaluatedAt == nil || r.EvaluatedAt.Before(end) || r.EvaluatedAt.After(now)
}

// evaluate evaluates the rules that are due, in one transaction with what follows.
func (e *Evaluator) evaluate(ctx context.Context, tenant scope.TenantID, now time.Time) error {
	return e.Stores.WriteUnder(ctx, tenant, changes, func(tx *db.Tx) error {
		rules, err := enabledRules(ctx, tx)
		if err != nil {
			return err
		}
		shared := sums{}
		for _, r := range rules {
			end, due := r.due(now)
			if !due {
				continue
			}
			value, there, err := shared.value(ctx, tx, r, end)
			if err != nil {
				return err
			}
			fires, ends := r.next(end, value, there)
			if err := saveState(ctx, tx, r.after(end, value, there, fires, ends)); err != nil {
				return err
			}
			if fires || ends {
				if err := e.report(ctx, tx, tenant, r, value, ends); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// next says what a value does to a rule: it fires, or what it told of ends.
func (r Rule) next(end time.Time, value float64, there bool) (fires, ends bool) {
	if !r.Trigger.holds(value, there) {
		return false, r.Firing
	}
	if r.FiredAt != nil && !r.FiredAt.After(end) && end.Sub(*r.FiredAt) < r.Frequency.cooldown() {
		return false, false
	}
	return r.Day != dayOf(end) || r.Fires < r.Frequency.MaxFires, false
}

// after is the rule after an evaluation.
func (r Rule) after(end time.Time, value float64, there, fires, ends bool) Rule {
	r.EvaluatedAt, r.Value = &end, nil
	if there {
		r.Value = &value
	}
	if ends {
		r.Firing = false
	}
	if fires {
		if r.Day != dayOf(end) {
			r.Day, r.Fires = dayOf(end), 0
		}
		r.Firing, r.FiredAt, r.Fires = true, &end, r.Fires+1
	}
	return r
}

// dayOf numbers the days (UTC).
func dayOf(t time.Time) int64 { return t.Unix() / int64(24*time.Hour/time.Second) }

// report writes down that a rule fired or ended, and tells the channels.
func (e *Evaluator) report(ctx context.Context, tx *db.Tx, tenant scope.TenantID, r Rule, value float64, ends bool) error {
	kind, text := "CUSTOM_ALERT_FIRED", "The value is "+rounded(value)+unit(r.Trigger.Metric)+"."
	if ends {
		kind = "CUSTOM_ALERT_RESOLVED"
	}
	if err := e.queueMessage(ctx, tx, tenant, r, ends, text); err != nil {
		return err
	}
	entry := r.entry(kind, nil)
	entry.EventContext = map[string]any{"value": value, "trigger": r.Trigger, "evaluation_window_seconds": int64(r.Frequency.window() / time.Second), "severity": r.Severity}
	sc := scope.Scope{Tenant: tenant, Env: r.Environment, Actor: scope.Actor{Kind: scope.System, ID: "alert rules", Name: "alert rules"}}
	return audit.Append(ctx, tx, sc, e.Now(), entry)
}

// queueMessage queues the message that a rule fired, or that it ended.
func (s *Service) queueMessage(ctx context.Context, tx *db.Tx, tenant scope.TenantID, r Rule, ends bool, text string) error {
	id := strconv.FormatInt(r.ID, 10)
	now := s.Now()
	n := notify.Note{
		ID: "rule_" + id + "_" + strconv.FormatInt(now.UnixMicro(), 10), Alert: "custom_rule", Severity: r.Severity, Env: r.Environment, Fault: "rule:" + id,
		Resolved: ends, Title: r.Name, Text: text, Path: "/notifications/alert-rules", At: now, Channels: r.Channels,
		Facts: []format.Fact{{Name: "condition", Value: r.Trigger.sentence(r.Frequency.window())}},
	}
	if r.Description != "" {
		n.Text = r.Description + "\n" + text
	}
	return s.Outbox.Broadcast(ctx, tx, tenant, n)
}
