package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/tenant"
	"github.com/gatehouse-dev/gatehouse/internal/user"
)

// Promotion is the input of a promotion.
type Promotion struct {
	DeploymentNotes string `json:"deployment_notes,omitempty" maxLength:"4000" doc:"The reason; stored with the version and in the audit."`
	Approver        string `json:"approver,omitempty" maxLength:"200" doc:"Who approved it. With four-eyes: the user name, e-mail address or id of an active person with policies:write, other than the caller."`
	Replace         bool   `json:"replace,omitempty" doc:"Make the controls that it replaces inactive in the same transaction: production's active controls with the same name for the same resource; for a library, the active one of its package."`
	KeepInSandbox   bool   `json:"keep_in_sandbox,omitempty" doc:"Leave a copy in sandbox, with the same name, status, links and content, and an id of its own."`
}

// errChanged means that the control changed while its tests ran.
var errChanged = errors.New("another request changed the control")

// Promote moves a control to production under the same id. These gates must pass, in this order:
//
//   - The credential is not bound to one environment (403).
//   - The control exists (404) and is not in production yet (409).
//   - The license allows the promotion (403), and it is approved (422).
//   - The control is active if it replaces another one (409 "not_active").
//   - Its libraries are in production (409).
//   - It compiles with them and passes its stored tests (422 with the failures).
//   - It does not flip too many recorded decisions, if the tenant measures that (422
//     "impact_blocked").
//
// Its resource becomes the production counterpart. Its bouncer becomes the production one of the
// same name, or null. With KeepInSandbox, a copy stays in sandbox (403 "limit_exceeded" beyond the
// tenant's limit). The answer has the replaced controls in Replaced, the copy's id in
// SandboxCopyID, and unexpected consequences in Warnings.
func (s *Service) Promote(ctx context.Context, sc scope.Scope, id int64, pr Promotion, ifVersion int64) (Policy, error) {
	if sc.EnvBound {
		// A promotion writes to sandbox and to production.
		return Policy{}, fault.New(fault.Forbidden, "environment_denied", "this credential is valid for one environment, and a promotion changes two")
	}
	// Only one caller for each control runs at a time. Its tests therefore run once, and the
	// other callers get a 409.
	leave, err := s.promotions.lock(ctx, fmt.Sprintf("promote/%s/%d", sc.Tenant, id))
	if err != nil {
		return Policy{}, err
	}
	defer leave()
	for range 3 {
		p, err := s.promote(ctx, sc, id, pr, ifVersion)
		if !errors.Is(err, errChanged) {
			return p, err
		}
	}
	return Policy{}, fault.New(fault.Conflict, "conflict", "other requests keep changing the policy")
}

// promote makes one attempt. It returns errChanged if the control, or one that it replaces, changed
// after the gates had checked it.
func (s *Service) promote(ctx context.Context, sc scope.Scope, id int64, pr Promotion, ifVersion int64) (p Policy, err error) {
	g, err := s.checkGates(ctx, sc, id, pr, ifVersion)
	if err != nil {
		return Policy{}, err
	}
	err = s.write(ctx, sc, func(tx *db.Tx) error {
		old, err := loadLive(ctx, tx, sc, id)
		if err == nil {
			err = promotable(old, ifVersion)
		}
		if err != nil {
			return err
		}
		if old.Version != g.seen.Version {
			return errChanged
		}
		p, err = move{s, sc, pr, g}.apply(ctx, tx, old)
		return err
	})
	return p, err
}

// move is a promotion that passed its gates.
type move struct {
	*Service
	sc scope.Scope
	Promotion
	gateResult
}

// apply writes the promotion of old.
func (m move) apply(ctx context.Context, tx *db.Tx, old Policy) (p Policy, err error) {
	next := old
	next.TestCases = m.cases
	if err := m.moveLinks(ctx, tx, m.sc, &next); err != nil {
		return p, err
	}
	now := m.Now()
	next.Environment, next.Version, next.UpdatedAt, next.PromotedAt = scope.Production, old.Version+1, now, &now
	left, err := m.dropActions(ctx, tx, &next)
	if err != nil {
		return p, err
	}
	if err := m.checkLinks(ctx, tx, old, next); err != nil {
		return p, err
	}
	beside, err := findBeside(ctx, tx, next)
	if err != nil {
		return p, err
	}
	st := step{verb: "promoted", note: m.DeploymentNotes, extra: m.auditDetails(), at: now}
	var replaced []Superseded
	if m.Replace {
		if !sameRows(beside.same, m.replaced) {
			return p, errChanged
		}
		if replaced, err = m.deactivate(ctx, tx, m.sc, next, beside.same, &st); err != nil {
			return p, err
		}
		beside.same = nil
	}
	if p, err = update(ctx, tx, next); err != nil {
		return p, err
	}
	p.Impact, p.Replaced = m.impact, replaced
	if err := m.record(ctx, tx, m.sc, old, p, st); err != nil {
		return p, err
	}
	if m.KeepInSandbox {
		if p.SandboxCopyID, err = m.keepCopy(ctx, tx, old); err != nil {
			return p, err
		}
	}
	p.Warnings, err = promotionWarnings(ctx, tx, old, p)
	p.Warnings = slices.Concat(p.Warnings, beside.warnings(p), left)
	return p, err
}

// auditDetails returns the part of the audit entry besides the policy.
func (m move) auditDetails() map[string]any {
	extra := map[string]any{"deployment_notes": m.DeploymentNotes, "approver": m.Approver}
	if m.impact != nil {
		extra["impact"] = m.impact
	}
	return extra
}

// keepCopy stores a copy of a control that was just promoted, as it was in sandbox, and
// returns its id.
func (m move) keepCopy(ctx context.Context, tx *db.Tx, old Policy) (int64, error) {
	c := Policy{Kind: old.Kind, Content: old.Content}
	c.Version, c.CreatedBy = 1, actor(m.sc)
	made, err := m.insertNew(ctx, tx, m.sc, c, step{
		verb: "created", note: fmt.Sprintf("copy of policy %d, which was promoted", old.ID), extra: map[string]any{"copied_from": old.ID},
	})
	if err != nil {
		return 0, err
	}
	return made.ID, m.RecordCopy(ctx, tx, old.ID, made.ID)
}

// gateResult is the result of the gates: the control as they checked it, the policies that it replaces,
// and the measured impact.
type gateResult struct {
	seen     Policy
	cases    []TestCase // those of seen, and those that it inherits from what it replaces
	replaced []Policy
	impact   *Impact
}

// checkGates checks whether a control may be promoted, before its transaction.
func (s *Service) checkGates(ctx context.Context, sc scope.Scope, id int64, pr Promotion, ifVersion int64) (g gateResult, err error) {
	if g.seen, err = s.stored(ctx, sc, id); err != nil {
		return g, err
	}
	if err := promotable(g.seen, ifVersion); err != nil {
		return g, err
	}
	if err := s.MayPromote.Check(ctx, sc); err != nil {
		return g, err
	}
	if err := s.checkApproval(ctx, sc, pr.Approver); err != nil {
		return g, err
	}
	next := g.seen
	next.Environment = scope.Production // so that it is checked with the libraries of production
	if pr.Replace {
		if g.replaced, err = s.findReplaced(ctx, sc, next); err != nil {
			return g, err
		}
		if next.TestCases, err = inheritedCases(sc, g.replaced, next.TestCases); err != nil {
			return g, err
		}
	}
	g.cases = next.TestCases
	if err := s.checkLibrariesInProduction(ctx, sc, g.seen); err != nil {
		return g, err
	}
	if err := s.checkTests(ctx, sc, next); err != nil {
		return g, err
	}
	// A library only changes production's decisions if it replaces one.
	if s.Impact != nil && (g.seen.Kind == KindControl || len(g.replaced) > 0) {
		g.impact, err = s.Impact(ctx, sc, g.seen, g.replaced)
	}
	return g, err
}

func promotable(p Policy, ifVersion int64) error {
	if p.Environment == scope.Production {
		return fault.New(fault.Conflict, "already_in_production", "the policy is in production already")
	}
	return fault.CheckVersion("policy", p.Version, ifVersion)
}

// checkApproval is the four-eyes gate. If it is on, the request must name an approver who may
// promote the control too and who is not the caller. Personal keys need no check: they are bound
// to one environment and cannot promote.
func (s *Service) checkApproval(ctx context.Context, sc scope.Scope, approver string) error {
	settings, err := db.Read(ctx, s.Stores, sc.Tenant, func(tx *db.Tx) (tenant.Settings, error) { return tenant.SettingsIn(ctx, tx) })
	if err != nil || !settings.FourEyes() {
		return err
	}
	approver = strings.TrimSpace(approver)
	if approver == "" {
		return fault.Invalidf("/approver", "this tenant requires a second person to approve a promotion")
	}
	person, err := s.Person(ctx, sc, approver)
	if isNotFound(err) {
		return fault.Invalidf("/approver", "there is no person %q", approver)
	}
	if err != nil {
		return err
	}
	if person.ID == sc.Actor.ID || strings.EqualFold(approver, sc.Actor.Name) {
		return fault.Invalidf("/approver", "the person who promotes a policy cannot approve it")
	}
	if may, _ := user.Permissions(sc.Tenant, person.Roles); person.Status != user.Active || !may.Has("policies:write") {
		return fault.Invalidf("/approver", "%q may not promote policies, and so cannot approve a promotion", approver)
	}
	return nil
}

// checkTests runs the stored tests with all data, whatever the caller may read. If one fails, it
// returns Invalid "tests_failed" with the results. It hides the texts of controls from a caller
// without resources:read, because they may contain data of resources.
func (s *Service) checkTests(ctx context.Context, sc scope.Scope, p Policy) error {
	if err := s.checkCompiles(ctx, sc, p); err != nil || p.Kind == KindLibrary {
		return err
	}
	reads := sc
	reads.Permissions.All = true
	report, err := s.run(ctx, reads, p, p.TestCases)
	if err != nil || report.Summary.Failed == 0 {
		return err
	}
	failures := []suite.TestResult{}
	f := fault.Newf(fault.Invalid, "tests_failed", "%d of %d stored test cases fail", report.Summary.Failed, report.Summary.Total)
	for i, r := range shownResults(sc, p.TestCases, report.Results) {
		if !r.Passed {
			if sc.Require("resources:read") != nil {
				r.Reason, r.Why, r.Mask, r.Error = "", "", nil, ""
			}
			failures = append(failures, r)
			f.Details = append(f.Details, fault.Detail{
				Pointer: fmt.Sprintf("/test_cases/%d", i),
				Message: r.Name + ": " + r.Missed(),
			})
		}
	}
	return f.With("failures", failures).With("summary", report.Summary)
}

// moveLinks replaces the sandbox resource and bouncer with those of production.
func (l *Links) moveLinks(ctx context.Context, tx *db.Tx, sc scope.Scope, p *Policy) error {
	if p.ResourceID != nil {
		id, err := l.Resources.Counterpart(ctx, tx, sc, *p.ResourceID)
		if errors.Is(err, db.ErrNoRows) {
			return fault.Invalidf("/resource_id", "the linked resource does not exist any more")
		}
		if err != nil {
			return err
		}
		p.ResourceID = &id
	}
	if p.BouncerID != nil {
		twin, err := l.BouncerTwin(ctx, tx, *p.BouncerID)
		if err != nil {
			return err
		}
		p.BouncerID = twin
	}
	return nil
}
