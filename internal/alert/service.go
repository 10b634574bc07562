package alert

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/stats"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Topic is the topic of the notifications that wake the Evaluator when the rules of a tenant
// change.
const Topic = "alert_rules"

// changes is the lock held while rules change or are evaluated, so that names stay unique, the
// limit on their number holds, and the right series are counted.
const changes = "alert rules"

// Service has the use cases of alert rules.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	// Outbox queues the messages.
	Outbox notify.Outbox
	// Exists reports whether an object exists in an environment. kind is resource, control or
	// bouncer.
	Exists func(ctx context.Context, tx *db.Tx, env scope.Env, kind string, id int64) (bool, error)
}

// List returns one page of the rules in the scope's environment, or in both, sorted by id.
func (s *Service) List(ctx context.Context, sc scope.Scope, skip, limit int64) (Page, error) {
	var page Page
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = countRules(ctx, tx, sc.Env); err != nil {
			return err
		}
		if page.Rules, err = listRules(ctx, tx, sc.Env, skip, limit); err != nil {
			return err
		}
		for i := range page.Rules {
			if page.Rules[i].Problem, err = s.problem(ctx, tx, page.Rules[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return page, err
}

// Get returns one rule, or NotFound.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Rule, error) {
	var r Rule
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if r, err = load(ctx, tx, sc, id); err != nil {
			return err
		}
		r.Problem, err = s.problem(ctx, tx, r)
		return err
	})
	return r, err
}

// Create adds a rule.
func (s *Service) Create(ctx context.Context, sc scope.Scope, d Draft) (Rule, error) {
	env, err := sc.CreateIn(d.Environment)
	if err != nil {
		return Rule{}, err
	}
	r := d.rule()
	r.Environment, r.CreatedBy = env, sc.Actor.Name
	err = s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		n, err := countRules(ctx, tx, scope.AnyEnv)
		if err := fault.CheckCounted(n, err, MaxRules, "a tenant has at most %d alert rules"); err != nil {
			return err
		}
		if err := s.check(ctx, tx, &r, 0); err != nil {
			return err
		}
		r.CreatedAt = db.Stamp(s.Now())
		r.UpdatedAt = r.CreatedAt
		if r, err = insertRule(ctx, tx, r); err != nil {
			return err
		}
		return s.noteChange(ctx, tx, sc, r, "ALERT_RULE_CREATED", map[string]any{"trigger": r.Trigger, "severity": r.Severity, "enabled": r.Enabled})
	})
	return r, err
}

// Update changes the members that are sent. If ifChange is not 0, it must be the rule's ChangeNo;
// otherwise Update returns Precondition. If a firing rule is disabled or its condition changes, its
// firing ends and the channels are told.
func (s *Service) Update(ctx context.Context, sc scope.Scope, id int64, ch Change, ifChange int64) (Rule, error) {
	var r Rule
	err := s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		old, err := loadCurrent(ctx, tx, sc, id, ifChange)
		if err != nil {
			return err
		}
		next := ch.apply(old)
		if err := s.check(ctx, tx, &next, id); err != nil {
			return err
		}
		if reflect.DeepEqual(next, old) {
			r = old
			return nil
		}
		if old.Firing && (!next.Enabled || next.Trigger != old.Trigger) {
			next.Firing = false
			if err := s.queueMessage(ctx, tx, sc.Tenant, old, true, "The rule was changed."); err != nil {
				return err
			}
		}
		next.ChangeNo, next.UpdatedAt = old.ChangeNo+1, db.Stamp(s.Now())
		if r, err = updateRule(ctx, tx, next); err != nil {
			return err
		}
		return s.noteChange(ctx, tx, sc, r, "ALERT_RULE_UPDATED", changesOf(old, next))
	})
	return r, err
}

// Delete removes a rule. If it is firing, the channels are told that it ended.
func (s *Service) Delete(ctx context.Context, sc scope.Scope, id, ifChange int64) error {
	return s.Stores.WriteUnder(ctx, sc.Tenant, changes, func(tx *db.Tx) error {
		r, err := loadCurrent(ctx, tx, sc, id, ifChange)
		if err != nil {
			return err
		}
		if r.Firing {
			if err := s.queueMessage(ctx, tx, sc.Tenant, r, true, "The rule was removed."); err != nil {
				return err
			}
		}
		if err := deleteRule(ctx, tx, id); err != nil {
			return err
		}
		return s.noteChange(ctx, tx, sc, r, "ALERT_RULE_DELETED", nil)
	})
}

// noteChange updates which series are counted for the rules, wakes the Evaluator and records the
// change.
func (s *Service) noteChange(ctx context.Context, tx *db.Tx, sc scope.Scope, r Rule, kind string, what map[string]any) error {
	rules, err := enabledRules(ctx, tx)
	if err != nil {
		return err
	}
	var series []stats.Series
	for _, rule := range rules {
		if rule.Trigger.Metric != auditEvents && rule.Trigger.Metric != sourceAge {
			series = append(series, rule.series())
		}
	}
	if err := stats.Count(ctx, tx, series); err != nil {
		return err
	}
	if err := tx.Notify(ctx, Topic); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), r.entry(kind, what))
}

// apply returns the rule with the change applied.
func (ch Change) apply(r Rule) Rule {
	patch.Assign(&r.Name, ch.Name)
	patch.Assign(&r.Description, ch.Description)
	patch.Assign(&r.Severity, ch.Severity)
	patch.Assign(&r.Enabled, ch.Enabled)
	patch.Assign(&r.Trigger, ch.Trigger)
	if ch.Frequency != nil {
		r.Frequency = ch.Frequency.filled()
	}
	if ch.Channels != nil {
		r.Channels = append([]int64{}, *ch.Channels...)
	}
	return r
}

// changesOf lists the differences between two rules for the audit.
func changesOf(old, next Rule) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("description", old.Description, next.Description)
	out.Note("severity", old.Severity, next.Severity)
	out.Note("enabled", old.Enabled, next.Enabled)
	out.Note("trigger", old.Trigger, next.Trigger)
	out.Note("frequency", old.Frequency, next.Frequency)
	out.Note("channel_ids", old.Channels, next.Channels)
	return out
}

// check normalises and validates a rule that will be stored with an id; 0: a new rule.
func (s *Service) check(ctx context.Context, tx *db.Tx, r *Rule, id int64) error {
	r.Name = strings.TrimSpace(r.Name)
	var wrong []fault.Detail
	add := func(pointer, message string) {
		wrong = append(wrong, fault.Detail{Pointer: pointer, Message: message})
	}
	if r.Name == "" {
		add("/name", "an alert rule needs a name")
	}
	wrong = append(wrong, r.Trigger.offences()...)
	problem, err := s.problem(ctx, tx, *r)
	if err != nil {
		return err
	}
	if problem != "" && r.Enabled {
		add("/trigger/filter", problem)
	}
	slices.Sort(r.Channels)
	r.Channels = slices.Compact(r.Channels)
	missing, err := notify.Missing(ctx, tx, r.Environment, r.Channels)
	if err != nil {
		return err
	}
	for _, channel := range missing {
		add("/channel_ids", "there is no channel "+strconv.FormatInt(channel, 10)+" in this environment")
	}
	if len(wrong) > 0 {
		return invalid(wrong)
	}
	other, err := ruleNamed(ctx, tx, r.Name)
	return db.CheckUnique(other, id, err, "an alert rule named %q already exists", r.Name)
}

func invalid(wrong []fault.Detail) error {
	return fault.CheckValues("the alert rule is not valid", wrong)
}

// offences returns the errors in a condition that need no store.
func (t Trigger) offences() []fault.Detail {
	var wrong []fault.Detail
	decisions := t.Filter
	decisions.EventType, decisions.ConnectionID = "", 0
	if t.Metric == sourceAge && decisions != (Filter{}) {
		wrong = append(wrong, fault.Detail{Pointer: "/trigger/filter", Message: "data_source_age can be filtered by connection_id only"})
	}
	if t.Metric != sourceAge && t.Filter.ConnectionID != 0 {
		wrong = append(wrong, fault.Detail{Pointer: "/trigger/filter/connection_id", Message: "is for data_source_age only"})
	}
	if t.Metric == auditEvents && decisions != (Filter{}) {
		wrong = append(wrong, fault.Detail{Pointer: "/trigger/filter", Message: "audit_event_count can be filtered by event_type only"})
	}
	if t.Metric != auditEvents && t.Filter.EventType != "" {
		wrong = append(wrong, fault.Detail{Pointer: "/trigger/filter/event_type", Message: "is for audit_event_count only"})
	}
	if unit(t.Metric) == " %" && t.Threshold > 100 {
		wrong = append(wrong, fault.Detail{Pointer: "/trigger/threshold", Message: "is a percentage: at most 100"})
	}
	return wrong
}

// problem says which object of the filter does not exist; "": all exist.
func (s *Service) problem(ctx context.Context, tx *db.Tx, r Rule) (string, error) {
	f := r.Trigger.Filter
	if f.ConnectionID != 0 {
		there, err := sourceExists(ctx, tx, f.ConnectionID)
		if err != nil || there {
			return "", err
		}
		return "the data source " + strconv.FormatInt(f.ConnectionID, 10) + " does not exist", nil
	}
	resource, err := strconv.ParseInt(f.ResourceID, 10, 64)
	if err != nil {
		resource = 0 // a name, not an id
	}
	for _, o := range []struct {
		kind string
		id   int64
	}{{"resource", resource}, {"control", f.ControlID}, {"bouncer", f.BouncerID}} {
		if o.id == 0 {
			continue
		}
		there, err := s.Exists(ctx, tx, r.Environment, o.kind, o.id)
		if err != nil {
			return "", err
		}
		if !there {
			return "the " + o.kind + " " + strconv.FormatInt(o.id, 10) + " does not exist in this environment", nil
		}
	}
	return "", nil
}

func (r Rule) entry(kind string, what map[string]any) audit.Entry {
	return audit.Entry{Type: kind, Object: "alert_rule", ObjectID: strconv.FormatInt(r.ID, 10), ObjectName: r.Name, Env: r.Environment, Changes: what}
}

func load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Rule, error) {
	r, err := getRule(ctx, tx, id)
	return db.Found(r, err, sc.Sees(r.Environment), "alert rule")
}

func loadCurrent(ctx context.Context, tx *db.Tx, sc scope.Scope, id, ifChange int64) (Rule, error) {
	r, err := load(ctx, tx, sc, id)
	return fault.Current(r, err, "alert rule", r.ChangeNo, ifChange)
}
