package policy

import (
	"context"
	"maps"
	"reflect"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/patch"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// step describes one change of a control, for its version, its audit entry and its event.
type step struct {
	// verb is created, updated, promoted, deleted, erased or restored. note is stored with the
	// version.
	verb, note string
	// extra is added to the audit entry and the event.
	extra map[string]any
	// together means that the change is one of several, and that the caller checks the users of
	// libraries after the last one.
	together bool
	// superseded are the policies that the change replaces, as they were before.
	superseded []Policy
	// at is the time of the change. It is set if several changes must have the same time; zero
	// means now.
	at time.Time
}

// The types of the audit entry and of the event for each verb.
var (
	auditTypes = map[string]string{
		"created": "POLICY_CREATED", "updated": "POLICY_UPDATED", "promoted": "POLICY_PROMOTED",
		"deleted": "POLICY_DELETED", "erased": "POLICY_DELETED", "restored": "POLICY_RESTORED",
	}
	eventTypes = map[string]string{
		"created": "policy.created", "updated": "policy.updated", "promoted": "policy.promoted",
		"deleted": "policy.deleted", "erased": "policy.deleted", "restored": "policy.updated",
	}
)

// record checks that all users of libraries still compile after a change from old (zero for a
// create) to next. Then it increments the revision of each environment that the change affects,
// and writes the version, the audit entry, the event, and the event policy.deployed if the control
// became active.
func (s *Service) record(ctx context.Context, tx *db.Tx, sc scope.Scope, old, next Policy, st step) error {
	if !st.together {
		if err := s.checkUses(ctx, tx, sc, old, next, st.superseded...); err != nil {
			return err
		}
	}
	now, id := st.at, strconv.FormatInt(next.ID, 10)
	if now.IsZero() {
		now = s.Now()
	}
	since, err := bump(ctx, tx, old, next)
	if err != nil {
		return err
	}
	if st.verb != "erased" {
		if err := insertVersion(ctx, tx, next, st.verb, st.note, actor(sc), now, since); err != nil {
			return err
		}
	}
	changes := changesOf(old, next)
	maps.Copy(changes, st.extra)
	changes["version"] = next.Version
	err = audit.Append(ctx, tx, sc, now, audit.Entry{
		Type: auditTypes[st.verb], Object: "policy", ObjectID: id, ObjectName: next.Name, Env: next.Environment, Changes: changes,
	})
	if err != nil {
		return err
	}
	events := []event.Event{{Type: eventTypes[st.verb], Data: summary(changes)}}
	if next.live() && !old.live() && st.verb != "promoted" {
		events = append(events, event.Event{Type: "policy.deployed", Data: map[string]any{"deployed_by": actor(sc), "version": next.Version}})
	}
	for _, e := range events {
		e.ObjectKind, e.ObjectID, e.ObjectName, e.Env = "policy", id, next.Name, next.Environment
		if err := event.Emit(ctx, tx, sc, e); err != nil {
			return err
		}
	}
	return nil
}

// bump increments the revision of each environment that a change affects, records for
// ControlsSince which policy changed, and returns the new revisions.
func bump(ctx context.Context, tx *db.Tx, old, next Policy) (since revisions, err error) {
	// Controls of sandbox may import libraries of production.
	other := old.Environment
	if next.Kind == KindLibrary && next.Environment == scope.Production {
		other = scope.Sandbox
	}
	for _, env := range []scope.Env{other, next.Environment} {
		if at := since.in(env); at != nil && *at == nil {
			revision, err := tx.Bump(ctx, resource.Revision(env))
			if err != nil {
				return since, err
			}
			if err := recordChange(ctx, tx, env, revision, next.ID); err != nil {
				return since, err
			}
			*at = &revision
		}
	}
	return since, nil
}

// live reports whether the control decides.
func (p Policy) live() bool { return p.Status == Active && p.DeletedAt == nil }

// changesOf returns the members that differ, with their old and new values. Of rego_code it returns
// only that it differs, of test_cases only their numbers, and how many recorded ones changed.
func changesOf(old, next Policy) map[string]any {
	out := patch.Differences{}
	out.Note("name", old.Name, next.Name)
	out.Note("description", old.Description, next.Description)
	out.Note("status", old.Status, next.Status)
	out.Note("environment", old.Environment, next.Environment)
	out.Note("resource_id", deref(old.ResourceID), deref(next.ResourceID))
	out.Note("bouncer_id", deref(old.BouncerID), deref(next.BouncerID))
	if old.RegoCode != next.RegoCode {
		out["rego_code"] = map[string]any{"changed": true}
	}
	if len(old.TestCases)+len(next.TestCases) > 0 && !reflect.DeepEqual(old.TestCases, next.TestCases) {
		cases := map[string]any{"from": len(old.TestCases), "to": len(next.TestCases)}
		if recorded := recordedChanges(old.TestCases, next.TestCases); recorded != nil {
			cases["recorded"] = recorded
		}
		out["test_cases"] = cases
	}
	if len(old.Actions)+len(next.Actions) > 0 && !reflect.DeepEqual(old.Actions, next.Actions) {
		out["actions"] = map[string]any{"from": old.Actions, "to": next.Actions}
	}
	return out
}

// summary returns the data of an event about a change: the version and the names of the changed
// members, without their values.
func summary(changes map[string]any) map[string]any {
	members := make([]string, 0, len(changes))
	out := map[string]any{"version": changes["version"]}
	for _, k := range []string{"name", "description", "status", "environment", "rego_code", "test_cases", "actions", "resource_id", "bouncer_id"} {
		if _, ok := changes[k]; ok {
			members = append(members, k)
		}
	}
	out["changed"] = members
	for _, k := range []string{"superseded_by", "supersedes"} {
		if v, ok := changes[k]; ok {
			out[k] = v
		}
	}
	return out
}

func deref(id *int64) any {
	if id == nil {
		return nil
	}
	return *id
}
