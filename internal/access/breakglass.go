package access

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// The entries of the audit about break-glass grants.
const (
	glassOpened = "BREAK_GLASS_OPENED"
	glassEnded  = "BREAK_GLASS_ENDED"
)

// LongestBreakGlass limits the break-glass grants that people open, in seconds.
const LongestBreakGlass = 24 * 60 * 60

// Opening describes a break-glass grant: one in an emergency, without a request.
type Opening struct {
	Draft
	// By is who opens it, as the system that sends it names them; "": it names nobody.
	By string
	// Longest is the longest grant that the caller may open, in seconds.
	Longest int64
}

// BreakGlass opens a break-glass grant for somebody else. The caller must be a person who may
// decide requests.
func (s *Service) BreakGlass(ctx context.Context, sc scope.Scope, d Draft) (Request, error) {
	if sc.Actor.Kind != scope.Person {
		return Request{}, fault.New(fault.Forbidden, "person_required", "only a person who is signed in can open a break-glass grant")
	}
	self, _, err := s.names(ctx, sc, d.Subject.ID)
	if err != nil {
		return Request{}, err
	}
	if self {
		return Request{}, fault.New(fault.Forbidden, "own_request", "a person cannot open a break-glass grant for themselves")
	}
	return s.Open(ctx, sc, Opening{Draft: d, Longest: LongestBreakGlass}, nil)
}

// Open opens a break-glass grant. If first is not nil, it runs in the transaction before anything
// is written.
func (s *Service) Open(ctx context.Context, sc scope.Scope, o Opening, first func(tx *db.Tx) error) (Request, error) {
	env := sc.EnvOr(scope.Production)
	subject := strings.TrimSpace(o.Subject.ID)
	if o.Subject.Type == "agent" && subject != "" && !scope.NamesAgent(subject) {
		subject = scope.AgentPrefix + subject
	}
	var offences []fault.Detail
	missing := func(pointer, message string, is bool) {
		if is {
			offences = append(offences, fault.Detail{Pointer: pointer, Message: message})
		}
	}
	reason := strings.TrimSpace(o.Reason)
	missing("/subject/id", "say who gets access", subject == "")
	missing("/reason", "a break-glass grant needs a reason", reason == "")
	missing("/duration_seconds", "must be from 1 to "+strconv.FormatInt(o.Longest, 10), o.Duration == nil || *o.Duration < 1 || *o.Duration > o.Longest)
	if err := fault.CheckValues("the break-glass grant is not valid", offences); err != nil {
		return Request{}, err
	}
	known, _, err := s.Person(ctx, sc.Tenant, subject)
	if err != nil {
		return Request{}, err
	}
	asked, err := s.Resource(ctx, sc.Tenant, env, o.Resource.ID)
	if err != nil {
		return Request{}, err
	}
	by := sc.Actor.Name
	if o.By != "" {
		by += ": " + o.By
	}
	now := db.Stamp(s.Now())
	r := Request{
		Environment: env, SubjectID: subject, ResourceID: asked.ID, ResourceName: asked.Name, ResourceType: asked.Type, Action: o.Action.Name, Reason: reason,
		Duration: o.Duration, Status: Pending, RequestedBy: by, CallerKind: string(sc.Actor.Kind), CallerID: sc.Actor.ID, CreatedAt: now, BreakGlass: true,
	}
	err = s.writeAs(ctx, sc, func(tx *db.Tx) error {
		if first != nil {
			if err := first(tx); err != nil {
				return err
			}
		}
		if err := checkPerson(ctx, tx, known); err != nil {
			return err
		}
		if r, err = insert(ctx, tx, r); err != nil {
			return err
		}
		r.DecidedBy, r.DecidedAt = &by, &now
		if err := grant(ctx, tx, &r, now, Approval{Duration: *r.Duration}); err != nil {
			return err
		}
		r, err = s.save(ctx, tx, sc, glassOpened, r)
		return err
	})
	return r, err
}

// EndBy ends a break-glass grant early, for the system that opened it, which is the actor of sc.
// first is as for Open.
func (s *Service) EndBy(ctx context.Context, sc scope.Scope, id int64, by, reason string, first func(tx *db.Tx) error) (Request, error) {
	var r Request
	err := s.Stores.WriteUnder(ctx, sc.Tenant, Lock, func(tx *db.Tx) (err error) {
		if err := first(tx); err != nil {
			return err
		}
		r, err = get(ctx, tx, id)
		if r, err = db.Found(r, err, r.BreakGlass && r.CallerKind == string(sc.Actor.Kind) && r.CallerID == sc.Actor.ID, "break-glass grant"); err != nil {
			return err
		}
		ended := sc.Actor.Name
		if by != "" {
			ended += ": " + by
		}
		if err := r.revoke(ended, reason, db.Stamp(s.Now())); err != nil {
			return err
		}
		r, err = s.save(ctx, tx, sc, glassEnded, r)
		return err
	})
	return r, err
}

// revoke ends a grant early.
func (r *Request) revoke(by, reason string, now time.Time) error {
	if status := r.at(now).Status; status != Approved {
		return fault.Newf(fault.Conflict, "not_granted", "this request is %s, so there is no grant to revoke", status)
	}
	r.Status, r.DecisionReason, r.EndedBy, r.EndedAt = Revoked, reason, &by, &now
	return nil
}

// announceGlass notifies the channels and the tenant's break-glass systems that a break-glass grant
// began or ended.
func (s *Service) announceGlass(ctx context.Context, tx *db.Tx, tenant scope.TenantID, r Request) error {
	ended := r.Status != Approved
	n := notify.Note{
		ID: s.NewID(), Alert: "break_glass", Severity: format.Critical, Env: r.Environment, Fault: "break_glass:" + strconv.FormatInt(r.ID, 10), Resolved: ended,
		Title: "Break-glass access of " + r.SubjectID + " to " + r.ResourceName, Text: r.Reason,
		Facts: []format.Fact{{Name: "action", Value: r.Action}, {Name: "opened by", Value: r.RequestedBy}, {Name: "expires at", Value: r.ExpiresAt.UTC().Format(time.RFC3339)}},
		Path:  r.path(), At: db.Stamp(s.Now()),
	}
	if err := s.Outbox.Broadcast(ctx, tx, tenant, n); err != nil || s.Broken == nil {
		return err
	}
	return s.Broken(ctx, tx, r, ended)
}
