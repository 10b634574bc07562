// Package event delivers events about changes. Emit writes an event to the tenant's store, in the
// transaction of the change. The Dispatcher delivers each event to each sink, in order, with one
// transaction for each sink:
//
//	change ─┬─ row            one transaction
//	        └─ Emit ─▶ events
//	                     │  Dispatcher, woken by the commit on any replica
//	                     ├─▶ sink "webhooks"       Take + its cursor: one transaction
//	                     └─▶ sink "notifications"  Take + its cursor: one transaction
//
// A sink that only writes to its transaction processes each event exactly once. Other effects, such
// as a message on a socket, may be repeated after a crash. A sink that fails does not delay the
// other sinks.
package event

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The event types that webhooks can subscribe to.
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

// The types of events that only channels receive. Webhooks cannot subscribe to them.
const (
	// FailedLogins reports repeated failed logins to an account.
	FailedLogins = "alert.failed_logins"
	// AlertOpened and AlertResolved report the state of an alert of the tenant.
	AlertOpened   = "alert.opened"
	AlertResolved = "alert.resolved"
)

// Types returns the types that webhooks can subscribe to, in the order of the documentation.
func Types() []string {
	return []string{
		PolicyCreated, PolicyUpdated, PolicyDeleted, PolicyDeployed, PolicyPromoted,
		ResourceCreated, ResourceUpdated, ResourceDeleted,
		UserCreated, UserUpdated, UserDeleted, UserRoleChanged,
		HighDenyRate, Suspicious, BouncerConnected, BouncerGone, SyncCompleted, SyncFailed,
	}
}

// Event is the input of Emit.
type Event struct {
	// Type is one of the event types above.
	Type string
	// ObjectKind, ObjectID and ObjectName become `<kind>_id` and `<kind>_name` in the event's
	// data. A numeric id becomes a number, except that of a user.
	ObjectKind, ObjectID, ObjectName string
	Env                              scope.Env
	// Data has the other members of the event's data, besides object, environment and actor.
	Data map[string]any
}

// Occurrence is an event as sinks and subscribers receive it.
type Occurrence struct {
	// ID identifies the event. It is the same in every delivery.
	ID string `json:"event_id"`
	// Seq is its position in the tenant's outbox. Later events have higher positions.
	Seq       int64          `json:"-"`
	Type      string         `json:"event_type"`
	Timestamp time.Time      `json:"timestamp"`
	Env       scope.Env      `json:"-"`
	Data      map[string]any `json:"data"`
}

// lock is the same lock as audit.Lock, so that a change with an audit entry and an event waits only
// once. It is held until the commit, so positions have the order of commits, and no cursor can skip
// an event that is not committed yet.
const lock = "audit"

// Topic is the name of the notification that a tenant has new events. The Dispatcher listens to it.
const Topic = "events"

// Emit writes events to the outbox, in this order, in the transaction of the change. Like
// audit.Append, call it late in the transaction: the tenant's other changes wait until the commit.
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

// Last returns the position of the tenant's newest event; 0 if there was none. Another transaction
// may add events meanwhile, unless tx has called Emit or audit.Append.
func Last(ctx context.Context, tx *db.Tx) (int64, error) { return cursorOf(ctx, tx, "") }

// data returns the event's data as subscribers receive it: object, environment, actor and Data.
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
	maps.Copy(data, e.Data)
	return data
}

// objectID returns the id as the API shows it: a number if it is numeric, but always text for a
// user.
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

// occurrence converts the row. It derives the event's id from the tenant and the row, so that it
// is the same in every delivery.
func (s stored) occurrence(tenant scope.TenantID) Occurrence {
	sum := sha256.Sum256([]byte(string(tenant) + "\n" + strconv.FormatInt(s.Seq, 10) + "\n" + s.Type + "\n" + strconv.FormatInt(s.At.UnixMicro(), 10)))
	return Occurrence{ID: "evt_" + hex.EncodeToString(sum[:16]), Seq: s.Seq, Type: s.Type, Timestamp: s.At.UTC(), Env: s.Env, Data: s.Data}
}
