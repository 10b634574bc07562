package access

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/notify"
	"github.com/gatehouse-dev/gatehouse/internal/notify/format"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// RequestedResource is the resource that a request names.
type RequestedResource struct {
	ID         int64
	Name, Type string
	// Requestable is true if the resource or a control says that access may be requested.
	Requestable bool
}

// Service has the use cases of requests and grants.
type Service struct {
	Stores *db.Cluster
	Now    func() time.Time
	NewID  func() string
	// Outbox notifies the channels.
	Outbox notify.Outbox
	// Resource finds a resource by its id or name; a NotFound fault: there is none.
	Resource func(ctx context.Context, tenant scope.TenantID, env scope.Env, name string) (RequestedResource, error)
	// Person returns the id of the person whom a subject names, and the id, user name or address
	// as the account spells it; "": nobody.
	Person func(ctx context.Context, tenant scope.TenantID, subject string) (id, spelling string, err error)
	// Agent returns NotFound for an AI agent that was removed or is inactive; nil: none is.
	Agent func(ctx context.Context, tx *db.Tx, subject string) error
	// Filed hands a new request to the tenant's approval systems, in its transaction; nil: there
	// are none.
	Filed func(ctx context.Context, tx *db.Tx, r Request) error
	// Ended tells the tenant's approval systems that requests need no decision any more, in the
	// transaction that ended them; nil: there are none.
	Ended func(ctx context.Context, tx *db.Tx, tenant scope.TenantID, ended ...Request) error
	// Broken tells the tenant's break-glass systems that a break-glass grant began or ended, in
	// its transaction; nil: there are none.
	Broken func(ctx context.Context, tx *db.Tx, r Request, ended bool) error
}

// The audit events of decided requests.
const (
	eventApproved = "ACCESS_APPROVED"
	eventDenied   = "ACCESS_DENIED"
	// Those of requests that ended without a decision.
	eventWithdrawn = "ACCESS_WITHDRAWN"
	eventLapsed    = "ACCESS_LAPSED"
)

// Lock is the name of the lock (db.Tx.Lock) that is held while requests change, so that counts and
// states are consistent. Acquire it before rows that change with a request.
const Lock = "access"

const (
	// Approving is the permission to decide requests, seeing to read those of others.
	Approving scope.Permission = "resources:write"
	seeing    scope.Permission = "audit:read"
)

// List returns one page of the requests that the caller may read.
func (s *Service) List(ctx context.Context, sc scope.Scope, f Filter, own bool) (Page, error) {
	if own || !seesAll(sc) {
		f.kind, f.id = string(sc.Actor.Kind), sc.Actor.ID
	}
	f.Env = sc.Env
	var page Page
	now := s.Now()
	err := s.Stores.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		if page.Total, err = count(ctx, tx, f, now); err != nil {
			return err
		}
		page.Requests, err = list(ctx, tx, f, now)
		return err
	})
	for i := range page.Requests {
		page.Requests[i] = page.Requests[i].at(now)
	}
	return page, err
}

// Get returns one request that the caller may read.
func (s *Service) Get(ctx context.Context, sc scope.Scope, id int64) (Request, error) {
	r, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (Request, error) { return load(ctx, tx, sc, id) })
	return r.at(s.Now()), err
}

// File files a request.
func (s *Service) File(ctx context.Context, sc scope.Scope, d Draft) (Request, error) {
	env := sc.EnvOr(scope.Production)
	subject, err := s.subject(ctx, sc, d)
	if err != nil {
		return Request{}, err
	}
	known, _, err := s.Person(ctx, sc.Tenant, subject)
	if err != nil {
		return Request{}, err
	}
	asked, err := s.Resource(ctx, sc.Tenant, env, d.Resource.ID)
	if err != nil {
		return Request{}, err
	}
	if !asked.Requestable {
		return Request{}, fault.New(fault.Forbidden, "not_requestable", "access to this resource cannot be requested: neither its attribute request_access nor the annotation of a control says so")
	}
	r := Request{
		Environment: env, SubjectID: subject, ResourceID: asked.ID, ResourceName: asked.Name, ResourceType: asked.Type, Action: d.Action.Name,
		Reason: strings.TrimSpace(d.Reason), Status: Pending, RequestedBy: sc.Actor.Name, Duration: d.Duration, CallerKind: string(sc.Actor.Kind), CallerID: sc.Actor.ID,
	}
	if r.Reason == "" {
		return Request{}, fault.Invalidf("/reason", "a request needs a reason")
	}
	err = s.writeAs(ctx, sc, func(tx *db.Tx) error {
		r.CreatedAt = db.Stamp(s.Now())
		if sc.Actor.Kind == scope.Agent && s.Agent != nil {
			if err := s.Agent(ctx, tx, sc.Actor.ID); err != nil {
				return err
			}
		}
		if err := checkPerson(ctx, tx, known); err != nil {
			return err
		}
		if err := checkResource(ctx, tx, r); err != nil {
			return err
		}
		if err := checkRoom(ctx, tx, r); err != nil {
			return err
		}
		settings, err := tenant.SettingsIn(ctx, tx)
		if err != nil {
			return err
		}
		lapses := r.CreatedAt.Add(settings.AccessRequestLife())
		r.LapsesAt = &lapses
		if r, err = insert(ctx, tx, r); err != nil {
			return err
		}
		if err := s.Outbox.Broadcast(ctx, tx, sc.Tenant, s.note(r)); err != nil {
			return err
		}
		if s.Filed != nil {
			if err := s.Filed(ctx, tx, r); err != nil {
				return err
			}
		}
		return audit.Append(ctx, tx, sc, s.Now(), r.entry("ACCESS_REQUESTED", map[string]any{"subject_id": r.SubjectID, "action": r.Action, "reason": r.Reason}))
	})
	return r, err
}

// writeAs runs fn in a transaction that holds the lock of requests, and inserts what belongs to the
// caller. It refuses a person who was removed or disabled since the request began.
func (s *Service) writeAs(ctx context.Context, sc scope.Scope, fn func(tx *db.Tx) error) error {
	return s.Stores.Write(ctx, sc.Tenant, func(tx *db.Tx) error {
		// A removal locks the person first, too.
		if err := user.RequireActor(ctx, tx, sc); err != nil {
			return err
		}
		if err := tx.Lock(ctx, Lock); err != nil {
			return err
		}
		return fn(tx)
	})
}

// checkPerson returns NotFound for a person who was removed since the request began; id is "" for a
// subject who is nobody here, such as a user of an application. The caller holds the lock, as for checkResource.
func checkPerson(ctx context.Context, tx *db.Tx, id string) error {
	if id == "" {
		return nil
	}
	_, err := user.ByID(ctx, tx, id)
	return err
}

// checkResource returns NotFound for a resource that was removed. The caller holds the lock of
// requests: a removal that this does not see waits for the lock, and then ends the request.
func checkResource(ctx context.Context, tx *db.Tx, r Request) error {
	if in, err := resource.EnvironmentOf(ctx, tx, r.ResourceID); err != nil || in != r.Environment {
		return errors.Join(err, fault.NotFoundf("no such resource"))
	}
	return nil
}

// subject returns who gets access. People and AI agents request for themselves, applications for
// their users.
func (s *Service) subject(ctx context.Context, sc scope.Scope, d Draft) (string, error) {
	subject := d.Subject.ID
	if d.Subject.Type == "agent" && subject != "" && !scope.NamesAgent(subject) {
		subject = scope.AgentPrefix + subject
	}
	if sc.Actor.Kind == scope.Key {
		if subject == "" {
			return "", fault.Invalidf("/subject/id", "a key must say who needs access")
		}
		return subject, nil
	}
	if subject == "" {
		return sc.Actor.ID, nil
	}
	if sc.Actor.Kind == scope.Agent {
		if subject != sc.Actor.ID || d.Subject.Type == string(scope.Person) {
			return "", fault.New(fault.Forbidden, "other_subject", "an AI agent requests access for itself")
		}
		return subject, nil
	}
	self, spelling, err := s.names(ctx, sc, subject)
	if err == nil && !self {
		err = fault.New(fault.Forbidden, "other_subject", "people request access for themselves")
	}
	return spelling, err
}

// names reports whether a subject is the caller, by id, user name or address, and returns the
// spelling of the account. A grant is for the exact subject, and another spelling may be another
// user of an application.
func (s *Service) names(ctx context.Context, sc scope.Scope, subject string) (self bool, spelling string, err error) {
	for _, own := range []string{sc.Actor.ID, sc.Actor.Name} {
		if user.Fold(own) == user.Fold(subject) {
			return true, own, nil
		}
	}
	id, spelling, err := s.Person(ctx, sc.Tenant, subject)
	return id == sc.Actor.ID, spelling, err
}

func checkRoom(ctx context.Context, tx *db.Tx, r Request) error {
	same, err := countSame(ctx, tx, r)
	if err != nil {
		return err
	}
	if same > 0 {
		return fault.New(fault.Conflict, "already_requested", "this access is already requested and waits for a decision")
	}
	n, err := countOpen(ctx, tx, r)
	if err != nil {
		return err
	}
	return errors.Join(fault.CheckCount(n.All, maxPending, "a tenant has at most %d open requests for access"),
		fault.CheckCount(n.OfSubject, maxOwn, "a subject has at most %d open requests for access"),
		fault.CheckCount(n.OfCaller, maxFiled, "a person or key has at most %d open requests for access"))
}

// Approve grants a request for a limited time.
func (s *Service) Approve(ctx context.Context, sc scope.Scope, id int64, a Approval) (Request, error) {
	return s.decide(ctx, sc, id, eventApproved, func(ctx context.Context, tx *db.Tx, r *Request, now time.Time) error {
		return grant(ctx, tx, r, now, a)
	})
}

// grant turns a request into a grant that begins now.
func grant(ctx context.Context, tx *db.Tx, r *Request, now time.Time, a Approval) error {
	active, err := countGrants(ctx, tx, now)
	if err := fault.CheckCounted(active, err, maxGrants, "a tenant has at most %d grants of access"); err != nil {
		return err
	}
	if err := checkResource(ctx, tx, *r); err != nil {
		return err
	}
	disabled, err := user.IsDisabled(ctx, tx, r.SubjectID)
	if err != nil {
		return err
	}
	if disabled {
		return fault.New(fault.Conflict, "subject_disabled", "the person is disabled, and nothing can be granted to them")
	}
	end := now.Add(time.Duration(a.Duration) * time.Second)
	r.Status, r.StartsAt, r.ExpiresAt, r.DecisionReason = Approved, &now, &end, a.Reason
	return nil
}

// Deny refuses a request.
func (s *Service) Deny(ctx context.Context, sc scope.Scope, id int64, d Refusal) (Request, error) {
	return s.decide(ctx, sc, id, eventDenied, func(_ context.Context, _ *db.Tx, r *Request, _ time.Time) error {
		r.Status, r.DecisionReason = Denied, d.Reason
		return nil
	})
}

// decide decides a pending request. Only people decide, and not their own requests.
func (s *Service) decide(ctx context.Context, sc scope.Scope, id int64, event string, edit func(ctx context.Context, tx *db.Tx, r *Request, now time.Time) error) (Request, error) {
	old, err := s.Get(ctx, sc, id)
	if err != nil {
		return Request{}, err
	}
	if sc.Actor.Kind != scope.Person {
		return Request{}, fault.New(fault.Forbidden, "person_required", "only a person who is signed in can decide a request for access")
	}
	self, _, err := s.names(ctx, sc, old.SubjectID)
	if err != nil {
		return Request{}, err
	}
	if self || old.filedBy(sc) {
		return Request{}, fault.New(fault.Forbidden, "own_request", "a person cannot decide their own request for access")
	}
	return s.change(ctx, sc, id, event, func(ctx context.Context, tx *db.Tx, r *Request, now time.Time) error {
		if err := r.checkPending(now); err != nil {
			return err
		}
		r.DecidedBy, r.DecidedAt = &sc.Actor.Name, &now
		return edit(ctx, tx, r, now)
	})
}

// TakeBack withdraws a pending request. Its filer may do so, and the person or AI agent whom it is
// for.
func (s *Service) TakeBack(ctx context.Context, sc scope.Scope, id int64) (Request, error) {
	old, err := s.Get(ctx, sc, id)
	if err != nil {
		return Request{}, err
	}
	if own := old.filedBy(sc); !own {
		if sc.Actor.Kind == scope.Person {
			if own, _, err = s.names(ctx, sc, old.SubjectID); err != nil {
				return Request{}, err
			}
		}
		if !own && (sc.Actor.Kind != scope.Agent || old.SubjectID != sc.Actor.ID) {
			return Request{}, fault.New(fault.Forbidden, "permission_denied", "only the filer of a request for access, or the person whom it is for, can withdraw it")
		}
	}
	return s.change(ctx, sc, id, eventWithdrawn, func(_ context.Context, _ *db.Tx, r *Request, now time.Time) error {
		if err := r.checkPending(now); err != nil {
			return err
		}
		r.Status, r.EndedBy, r.EndedAt = Withdrawn, &sc.Actor.Name, &now
		return nil
	})
}

// Revoke ends a grant early.
func (s *Service) Revoke(ctx context.Context, sc scope.Scope, id int64, d Refusal) (Request, error) {
	return s.change(ctx, sc, id, "ACCESS_REVOKED", func(_ context.Context, _ *db.Tx, r *Request, now time.Time) error {
		return r.revoke(sc.Actor.Name, d.Reason, now)
	})
}

// change changes a request that the caller may read.
func (s *Service) change(ctx context.Context, sc scope.Scope, id int64, event string, edit func(ctx context.Context, tx *db.Tx, r *Request, now time.Time) error) (Request, error) {
	var r Request
	err := s.Stores.WriteUnder(ctx, sc.Tenant, Lock, func(tx *db.Tx) (err error) {
		if r, err = load(ctx, tx, sc, id); err != nil {
			return err
		}
		if err := edit(ctx, tx, &r, db.Stamp(s.Now())); err != nil {
			return err
		}
		r, err = s.save(ctx, tx, sc, event, r)
		return err
	})
	return r, err
}

// save writes a changed request. If a grant changed, it makes decisions reload it.
func (s *Service) save(ctx context.Context, tx *db.Tx, sc scope.Scope, event string, r Request) (Request, error) {
	r, err := update(ctx, tx, r)
	if err != nil {
		return r, err
	}
	changed := map[string]any{"subject_id": r.SubjectID, "action": r.Action, "reason": r.DecisionReason}
	if r.ExpiresAt != nil {
		changed["expires_at"] = r.ExpiresAt.UTC().Format(time.RFC3339)
		if err := noteChange(ctx, tx, r.Environment); err != nil {
			return r, err
		}
	}
	if r.BreakGlass {
		if r.Status != Approved {
			event = glassEnded
		}
		changed["reason"], changed["opened_by"] = r.Reason, r.RequestedBy
		if err := s.announceGlass(ctx, tx, sc.Tenant, r); err != nil {
			return r, err
		}
	}
	if event == eventApproved || event == eventDenied || event == eventWithdrawn {
		if err := s.announceEnd(ctx, tx, sc.Tenant, r); err != nil {
			return r, err
		}
	}
	return r, audit.Append(ctx, tx, sc, s.Now(), r.entry(event, changed))
}

// Forget deletes requests that ended a year ago or earlier.
func (s *Service) Forget(ctx context.Context, tenant scope.TenantID) error {
	return s.Stores.Write(ctx, tenant, func(tx *db.Tx) error { return forget(ctx, tx, s.Now().Add(-keptFor)) })
}

// noteChange increments the revision of an environment, and records that grants changed.
func noteChange(ctx context.Context, tx *db.Tx, env scope.Env) error {
	revision, err := tx.Bump(ctx, resource.Revision(env))
	if err != nil {
		return err
	}
	return insertChange(ctx, tx, env, revision, revision-resource.KeptRevisions)
}

// load returns a request that the caller may read. Fault: NotFound.
func load(ctx context.Context, tx *db.Tx, sc scope.Scope, id int64) (Request, error) {
	r, err := get(ctx, tx, id)
	self := sc.Actor.Kind == scope.Person || sc.Actor.Kind == scope.Agent
	own := r.filedBy(sc) || self && r.SubjectID == sc.Actor.ID
	return db.Found(r, err, sc.Sees(r.Environment) && (own || seesAll(sc)), "request for access")
}

func seesAll(sc scope.Scope) bool {
	return sc.Permissions.Has(Approving) || sc.Permissions.Has(seeing)
}

// at returns the request with its status at a time.
func (r Request) at(now time.Time) Request {
	if r.Status == Approved && !now.Before(*r.ExpiresAt) || r.isExpired(now) {
		r.Status = Expired
	}
	return r
}

// isExpired reports whether the request was not decided in time.
func (r Request) isExpired(now time.Time) bool {
	return r.Status == Pending && r.LapsesAt != nil && !now.Before(*r.LapsesAt)
}

// checkPending returns Conflict "already_decided" unless the request is pending.
func (r Request) checkPending(now time.Time) error {
	if status := r.at(now).Status; status != Pending {
		return fault.Newf(fault.Conflict, "already_decided", "this request is %s", status)
	}
	return nil
}

func (r Request) filedBy(sc scope.Scope) bool {
	return r.CallerKind == string(sc.Actor.Kind) && r.CallerID == sc.Actor.ID
}

func (r Request) entry(event string, changed map[string]any) audit.Entry {
	changed["request_id"] = r.ID
	return audit.Entry{Type: event, Object: "access_request", ObjectID: strconv.FormatInt(r.ID, 10), ObjectName: r.ResourceName, Env: r.Environment, Changes: changed}
}

// path returns the path of the request in the console.
func (r Request) path() string {
	return "/requests?" + url.Values{"environment": {string(r.Environment)}, "request": {strconv.FormatInt(r.ID, 10)}}.Encode()
}

// announceEnd notifies the channels and the approval systems that requests no longer need a
// decision.
func (s *Service) announceEnd(ctx context.Context, tx *db.Tx, tenant scope.TenantID, ended ...Request) error {
	for _, r := range ended {
		if err := s.Outbox.Broadcast(ctx, tx, tenant, s.endNote(r)); err != nil {
			return err
		}
	}
	if s.Ended == nil || len(ended) == 0 {
		return nil
	}
	return s.Ended(ctx, tx, tenant, ended...)
}

// endNote returns the notification that a request no longer needs a decision.
func (s *Service) endNote(r Request) notify.Note {
	n := s.note(r)
	n.Resolved, n.Text, n.At = true, r.DecisionReason, db.Stamp(s.Now())
	n.Facts = append(n.Facts, format.Fact{Name: "status", Value: r.Status})
	if r.DecidedBy != nil {
		n.Facts = append(n.Facts, format.Fact{Name: "decided by", Value: *r.DecidedBy})
	}
	if r.EndedBy != nil {
		n.Facts = append(n.Facts, format.Fact{Name: "withdrawn by", Value: *r.EndedBy})
	}
	return n
}

// note returns the notification of a request for its approvers.
func (s *Service) note(r Request) notify.Note {
	return notify.Note{
		ID: s.NewID(), Alert: "access_requested", Severity: format.Warning, Env: r.Environment, Fault: "access:" + strconv.FormatInt(r.ID, 10),
		Title: r.SubjectID + " requests access to " + r.ResourceName, Text: r.Reason,
		Facts: []format.Fact{{Name: "action", Value: r.Action}, {Name: "requested by", Value: r.RequestedBy}}, Path: r.path(), At: r.CreatedAt,
	}
}
