// Package event tells others what happened. Emit writes an event into the
// tenant's own store, in the transaction of the change; the Dispatcher hands
// each event to each sink, in order, in a transaction of the sink's own:
//
//	change ─┬─ row            one transaction
//	        └─ Emit ─▶ events
//	                     │  Dispatcher, woken by the commit on any replica
//	                     ├─▶ sink "webhooks"  Take + its cursor: one transaction
//	                     └─▶ sink "alerts"    Take + its cursor: one transaction
//
// A sink that only writes to the tx that it is given takes each event exactly
// once; what it does beside that, such as pushing to a socket, it may do again
// after a crash. A sink that fails holds up nobody but itself.
package event

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The event types that can be subscribed to (specification, "Webhook
// subscription events").
const (
	PolicyCreated    = "policy.created"
	PolicyUpdated    = "policy.updated"
	PolicyDeleted    = "policy.deleted"
	PolicyDeployed   = "policy.deployed"
	PolicyPromoted   = "policy.promoted"
	ResourceCreated  = "resource.created"
	ResourceUpdated  = "resource.updated"
	ResourceDeleted  = "resource.deleted"
	UserCreated      = "user.created"
	UserUpdated      = "user.updated"
	UserDeleted      = "user.deleted"
	UserRoleChanged  = "user.role_changed"
	HighDenyRate     = "decision.high_deny_rate"
	Suspicious       = "decision.suspicious_pattern"
	BouncerConnected = "bouncer.connected"
	BouncerGone      = "bouncer.disconnected"
	SyncCompleted    = "policy-bridge.sync_completed"
	SyncFailed       = "policy-bridge.sync_failed"
)

// The types of events that nobody can subscribe to: they are for channels.
const (
	// FailedLogins tells of an account whose password was guessed at.
	FailedLogins = "alert.failed_logins"
	// AlertOpened and AlertResolved tell of an alert of the tenant.
	AlertOpened   = "alert.opened"
	AlertResolved = "alert.resolved"
)

// Types lists every type that can be subscribed to, in the specification's order.
func Types() []string {
	return []string{
		PolicyCreated, PolicyUpdated, PolicyDeleted, PolicyDeployed, PolicyPromoted,
		ResourceCreated, ResourceUpdated, ResourceDeleted,
		UserCreated, UserUpdated, UserDeleted, UserRoleChanged,
		HighDenyRate, Suspicious, BouncerConnected, BouncerGone, SyncCompleted, SyncFailed,
	}
}

// Event is what happened, as its author tells it.
type Event struct {
	// Type is one of Types.
	Type string
	// ObjectKind, ObjectID and ObjectName become `<kind>_id` and `<kind>_name`
	// in the event's data. An id that is a number stays one, but for a user's.
	ObjectKind, ObjectID, ObjectName string
	Env                              scope.Env
	// Data is what belongs to the event beside object, environment and actor.
	Data map[string]any
}

// Occurrence is an event as sinks get it and subscribers see it.
type Occurrence struct {
	// ID is the same however often the event is handed over.
	ID string `json:"event_id"`
	// Seq is its position in the tenant's outbox: it only grows.
	Seq       int64          `json:"-"`
	Type      string         `json:"event_type"`
	Timestamp time.Time      `json:"timestamp"`
	Env       scope.Env      `json:"-"`
	Data      map[string]any `json:"data"`
}

// lock is audit.Lock: a change that is audited and emitted waits once. Under it
// positions are given out in the order of commits, so no cursor passes a row
// that is not there yet.
const lock = "audit"

// Topic is what the Dispatcher listens to: a Notify of this name tells that a
// tenant has new events.
const Topic = "events"

// Emit writes events into the outbox, in their order, in the transaction of the
// change. Like audit.Append it belongs near the end of the transaction.
func Emit(ctx context.Context, tx *db.Tx, sc scope.Scope, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	rows := make([]stored, len(events))
	for i, e := range events {
		rows[i] = stored{At: tx.Now(), Type: e.Type, Env: e.Env, Data: e.data(sc)}
	}
	if err := tx.Lock(ctx, lock); err != nil {
		return err
	}
	if err := insertEvents(ctx, tx, rows); err != nil {
		return err
	}
	return tx.Notify(ctx, Topic)
}

// Last is the position of the tenant's newest event; 0 before the first. Only a
// transaction that has called Emit or audit.Append sees one that stays the newest
// until it ends.
func Last(ctx context.Context, tx *db.Tx) (int64, error) { return cursorOf(ctx, tx, "") }

// data is what subscribers see of the event: object, environment, actor and its own.
func (e Event) data(sc scope.Scope) map[string]any {
	data := make(map[string]any, len(e.Data)+4)
	if e.ObjectKind != "" {
		data[e.ObjectKind+"_id"] = objectID(e)
		data[e.ObjectKind+"_name"] = e.ObjectName
	}
	if e.Env != scope.AnyEnv {
		data["environment"] = string(e.Env)
	}
	data["actor"] = map[string]any{"kind": string(sc.Actor.Kind), "id": sc.Actor.ID, "name": sc.Actor.Name}
	for k, v := range e.Data {
		data[k] = v
	}
	return data
}

// objectID is the id as the API shows it: a user's is text, also one of digits.
func objectID(e Event) any {
	if n, err := strconv.ParseInt(e.ObjectID, 10, 64); err == nil && strconv.FormatInt(n, 10) == e.ObjectID && e.ObjectKind != "user" {
		return n
	}
	return e.ObjectID
}

// stored is one row of the outbox.
type stored struct {
	Seq  int64          `db:"seq"`
	At   time.Time      `db:"at"`
	Type string         `db:"type"`
	Env  scope.Env      `db:"environment"`
	Data map[string]any `db:"data"`
}

// occurrence gives the event its lasting id: a function of where it stands.
func (s stored) occurrence(tenant scope.TenantID) Occurrence {
	sum := sha256.Sum256([]byte(string(tenant) + "\n" + strconv.FormatInt(s.Seq, 10) + "\n" + s.Type + "\n" + strconv.FormatInt(s.At.UnixMicro(), 10)))
	return Occurrence{ID: "evt_" + hex.EncodeToString(sum[:16]), Seq: s.Seq, Type: s.Type, Timestamp: s.At.UTC(), Env: s.Env, Data: s.Data}
}
