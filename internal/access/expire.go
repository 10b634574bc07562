package access

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// atOnce limits the ends that one transaction records.
const atOnce = 100

// Expire records which grants of a tenant have ended, and which requests were not decided in time.
// Decisions do not depend on it.
func (s *Service) Expire(ctx context.Context, sc scope.Scope) error {
	for _, end := range []struct {
		due    func(ctx context.Context, tx *db.Tx, now time.Time) ([]Request, error)
		record func(ctx context.Context, tx *db.Tx, sc scope.Scope, ended []Request) error
	}{{selectEnded, s.endGrants}, {selectExpired, s.expire}} {
		for more := true; more; {
			now := db.Stamp(s.Now())
			var due []Request
			err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
				due, err = end.due(ctx, tx, now)
				return err
			})
			if err != nil {
				return err
			}
			if len(due) == 0 {
				break
			}
			err = s.Stores.WriteUnder(ctx, sc.Tenant, Lock, func(tx *db.Tx) error {
				ended, err := end.due(ctx, tx, now)
				if err != nil || len(ended) == 0 {
					return err
				}
				more = len(ended) == atOnce
				return end.record(ctx, tx, sc, ended)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// endGrants records that grants have ended.
func (s *Service) endGrants(ctx context.Context, tx *db.Tx, sc scope.Scope, ended []Request) error {
	var entries []audit.Entry
	for _, r := range ended {
		r.Status, r.EndedAt = Expired, r.ExpiresAt
		r, err := update(ctx, tx, r)
		if err != nil {
			return err
		}
		event := "ACCESS_EXPIRED"
		if r.BreakGlass {
			event = glassEnded
			if err := s.announceGlass(ctx, tx, sc.Tenant, r); err != nil {
				return err
			}
		}
		entries = append(entries, r.entry(event, map[string]any{"subject_id": r.SubjectID, "action": r.Action, "expires_at": r.ExpiresAt.UTC().Format(time.RFC3339)}))
	}
	return audit.Append(ctx, tx, sc, s.Now(), entries...)
}

// expire records that requests were not decided in time.
func (s *Service) expire(ctx context.Context, tx *db.Tx, sc scope.Scope, ended []Request) error {
	var entries []audit.Entry
	for i, r := range ended {
		r.Status, r.EndedAt = Expired, r.LapsesAt
		r, err := update(ctx, tx, r)
		if err != nil {
			return err
		}
		ended[i] = r
		entries = append(entries, r.entry(eventLapsed, map[string]any{"subject_id": r.SubjectID, "action": r.Action, "lapses_at": r.LapsesAt.UTC().Format(time.RFC3339)}))
	}
	if err := s.announceEnd(ctx, tx, sc.Tenant, ended...); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), entries...)
}
