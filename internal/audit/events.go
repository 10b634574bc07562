package audit

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Lock is the lock that Append holds until its transaction ends, so that the chain does not fork.
// Package event takes the same lock, so a transaction that uses both waits only once.
const Lock = "audit"

// Append adds entries to the administrative log, in the transaction of the change that they
// describe. It redacts secrets and removes owner_email. Call it late in the transaction: the
// tenant's other changes wait until the commit.
func Append(ctx context.Context, tx *db.Tx, sc scope.Scope, now time.Time, entries ...Entry) error {
	rows := make([]eventRow, len(entries))
	for i, e := range entries {
		changes, err := redactMap(e.Changes)
		eventContext, bad := redactMap(e.EventContext)
		if err = errors.Join(err, bad); err != nil {
			return fault.Wrap(err, "audit: writing changes and the event's context")
		}
		rows[i] = eventRow{
			At: now.UTC().Truncate(time.Microsecond), Type: e.Type, Object: e.Object, ObjectID: cleanText(e.ObjectID), ObjectName: cleanText(e.ObjectName), Environment: string(e.Env),
			ActorKind: string(sc.Actor.Kind), ActorID: cleanText(sc.Actor.ID), ActorName: cleanText(sc.Actor.Name), IPAddress: cleanText(sc.Actor.IP), RequestID: cleanText(sc.RequestID), Changes: changes, EventContext: eventContext,
		}
	}
	if err := tx.Lock(ctx, Lock); err != nil {
		return err
	}
	c, err := loadChain(ctx, tx, EventsChain)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Seq = c.LastSeq + 1
		rows[i].Hash = rows[i].hashAfter(c.Head)
		c.add(rows[i].Seq, rows[i].Hash)
	}
	if err := insertEvents(ctx, tx, rows); err != nil {
		return err
	}
	return saveChain(ctx, tx, c)
}

// WasRecorded reports whether the log has an entry of this type about the object with exactly
// this time, to the microsecond.
func WasRecorded(ctx context.Context, tx *db.Tx, kind, objectID string, at time.Time) (bool, error) {
	n, err := countEntries(ctx, tx, kind, cleanText(objectID), at.UTC().Truncate(time.Microsecond))
	return n > 0, err
}

// cleanText makes a text valid for both backends: PostgreSQL accepts neither NUL nor invalid
// UTF-8.
func cleanText(s string) string {
	return clip(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD"))
}

// EventFilter selects administrative entries; zero members select all.
type EventFilter struct {
	// Start and End limit the time, both inclusive.
	Start, End                      time.Time
	Type, Object, ObjectID, ActorID string
	Environment                     scope.Env
	// Limit is 1..1000; 0 means 100.
	Limit int
	// Cursor is an EventPage's NextCursor.
	Cursor string
}

// EventPage is a page of the administrative log, newest first.
type EventPage struct {
	Events     []Event `json:"events" doc:"The entries, newest first."`
	Total      int64   `json:"total" doc:"Number of entries in the log, before any filter."`
	Filtered   int64   `json:"filtered" doc:"Number of entries that match the filters."`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Send it as cursor to get the next entries; absent on the last page."`
}

// Events returns a page of the administrative log. A credential for one environment sees the
// entries of that environment.
func (rd *Reader) Events(ctx context.Context, sc scope.Scope, f EventFilter) (EventPage, error) {
	limit, err := limitOf(f.Limit)
	if err != nil {
		return EventPage{}, err
	}
	before, err := parseEventCursor(f.Cursor)
	if err != nil {
		return EventPage{}, err
	}
	total := EventFilter{}
	if sc.EnvBound {
		f.Environment, total.Environment = sc.Env, sc.Env
	} else if f.Environment == scope.AnyEnv {
		f.Environment = sc.Env
	}
	page := EventPage{}
	err = rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if sc.EnvBound {
			if _, page.Total, err = eventsPage(ctx, tx, total, 0, 1); err != nil {
				return err
			}
		} else {
			c, err := loadChain(ctx, tx, EventsChain)
			if err != nil {
				return err
			}
			page.Total = c.LastPos - c.FirstPos + 1
		}
		page.Events, page.Filtered, err = eventsPage(ctx, tx, f, before, limit+1)
		return err
	})
	if err != nil {
		return EventPage{}, err
	}
	if len(page.Events) > limit {
		page.Events = page.Events[:limit]
		page.NextCursor = eventCursor(page.Events[limit-1].ID)
	}
	return page, nil
}

func eventCursor(seq int64) string {
	return base64.RawURLEncoding.EncodeToString([]byte("e" + strconv.FormatInt(seq, 36)))
}

func parseEventCursor(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && len(raw) > 1 && raw[0] == 'e' {
		var seq int64
		if seq, err = strconv.ParseInt(string(raw[1:]), 36, 64); err == nil && seq > 0 {
			return seq, nil
		}
	}
	return 0, fault.New(fault.BadRequest, "bad_cursor", "the cursor is not valid")
}
