package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/bouncer"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/replay/compare"
	"github.com/gatehouse-dev/gatehouse/internal/resource"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// plan is a prepared request: the controls that decide, and the decisions that they replay.
type plan struct {
	request   Request // with its defaults filled in
	spec      compare.Spec
	recording audit.Recording
	// recorded counts all decisions of the window, total those that are replayed, and
	// left those beyond max_decisions.
	recorded, total, left int64
	subjects              []Subject
	notes                 []string

	changes []change
	index   map[key]int // indices into spec.Controls
	// current has the versions of the active controls by id. shelf has the active libraries. swaps
	// are the libraries of the candidate, which replace those of the same package.
	current map[int64]int64
	shelf   []lang.Library
	swaps   []lang.Library
	reach   map[reachKey][]lang.Library
	// followed is the time from which past states are read. It is before the window.
	followed time.Time
}

// change is one control that the candidate adds, replaces or removes.
type change struct {
	id      int64
	control compare.Control
	remove  bool
	// bouncer is the bouncer to which the control is linked, or 0.
	bouncer int64
}

// newID is the first id of controls that are not stored. It is above all stored ids.
const newID = 1 << 52

func (s *Service) plan(ctx context.Context, sc scope.Scope, r Request) (*plan, error) {
	r, err := r.ready(sc)
	if err != nil {
		return nil, err
	}
	p := &plan{
		request: r, index: map[key]int{}, current: map[int64]int64{}, reach: map[reachKey][]lang.Library{}, subjects: []Subject{},
	}
	p.spec = compare.Spec{Env: string(r.SourceEnvironment), Deadline: s.Deadline, Samples: *r.Samples}
	to := s.Now().UTC()
	p.recording = audit.Recording{Env: r.SourceEnvironment, From: to.Add(-time.Duration(r.WindowHours) * time.Hour), To: to}
	s.Audit.WaitShipped(ctx)
	if p.recorded, p.total, err = s.Audit.CountRecorded(ctx, sc, p.recording); err != nil {
		return nil, err
	}
	set, err := s.Snapshots.Get(ctx, sc.Tenant, r.SourceEnvironment)
	if err != nil {
		return nil, err
	}
	p.spec.Revision, p.spec.Resources, p.spec.PIP = set.Revision(), set.Resources(), set.PIP().AppendJSON(nil)
	if !set.PIP().Defined() {
		p.spec.PIP = nil
	}
	if set.Grants().Defined() {
		p.spec.Grants = set.Grants().AppendJSON(nil)
	}
	for _, c := range set.Controls() {
		p.current[c.Meta().ID] = c.Meta().Version
	}
	if p.shelf, err = s.Policies.Libraries(ctx, sc, r.SourceEnvironment); err != nil {
		return nil, err
	}
	if err := s.candidate(ctx, sc, p); err != nil {
		return nil, err
	}
	if err := p.without(set); err != nil {
		return nil, err
	}
	if err := s.views(ctx, sc, p); err != nil {
		return nil, err
	}
	if err := s.epochs(ctx, sc, p, set); err != nil {
		return nil, err
	}
	if r.MaxDecisions > 0 && r.MaxDecisions < p.total {
		p.left, p.total = p.total-r.MaxDecisions, r.MaxDecisions
		p.notes = append(p.notes, fmt.Sprintf("only the newest %d decisions of the window; max_decisions leaves out %d older ones", p.total, p.left))
	}
	return p, nil
}

// ready returns the request with its defaults. It returns an error if the caller may not see one of
// the environments.
func (r Request) ready(sc scope.Scope) (Request, error) {
	if r.Environment == scope.AnyEnv {
		r.Environment = sc.EnvOr(scope.Production)
	}
	if r.SourceEnvironment == scope.AnyEnv {
		r.SourceEnvironment = r.Environment
	}
	for _, e := range []struct {
		pointer string
		env     scope.Env
	}{{"/environment", r.Environment}, {"/source_environment", r.SourceEnvironment}} {
		if !e.env.Valid() {
			return r, fault.Invalidf(e.pointer, "the environment must be sandbox or production")
		}
		if err := sc.May(e.env); err != nil {
			return r, err
		}
	}
	r.WindowHours = cmp.Or(r.WindowHours, DefaultWindow)
	r.Baseline = cmp.Or(r.Baseline, Then)
	r.Data = cmp.Or(r.Data, Then)
	if r.Samples == nil {
		n := DefaultSamples
		r.Samples = &n
	}
	return r, nil
}

// within narrows a scope to one environment.
func within(sc scope.Scope, env scope.Env) scope.Scope {
	sc.Env = env
	return sc
}

// reader adds the policies that a request names to its plan, and collects all errors.
type reader struct {
	*Service
	sc       scope.Scope
	plan     *plan
	offences []fault.Detail
}

// candidate adds the controls that would be active to the plan. It reports all ids that do not
// exist in the environment.
func (s *Service) candidate(ctx context.Context, sc scope.Scope, p *plan) error {
	r := reader{Service: s, sc: sc, plan: p}
	for i, id := range p.request.ControlIDs {
		c, ok, err := r.stored(ctx, fmt.Sprintf("/control_ids/%d", i), id)
		if ok {
			err = r.add(ctx, c, false)
		}
		if err != nil {
			return err
		}
	}
	for i, c := range p.request.Candidates {
		if err := r.edited(ctx, i, c); err != nil {
			return err
		}
	}
	return refuse(r.offences)
}

func (r *reader) offend(pointer, format string, args ...any) {
	r.offences = append(r.offences, fault.Detail{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// stored reads a policy of the environment. If there is none, it collects an offence and returns ok
// as false.
func (r *reader) stored(ctx context.Context, pointer string, id int64) (c policy.Policy, ok bool, err error) {
	c, err = r.Policies.Get(ctx, within(r.sc, r.plan.request.Environment), id)
	if fault.Is(err, fault.NotFound) {
		r.offend(pointer, "no policy %d in %s", id, r.plan.request.Environment)
		return c, false, nil
	}
	return c, err == nil, err
}

func (r *reader) add(ctx context.Context, c policy.Policy, edited bool) error {
	if isLibrary(c) {
		r.plan.putLibrary(c, edited)
		return nil
	}
	return r.put(ctx, r.sc, r.plan, c, edited)
}

// edited reads candidate i: a stored policy with a new source, or a new policy.
func (r *reader) edited(ctx context.Context, i int, c Candidate) error {
	at := fmt.Sprintf("/candidates/%d", i)
	switch {
	case c.PolicyID == 0 && c.RegoCode == "":
		r.offend(at, "must have a policy_id or a rego_code")
		return nil
	case c.PolicyID != 0 && c.ResourceID != 0:
		r.offend(at+"/resource_id", "must be absent: the stored control has its own")
		return nil
	}
	base := newPolicy(i, c)
	if c.PolicyID != 0 {
		var ok bool
		var err error
		if base, ok, err = r.stored(ctx, at+"/policy_id", c.PolicyID); !ok {
			return err
		}
	}
	if c.RegoCode != "" {
		base.RegoCode = c.RegoCode
	}
	err := r.add(ctx, base, c.RegoCode != "")
	if fault.Is(err, fault.NotFound) {
		r.offend(at+"/resource_id", "no resource %d in %s", c.ResourceID, r.plan.request.Environment)
		return nil
	}
	return err
}

// newPolicy returns candidate i as a policy that is not stored.
func newPolicy(i int, c Candidate) policy.Policy {
	var p policy.Policy
	p.ID, p.Name = newID+int64(i), c.Name
	if p.Name == "" {
		p.Name = fmt.Sprintf("candidate %d", i+1)
	}
	if c.ResourceID != 0 {
		p.ResourceID = &c.ResourceID
	}
	return p
}

func refuse(offences []fault.Detail) error {
	if len(offences) == 0 {
		return nil
	}
	return fault.CheckValues(offences[0].Message, offences)
}

// put adds a control to the candidate. It links it to the resource of the source environment to
// which a promotion would link it.
func (s *Service) put(ctx context.Context, sc scope.Scope, p *plan, c policy.Policy, edited bool) error {
	ch := change{id: c.ID, control: compare.Control{
		Meta: rego.Meta{ID: c.ID, Name: c.Name, Version: c.Version}, Source: c.RegoCode, New: c.ID >= newID,
	}}
	if edited && !ch.control.New {
		ch.control.Version++
	}
	if err := s.link(ctx, sc, p, c, &ch); err != nil {
		return err
	}
	p.changes = append(p.changes, ch)
	told := Subject{Name: c.Name, Edited: edited}
	if c.ID < newID {
		told.PolicyID = c.ID
	}
	if !edited {
		told.Version = c.Version
	}
	p.subjects = append(p.subjects, told)
	return nil
}

// link sets the resource and the bouncer of a control in the source environment.
func (s *Service) link(ctx context.Context, sc scope.Scope, p *plan, c policy.Policy, ch *change) error {
	store, err := s.Stores.Tenant(ctx, sc.Tenant)
	if err != nil {
		return err
	}
	promoted := p.request.Environment != p.request.SourceEnvironment
	return store.Read(ctx, func(tx *db.Tx) error {
		if c.BouncerID != nil {
			ch.bouncer = *c.BouncerID
			if promoted {
				twin, err := bouncer.FindTwin(ctx, tx, *c.BouncerID)
				if err != nil {
					return err
				}
				if ch.bouncer = 0; twin != nil {
					ch.bouncer = *twin
				}
			}
		}
		if c.ResourceID == nil {
			return nil
		}
		ch.control.ResourceID = *c.ResourceID
		env, err := resource.EnvironmentOf(ctx, tx, *c.ResourceID)
		if err == nil && env != p.request.Environment {
			err = fault.NotFoundf("no such resource")
		}
		if err != nil || !promoted {
			return err
		}
		found, src, err := resource.FindTwin(ctx, tx, p.request.SourceEnvironment, *c.ResourceID)
		if err != nil {
			return err
		}
		if found != 0 {
			ch.control.ResourceID = found
			return nil
		}
		// A promotion would register the resource, so only the candidate has it.
		p.spec.Added = append(p.spec.Added, src)
		p.notes = append(p.notes, fmt.Sprintf("%s has no resource %q yet; it is replayed as if it were registered there too", p.request.SourceEnvironment, src.Name))
		return nil
	})
}

// without adds the removal of active controls to the plan, as Request.WithoutIDs names them.
func (p *plan) without(set *rego.Set) error {
	var offences []fault.Detail
	for i, id := range p.request.WithoutIDs {
		at := slices.IndexFunc(set.Controls(), func(c *rego.Control) bool { return c.Meta().ID == id })
		if at < 0 {
			offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/without_control_ids/%d", i), Message: fmt.Sprintf("no active policy %d in %s", id, p.request.SourceEnvironment)})
			continue
		}
		m := set.Controls()[at].Meta()
		p.changes = append(p.changes, change{id: id, remove: true})
		p.subjects = append(p.subjects, Subject{PolicyID: id, Name: m.Name, Version: m.Version, Removed: true})
	}
	return refuse(offences)
}
