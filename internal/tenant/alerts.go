package tenant

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/event"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// BouncerDisconnected is the type of the alert on a bouncer that is gone; its
// subject is the bouncer's id.
const BouncerDisconnected = "bouncer_disconnected"

// BouncerTrouble is the type of the alert on a bouncer that is in touch and cannot
// keep its decision log, or gets no confirmation of its policy; its subject is the
// bouncer's id.
const BouncerTrouble = "bouncer_trouble"

// The severities of alerts.
const (
	SeverityWarning  = "warning"
	SeverityError    = "error"
	SeverityCritical = "critical"
)

// OpenAlert opens an alert within tx, unless one of its type and subject is open.
func OpenAlert(ctx context.Context, tx *db.Tx, a Alert) error {
	alerts, err := selectOpen(ctx, tx, a.Type, a.Subject)
	if err != nil || len(alerts) > 0 {
		return err
	}
	return open(ctx, tx, a)
}

// open opens an alert, and tells the channels.
func open(ctx context.Context, tx *db.Tx, a Alert) error {
	if err := insertAlert(ctx, tx, a); err != nil {
		return err
	}
	return emit(ctx, tx, event.AlertOpened, a)
}

// resolve ends an open alert, and tells the channels.
func resolve(ctx context.Context, tx *db.Tx, a Alert, at time.Time) error {
	if err := resolveAlert(ctx, tx, a.ID, at); err != nil {
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
	alerts, err := selectOpen(ctx, tx, kind, subject)
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if err := resolve(ctx, tx, a, at); err != nil {
			return err
		}
	}
	return nil
}

// BouncerSubject is the subject of alerts on a bouncer.
func BouncerSubject(id int64) string { return strconv.FormatInt(id, 10) }
