package tenant

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// BouncerDisconnected is the type of the alert about a bouncer that no longer reports; its subject
// is the bouncer's id.
const BouncerDisconnected = "bouncer_disconnected"

// BouncerTrouble is the type of the alert about a connected bouncer that cannot keep its decision
// log, or whose policy is not confirmed; its subject is the bouncer's id.
const BouncerTrouble = "bouncer_trouble"

// The severities of alerts.
const (
	SeverityWarning  = "warning"
	SeverityError    = "error"
	SeverityCritical = "critical"
)

// OpenAlert opens an alert within tx, unless one of its type and subject is already open.
func OpenAlert(ctx context.Context, tx *db.Tx, a Alert) error {
	alerts, err := selectOpen(ctx, tx, a.Type, a.Subject)
	if err != nil || len(alerts) > 0 {
		return err
	}
	return open(ctx, tx, a)
}

// ReplaceAlert opens an alert within tx, unless the same is already open. If one of its type and subject
// says something else, ReplaceAlert ends that one.
func ReplaceAlert(ctx context.Context, tx *db.Tx, a Alert) error {
	alerts, err := selectOpen(ctx, tx, a.Type, a.Subject)
	if err != nil {
		return err
	}
	known := false
	for _, one := range alerts {
		if one.Message == a.Message && one.Severity == a.Severity {
			known = true
			continue
		}
		if err := resolve(ctx, tx, one, a.CreatedAt); err != nil {
			return err
		}
	}
	if known {
		return nil
	}
	return open(ctx, tx, a)
}

// open opens an alert, and notifies the channels.
func open(ctx context.Context, tx *db.Tx, a Alert) error {
	if err := insertAlert(ctx, tx, a); err != nil {
		return err
	}
	return emit(ctx, tx, event.AlertOpened, a)
}

// resolve ends an open alert, and notifies the channels.
func resolve(ctx context.Context, tx *db.Tx, a Alert, at time.Time) error {
	if ended, err := resolveAlert(ctx, tx, a, at); err != nil || !ended {
		return err
	}
	return emit(ctx, tx, event.AlertResolved, a)
}

func emit(ctx context.Context, tx *db.Tx, kind string, a Alert) error {
	sc := scope.Scope{Actor: scope.Actor{Kind: scope.System, ID: "alerts", Name: "alerts"}}
	return event.Emit(ctx, tx, sc, event.Event{Type: kind, Env: a.Env, Data: map[string]any{
		"type": a.Type, "severity": a.Severity, "subject": a.Subject, "message": a.Message,
	}})
}

// ResolveAlerts ends the open alerts of a type and subject within tx.
func ResolveAlerts(ctx context.Context, tx *db.Tx, kind, subject string, at time.Time) error {
	return resolveAlerts(ctx, tx, kind, subject, "", at)
}

// resolveAlerts is ResolveAlerts with the reason, which is added to the messages; empty: the cause of
// the alerts is over.
func resolveAlerts(ctx context.Context, tx *db.Tx, kind, subject, why string, at time.Time) error {
	alerts, err := selectOpen(ctx, tx, kind, subject)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if why != "" {
			a.Message += " (" + why + ")"
		}
		if err := resolve(ctx, tx, a, at); err != nil {
			return err
		}
	}
	return nil
}

// BouncerSubject returns the subject of alerts about a bouncer.
func BouncerSubject(id int64) string { return strconv.FormatInt(id, 10) }
