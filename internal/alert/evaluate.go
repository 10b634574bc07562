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

// lag is how long after the end of a minute it is evaluated. By then most of its decisions are
// stored.
const lag = 10 * time.Second

// Evaluator evaluates the rules of all tenants. One replica at a time runs it. If two run for a
// moment, no harm is done, because the state of a rule is in its row.
type Evaluator struct {
	*Service
	// Active reports whether the rules of a tenant are evaluated.
	Active func(ctx context.Context, tenant scope.TenantID) (bool, error)
	// Poll is how often all tenants are checked. It covers notifications that were lost.
	Poll   time.Duration
	Logger *slog.Logger
}

// Run evaluates until ctx ends. Between two polls it does not read the stores of tenants without
// rules.
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
			e.Logger.Warn("alert rules of a tenant were not evaluated", "tenant", tenant, "error", err)
		}
		if some || err != nil {
			agenda.Schedule(tenant, e.Now().Add(-lag).Truncate(time.Minute).Add(time.Minute+lag))
		}
	}
}

// evaluateTenant evaluates the due rules of a tenant. It reports whether the tenant has enabled
// rules.
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

// due returns the end of the window to evaluate, and whether that window was not evaluated yet. An
// evaluation in the future does not count, so a clock that is set back does not stop a rule.
func (r Rule) due(now time.Time) (time.Time, bool) {
	end := now.UTC().Truncate(r.interval())
	return end, r.EvaluatedAt == nil || r.EvaluatedAt.Before(end) || r.EvaluatedAt.After(now)
}

// evaluate evaluates the due rules, and stores and reports the results, in one transaction.
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

// next returns what a value does to a rule: the rule fires, or its firing ends.
func (r Rule) next(end time.Time, value float64, there bool) (fires, ends bool) {
	if !r.Trigger.holds(value, there) {
		return false, r.Firing
	}
	if r.FiredAt != nil && !r.FiredAt.After(end) && end.Sub(*r.FiredAt) < r.Frequency.cooldown() {
		return false, false
	}
	return r.Day != dayOf(end) || r.Fires < r.Frequency.MaxFires, false
}

// after returns the rule after an evaluation.
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

// dayOf returns the number of the day (UTC) since 1970.
func dayOf(t time.Time) int64 { return t.Unix() / int64(24*time.Hour/time.Second) }

// report records that a rule fired or ended, and tells the channels.
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
