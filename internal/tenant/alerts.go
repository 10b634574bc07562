package tenant

import (
	"context"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
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
	open, err := selectOpen(ctx, tx, a.Type, a.Subject)
	if err != nil || len(open) > 0 {
		return err
	}
	return insertAlert(ctx, tx, a)
}

// ResolveAlerts ends the open alerts of a type and subject within tx.
func ResolveAlerts(ctx context.Context, tx *db.Tx, kind, subject string, at time.Time) error {
	open, err := selectOpen(ctx, tx, kind, subject)
	if err != nil {
		return err
	}
	for _, a := range open {
		if err := resolveAlert(ctx, tx, a.ID, at); err != nil {
			return err
		}
	}
	return nil
}

// BouncerSubject is the subject of alerts on a bouncer.
func BouncerSubject(id int64) string { return strconv.FormatInt(id, 10) }
