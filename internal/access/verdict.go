package access

import (
	"context"
	"errors"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Verdict is the decision of a tenant's approval system on a request.
type Verdict struct {
	Approved bool
	// By is who decided, as the system names them; "": it names nobody.
	By     string
	Reason string
	// Seconds is how long the grant lasts; 0: as long as it may.
	Seconds int64
	// Longest is the longest grant that the system may give, in seconds.
	Longest int64
}

// MayDecide returns Forbidden if a verdict comes from the person who requested access or gets it,
// under any of their names.
func (s *Service) MayDecide(ctx context.Context, tenant scope.TenantID, id int64, by string) error {
	if by == "" {
		return nil
	}
	var r Request
	err := s.Stores.Read(ctx, tenant, func(tx *db.Tx) (err error) {
		r, err = get(ctx, tx, id)
		return err
	})
	if err != nil {
		return decidedFault(err)
	}
	decider, _, err := s.Person(ctx, tenant, by)
	if err != nil {
		return err
	}
	for _, own := range []string{r.SubjectID, r.RequestedBy, r.CallerID} {
		if own == "" {
			continue
		}
		person, _, err := s.Person(ctx, tenant, own)
		if err != nil {
			return err
		}
		if strings.EqualFold(by, own) || decider != "" && decider == person {
			return fault.New(fault.Forbidden, "own_request", "a person cannot decide their own request for access")
		}
	}
	return nil
}

// DecideBy records the verdict of an approval system, which is the actor of sc, in the transaction
// of that system's answer. A grant never exceeds what was requested, or what the system may grant.
// Call MayDecide first.
func (s *Service) DecideBy(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64, v Verdict) error {
	if err := tx.Lock(ctx, Lock); err != nil {
		return err
	}
	r, err := get(ctx, tx, id)
	if err != nil {
		return decidedFault(err)
	}
	now := db.Stamp(s.Now())
	if err := r.checkPending(now); err != nil {
		return err
	}
	by := sc.Actor.Name
	if v.By != "" {
		by += ": " + v.By
	}
	r.DecidedBy, r.DecidedAt = &by, &now
	if !v.Approved {
		r.Status, r.DecisionReason = Denied, v.Reason
		_, err := s.save(ctx, tx, sc, eventDenied, r)
		return err
	}
	longest := v.Longest
	if r.Duration != nil {
		longest = min(longest, *r.Duration)
	}
	if v.Seconds > longest {
		return fault.Invalidf("/duration_seconds", "at most %d seconds were requested or may be granted", longest)
	}
	if v.Seconds == 0 {
		v.Seconds = longest
	}
	if err := grant(ctx, tx, &r, now, Approval{Duration: v.Seconds, Reason: v.Reason}); err != nil {
		return err
	}
	_, err = s.save(ctx, tx, sc, eventApproved, r)
	return err
}

// decidedFault returns Conflict "already_decided" if the request no longer exists.
func decidedFault(err error) error {
	if errors.Is(err, db.ErrNoRows) {
		return fault.New(fault.Conflict, "already_decided", "this request for access no longer exists")
	}
	return err
}
