// Package record has what is stored of a simulation: plain values that the simulator writes, and
// that exports show.
package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gatehouse-dev/gatehouse/internal/rego/reason"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Object is a JSON object with any members. Numbers keep their spelling.
type Object struct{ value.Value }

// Schema returns the schema of an open object, for the API's document.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// Actor is the person or client that ran a simulation.
type Actor struct {
	Kind scope.ActorKind `json:"kind" enum:"user,api_key,system" doc:"Person or API key."`
	ID   string          `json:"id" doc:"Id of the user or the key."`
	Name string          `json:"name" doc:"Name of the user or the key."`
}

// Subject is the control that was simulated, as it was at that time.
type Subject struct {
	ID      int64  `json:"id" doc:"Id of the control."`
	Name    string `json:"name" doc:"Its name at the time."`
	Version int64  `json:"version" doc:"Its version at the time."`
	Status  string `json:"status" enum:"enabled,inactive,draft" doc:"Its state at the time; only enabled ones decide live requests."`
}

// Named is the id and name of an object.
type Named struct {
	ID   int64  `json:"id" doc:"Its id."`
	Name string `json:"name" doc:"Its name at the time."`
}

// SourceLine is one line of the control that matters for the decision.
type SourceLine struct {
	Line int    `json:"line" doc:"Line in the source, from 1."`
	Text string `json:"text" doc:"The line."`
	// Outcome is empty for lines that are shown only as context.
	Outcome string `json:"outcome,omitempty" enum:"held,failed,decided" doc:"Result of the condition on this line; decided: the line of the rule itself. Absent for lines that are shown as context."`
}

// Record is what is stored of a run, and what an export shows. It has no secrets and no
// owner_email.
type Record struct {
	Decision        string             `json:"decision" enum:"ALLOW,DENY,MASK,NO_MATCH" doc:"ALLOW; DENY; MASK: granted, with data masked; NO_MATCH: the control does not apply, and the default action is used."`
	Reason          string             `json:"reason" doc:"The reason in words; the control's own reason if it gives one."`
	Trace           []reason.Step      `json:"trace" doc:"The steps of the evaluation; at most 1000."`
	Input           Object             `json:"input_json" doc:"The input as sent."`
	Output          Object             `json:"output_json" doc:"What a PEP would receive: the value of data.gatehouse.decision."`
	ExecutionTimeMS float64            `json:"execution_time_ms" doc:"Evaluation time in milliseconds, without the trace."`
	Timestamp       time.Time          `json:"timestamp" doc:"When it ran, UTC."`
	Explanation     reason.Explanation `json:"explanation" doc:"The rule and line that decided, and the values that it read; for a denial, the nearest rule that would have granted access."`
	// Notes say how a live decision would differ.
	Notes          []string     `json:"notes" doc:"How a live decision would differ, in words; empty if it would not."`
	EvaluatedInput Object       `json:"evaluated_input" doc:"The input as the control read it: completed from the resource and the stored user, as for a live decision."`
	SourceLines    []SourceLine `json:"source_lines" doc:"The lines of the control that took part in the decision."`
	Policy         Subject      `json:"policy" doc:"The control."`
	Resource       *Named       `json:"resource,omitempty" doc:"The resource whose fields completed the input; absent without one."`
	Environment    scope.Env    `json:"environment" enum:"sandbox,production" doc:"The environment."`
	TestType       string       `json:"test_type" enum:"manual,scenario,regression" doc:"The kind of run."`
	Scenario       *Named       `json:"scenario,omitempty" doc:"The scenario that was run; absent when there is none."`
	User           Actor        `json:"user" doc:"Who ran it."`
	// Error is set if the control could not be evaluated, or ran into a limit.
	Error string `json:"error,omitempty" doc:"Why the control could not be evaluated; absent if it could."`
}

// StoredRun is a stored run.
type StoredRun struct {
	ID int64
	// Checksum is that of the record. Intact says whether the record still has it.
	Checksum string
	Intact   bool
	// Text is the record's JSON as stored; Record is the decoded record.
	Text   json.RawMessage
	Record Record
}

// Ordered returns the object with the parts of an input in the order that people expect: user,
// action, resource, context.
func (o Object) Ordered() Object {
	if o.Kind() != value.ObjectKind {
		return o
	}
	first := []string{"user", "action", "resource", "context"}
	var members []value.Member
	for _, key := range first {
		if v := o.Get(key); v.Defined() {
			members = append(members, value.Member{Key: key, Value: v})
		}
	}
	o.Each(func(key string, v value.Value) bool {
		if !slices.Contains(first, key) {
			members = append(members, value.Member{Key: key, Value: v})
		}
		return true
	})
	return Object{value.Object(members...)}
}

// Leaves calls f with the path and the text of each leaf until f returns false. A list of scalars
// counts as one leaf.
func (o Object) Leaves(f func(path, text string) bool) { leaves(o.Value, "", f) }

// leaves calls f for each leaf of v until f returns false. It returns false if f did.
func leaves(v value.Value, path string, f func(path, text string) bool) bool {
	switch {
	case v.Kind() == value.ObjectKind && v.Len() > 0:
		more := true
		v.Each(func(key string, inner value.Value) bool {
			if path != "" {
				key = path + "." + key
			}
			more = leaves(inner, key, f)
			return more
		})
		return more
	case v.Kind() == value.ArrayKind && nested(v):
		for i, inner := range v.Elems() {
			if !leaves(inner, fmt.Sprintf("%s[%d]", path, i), f) {
				return false
			}
		}
		return true
	}
	if path == "" {
		return true
	}
	return f(path, Plain(v))
}

// Plain returns a scalar or a flat list as text for people.
func Plain(v value.Value) string {
	if s, ok := v.Str(); ok {
		return s
	}
	if v.Kind() == value.ArrayKind && v.Len() > 0 && !nested(v) {
		var items []string
		for _, e := range v.Elems() {
			items = append(items, Plain(e))
		}
		return strings.Join(items, ", ")
	}
	return string(v.AppendJSON(nil))
}

func nested(v value.Value) bool {
	for _, e := range v.Elems() {
		if k := e.Kind(); (k == value.ObjectKind || k == value.ArrayKind) && e.Len() > 0 {
			return true
		}
	}
	return false
}
