// Package alert evaluates tenants' rules. A Rule compares a metric with a threshold, and tells
// notification channels when the metric passes the threshold and when it no longer does. Rules read
// roll-ups; decisions do not wait for them.
//
//	Evaluator, one replica ─▶ each minute, or every five ─▶ value of the metric over the window
//	   holds, and neither cooldown nor the day's maximum is in the way ─▶ CUSTOM_ALERT_FIRED, message
//	   held before, holds no more ─▶ CUSTOM_ALERT_RESOLVED, message
//
// The new state of a rule, its audit entry and its messages are stored in one transaction.
package alert

import (
	"cmp"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The limit on rules, and the defaults of Frequency, in seconds and firings a day.
const (
	// MaxRules is the largest number of rules of a tenant.
	MaxRules        = 50
	defaultWindow   = 5 * 60
	defaultCooldown = 60 * 60
	defaultFires    = 10
)

// Filter restricts what a rule counts. Absent members do not restrict it.
type Filter struct {
	ResourceID string `json:"resource_id,omitempty" maxLength:"500" doc:"Only decisions on this resource: its id, or the name that callers use if it is not registered." example:"42"`
	ControlID  int64  `json:"control_id,omitempty" minimum:"1" doc:"Only decisions that this control made."`
	BouncerID  int64  `json:"bouncer_id,omitempty" minimum:"1" doc:"Only decisions of this bouncer."`
	SubjectID  string `json:"subject_id,omitempty" maxLength:"500" doc:"Only decisions about this subject: a user or an agent."`
	// ConnectionID is only for data_source_age.
	ConnectionID int64  `json:"connection_id,omitempty" minimum:"1" doc:"For data_source_age: only this data source; absent: all that are synced on a schedule."`
	EventType    string `json:"event_type,omitempty" maxLength:"100" doc:"For audit_event_count: only entries of this type." example:"POLICY_UPDATED"`
}

// Trigger is the condition of a rule.
type Trigger struct {
	Metric    string  `json:"metric" enum:"denial_rate,error_rate,mask_rate,decision_count,denial_count,error_count,latency_avg,latency_p50,latency_p95,latency_p99,audit_event_count,data_source_age" doc:"What is measured over the window. Rates are percentages of the decisions, latencies milliseconds of evaluation; both have no value, and the condition does not hold, without decisions. data_source_age is in seconds, at the end of the window." example:"denial_rate"`
	Filter    Filter  `json:"filter,omitzero" doc:"What is counted; absent: all of the environment."`
	Operator  string  `json:"operator" enum:">,>=,==" doc:"How the value is compared with the threshold."`
	Threshold float64 `json:"threshold" minimum:"0" maximum:"1000000000000" doc:"The threshold." example:"20"`
}

// Frequency says over which window a rule computes its metric, and how often it may fire.
type Frequency struct {
	Window   int  `json:"evaluation_window_seconds,omitempty" minimum:"60" maximum:"86400" doc:"Length of the time that is measured, in seconds, rounded up to minutes; 300 by default. Up to an hour it is evaluated each minute, else every 5 minutes, as audit_event_count is."`
	Cooldown *int `json:"cooldown_seconds,omitempty" minimum:"0" maximum:"604800" doc:"While the condition holds, the rule fires again after this time, in seconds; 3600 by default."`
	MaxFires int  `json:"max_fires_per_day,omitempty" minimum:"1" maximum:"1000" doc:"How often it fires in a day (UTC), 10 by default."`
}

// window returns the window, rounded up to whole minutes.
func (f Frequency) window() time.Duration {
	return (time.Duration(f.Window)*time.Second + time.Minute - 1).Truncate(time.Minute)
}

func (f Frequency) cooldown() time.Duration { return time.Duration(*f.Cooldown) * time.Second }

// filled returns f with defaults filled in.
func (f Frequency) filled() Frequency {
	f.Window = cmp.Or(f.Window, defaultWindow)
	if f.Cooldown == nil {
		cooldown := defaultCooldown
		f.Cooldown = &cooldown
	}
	f.MaxFires = cmp.Or(f.MaxFires, defaultFires)
	return f
}

// Rule is an alert rule.
type Rule struct {
	ID          int64     `json:"id" db:"id" doc:"Identifier."`
	Name        string    `json:"name" db:"name" doc:"Name, unique." example:"many denials of payments"`
	Description string    `json:"description" db:"description" doc:"Description, for the people who read its messages."`
	Environment scope.Env `json:"environment" db:"environment" enum:"sandbox,production" doc:"The environment that it watches."`
	Severity    string    `json:"severity" db:"severity" enum:"info,warning,error,critical" doc:"Severity of its messages."`
	Enabled     bool      `json:"enabled" db:"enabled" doc:"Whether it is evaluated."`
	Trigger     Trigger   `json:"trigger" db:"condition" doc:"The condition."`
	Frequency   Frequency `json:"frequency" db:"frequency" doc:"How often it is evaluated, and how often it may fire."`
	Channels    []int64   `json:"channel_ids" db:"channels" doc:"The channels that get its messages, from their severity thresholds on; empty: all of the environment."`
	Problem     string    `json:"problem" db:"-" doc:"Why it can never fire, such as a deleted resource; empty: it can."`
	CreatedBy   string    `json:"created_by" db:"created_by" doc:"Who created it."`
	CreatedAt   time.Time `json:"created_at" db:"created_at" doc:"When it was created."`
	UpdatedAt   time.Time `json:"updated_at" db:"updated_at" doc:"When it was last changed by a person."`

	Firing      bool       `json:"firing" db:"firing" doc:"Whether it is firing: its condition has held since it fired."`
	Value       *float64   `json:"last_value" db:"value" doc:"The value at the last evaluation; null: there was none."`
	EvaluatedAt *time.Time `json:"last_evaluated_at" db:"evaluated_at" doc:"When it was last evaluated; null: never."`
	FiredAt     *time.Time `json:"last_fired_at" db:"fired_at" doc:"When it last fired; null: never."`
	Day         int64      `json:"-" db:"day"`
	Fires       int        `json:"-" db:"fires_in_day"`

	// ChangeNo is the ETag. Changes by people increase it; evaluations do not.
	ChangeNo int64 `json:"-" db:"change_no"`
}

// Draft is the input of Create and Preview.
type Draft struct {
	Name        string    `json:"name" minLength:"1" maxLength:"200" doc:"Name, unique." example:"many denials of payments"`
	Description string    `json:"description,omitempty" maxLength:"2000" doc:"Description, for the people who read its messages."`
	Environment scope.Env `json:"environment,omitempty" enum:"sandbox,production" doc:"The environment that it watches; sandbox by default."`
	Severity    string    `json:"severity,omitempty" enum:"info,warning,error,critical" doc:"Severity of its messages; warning by default."`
	Enabled     *bool     `json:"enabled,omitempty" doc:"Whether it is evaluated; true by default."`
	Trigger     Trigger   `json:"trigger" doc:"The condition."`
	Frequency   Frequency `json:"frequency,omitzero" doc:"How often it is evaluated, and how often it may fire."`
	Channels    []int64   `json:"channel_ids,omitempty" maxItems:"50" doc:"The channels that get its messages, from their severity thresholds on; absent: all of the environment."`
}

// Change is the input of Update. Only the members that are sent change.
type Change struct {
	Name        *string    `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name, unique."`
	Description *string    `json:"description,omitempty" maxLength:"2000" doc:"Description, for the people who read its messages."`
	Severity    *string    `json:"severity,omitempty" enum:"info,warning,error,critical" doc:"Severity of its messages."`
	Enabled     *bool      `json:"enabled,omitempty" doc:"Whether it is evaluated."`
	Trigger     *Trigger   `json:"trigger,omitempty" doc:"The condition; replaces all of it."`
	Frequency   *Frequency `json:"frequency,omitempty" doc:"How often it is evaluated, and how often it may fire; replaces all of it."`
	Channels    *[]int64   `json:"channel_ids,omitempty" maxItems:"50" doc:"The channels that get its messages; empty: all of the environment."`
}

// Page is one page of the rules, sorted by id.
type Page struct {
	Rules []Rule `json:"alert_rules" doc:"The page, sorted by id."`
	Total int64  `json:"total" doc:"How many there are."`
}

// rule returns the rule of a draft, with defaults filled in.
func (d Draft) rule() Rule {
	r := Rule{
		Name: d.Name, Description: d.Description, Severity: d.Severity, Enabled: d.Enabled == nil || *d.Enabled, Trigger: d.Trigger,
		Frequency: d.Frequency.filled(), Channels: d.Channels, ChangeNo: 1,
	}
	r.Severity = cmp.Or(r.Severity, format.Warning)
	if r.Channels == nil {
		r.Channels = []int64{}
	}
	return r
}
