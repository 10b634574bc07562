package access

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Withdraw ends, within tx, the grants and pending requests of a person who was disabled or
// removed, under all their names. For a removed person it keeps only the audit, so that a later
// person with the same id gets nothing. It is user.Service.Withdraw.
func (s *Service) Withdraw(ctx context.Context, tx *db.Tx, sc scope.Scope, u user.User, removed bool) error {
	why := "the person was disabled"
	if removed {
		why = "the person was removed"
	}
	err := s.withdraw(ctx, tx, sc, why, func(r Request) bool { return r.isFor(u) })
	if err != nil || !removed {
		return err
	}
	return deleteOf(ctx, tx, u.ID)
}

// WithdrawOf ends, within tx, the grants and pending requests of a removed resource, so that they
// do not apply to a later one with the same name. It is resource.Service.Withdraw.
func (s *Service) WithdrawOf(ctx context.Context, tx *db.Tx, sc scope.Scope, resource int64) error {
	return s.withdraw(ctx, tx, sc, "the resource was removed", func(r Request) bool { return r.ResourceID == resource })
}

// WithdrawSubject ends, within tx, the grants and pending requests of a removed subject. It is
// agent.Service.Withdraw.
func (s *Service) WithdrawSubject(ctx context.Context, tx *db.Tx, sc scope.Scope, subject string) error {
	return s.withdraw(ctx, tx, sc, "the agent was removed", func(r Request) bool { return r.SubjectID == subject })
}

// withdraw ends the matching requests and grants.
func (s *Service) withdraw(ctx context.Context, tx *db.Tx, sc scope.Scope, why string, match func(Request) bool) error {
	if err := tx.Lock(ctx, Lock); err != nil {
		return err
	}
	all, err := selectOpen(ctx, tx)
	if err != nil {
		return err
	}
	var (
		entries []audit.Entry
		settled []Request
	)
	for _, r := range all {
		if !match(r) {
			continue
		}
		event := r.end(sc.Actor.Name, why, db.Stamp(s.Now()))
		if r, err = update(ctx, tx, r); err != nil {
			return err
		}
		if r.ExpiresAt != nil {
			if err := noteChange(ctx, tx, r.Environment); err != nil {
				return err
			}
		}
		if event == eventDenied || event == eventLapsed {
			settled = append(settled, r)
		}
		entries = append(entries, r.entry(event, map[string]any{"subject_id": r.SubjectID, "action": r.Action, "reason": why}))
	}
	if len(entries) == 0 {
		return nil
	}
	if err := s.announceEnd(ctx, tx, sc.Tenant, settled...); err != nil {
		return err
	}
	return audit.Append(ctx, tx, sc, s.Now(), entries...)
}

// isFor reports whether a person filed a request, or is its subject, by id, user name or address.
func (r Request) isFor(u user.User) bool {
	folded := user.Fold(r.SubjectID)
	return r.SubjectID == u.ID || folded == user.Fold(u.Username) || folded == user.Fold(u.Email) || r.CallerKind == string(scope.Person) && r.CallerID == u.ID
}

// end ends a request or grant, and returns the name of the event.
func (r *Request) end(by, why string, now time.Time) string {
	if r.isExpired(now) {
		r.Status, r.EndedAt = Expired, r.LapsesAt
		return eventLapsed
	}
	switch r.at(now).Status {
	case Pending:
		r.Status, r.DecidedBy, r.DecidedAt, r.DecisionReason = Denied, &by, &now, why
		return eventDenied
	case Approved:
		r.Status, r.EndedBy, r.EndedAt, r.DecisionReason = Revoked, &by, &now, why
		return "ACCESS_REVOKED"
	default:
		r.Status, r.EndedAt = Expired, r.ExpiresAt
		return "ACCESS_EXPIRED"
	}
}
