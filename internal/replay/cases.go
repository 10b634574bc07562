package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/policy"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// maxName limits the names of test cases, in characters.
const maxName = 200

// FromDecisions selects the recorded decisions that become test cases: by id, or the newest that
// match a filter.
type FromDecisions struct {
	DecisionIDs []string `json:"decision_ids,omitempty" maxItems:"200" doc:"The decisions, by id."`
	Filter      *Picked  `json:"filter,omitempty" doc:"Instead of decision_ids: the newest decisions that match these filters."`
	DryRun      bool     `json:"dry_run,omitempty" doc:"Return the cases without storing them."`
}

// Picked is a filter for recorded decisions with an input.
type Picked struct {
	Environment scope.Env `json:"environment,omitempty" enum:"sandbox,production" doc:"Environment of the decisions; absent: production."`
	Decision    string    `json:"decision,omitempty" enum:"PERMIT,DENY" doc:"Only these decisions."`
	PolicyID    int64     `json:"policy_id,omitempty" minimum:"1" doc:"Only decisions made by this control."`
	ResourceID  int64     `json:"resource_id,omitempty" minimum:"1" doc:"Only decisions about this resource."`
	UserID      string    `json:"user_id,omitempty" maxLength:"4096" doc:"Only decisions about this subject."`
	WindowHours int       `json:"window_hours,omitempty" minimum:"1" maximum:"8760" doc:"How far back; 24 by default."`
	Limit       int       `json:"limit,omitempty" minimum:"1" maximum:"200" doc:"Largest number of cases; 20 by default."`
}

// Made are the test cases made from decisions.
type Made struct {
	PolicyID int64             `json:"policy_id" doc:"The control."`
	Version  int64             `json:"version" doc:"Its version now."`
	Added    []AddedCase       `json:"added" doc:"The new cases, and their results against the control."`
	Skipped  []Skipped         `json:"skipped" doc:"Decisions without a case, and why."`
	Total    int               `json:"total" doc:"Number of cases that the control has now."`
	Cases    []policy.TestCase `json:"test_cases" doc:"The new cases, as stored."`
}

// AddedCase is a new case.
type AddedCase struct {
	DecisionID string `json:"decision_id" doc:"The decision."`
	Name       string `json:"name" doc:"Name of its case."`
	Expected   bool   `json:"expected" doc:"Whether access was granted."`
	Passed     bool   `json:"passed" doc:"Whether the control alone gives the same result."`
	Actual     bool   `json:"actual" doc:"The result."`
	Redacted   bool   `json:"redacted" doc:"Whether the input has values that were redacted in the log."`
}

// Skipped is a decision from which no case was made.
type Skipped struct {
	DecisionID string `json:"decision_id" doc:"The decision."`
	Reason     string `json:"reason" enum:"no_input,unreadable,already_there" doc:"Why."`
}

// Cases makes test cases from recorded decisions, runs them and, unless from.DryRun is set, stores
// them. A case has the input that the controls saw, with the fields of the matched resource, and
// whether all controls together granted access (in shadow mode: would have granted it). Faults:
// Invalid for decisions that do not exist, and if the control would have too many cases.
func (s *Service) Cases(ctx context.Context, sc scope.Scope, id int64, from FromDecisions) (Made, error) {
	if err := sc.Require(recordedInputs); err != nil { // cases show the content of requests
		return Made{}, err
	}
	p, err := s.Policies.Get(ctx, sc, id)
	if err != nil {
		return Made{}, err
	}
	decisions, err := s.pick(ctx, sc, from)
	if err != nil {
		return Made{}, err
	}
	made := Made{PolicyID: p.ID, Version: p.Version, Added: []AddedCase{}, Skipped: []Skipped{}, Cases: []policy.TestCase{}, Total: len(p.TestCases)}
	known := map[string]bool{}
	for _, c := range p.TestCases {
		known[c.Name] = true
	}
	for _, d := range decisions {
		name := caseName(d)
		if known[name] {
			made.Skipped = append(made.Skipped, Skipped{d.DecisionID, "already_there"})
			continue
		}
		c, why, err := s.caseOf(ctx, sc, d)
		if err != nil {
			return Made{}, err
		}
		if why != "" {
			made.Skipped = append(made.Skipped, Skipped{d.DecisionID, why})
			continue
		}
		known[name], c.Name = true, name
		made.Cases = append(made.Cases, c)
		made.Added = append(made.Added, AddedCase{DecisionID: d.DecisionID, Name: name, Expected: c.Expected, Redacted: strings.Contains(string(d.Input), `"[redacted]"`)})
	}
	if len(p.TestCases)+len(made.Cases) > policy.MaxCases {
		return Made{}, fault.Invalidf("/decision_ids", "a control may have at most %d test cases", policy.MaxCases)
	}
	if len(made.Cases) == 0 {
		return made, nil
	}
	report, err := s.Policies.Try(ctx, sc, id, made.Cases)
	if err != nil {
		return Made{}, err
	}
	for i, r := range report.Results {
		made.Added[i].Passed, made.Added[i].Actual = r.Passed, r.Actual
	}
	if from.DryRun {
		return made, nil
	}
	p, err = s.Policies.Update(ctx, sc, id, policy.Change{AddRecorded: made.Cases}, p.Version)
	made.Version, made.Total = p.Version, len(p.TestCases)
	return made, err
}

// pick returns the selected decisions, in the requested order.
func (s *Service) pick(ctx context.Context, sc scope.Scope, from FromDecisions) ([]audit.Decision, error) {
	switch {
	case from.Filter != nil && len(from.DecisionIDs) > 0:
		return nil, fault.Invalidf("/filter", "send either decision_ids or a filter")
	case from.Filter != nil:
		return s.filtered(ctx, sc, *from.Filter)
	case len(from.DecisionIDs) == 0:
		return nil, fault.Invalidf("/decision_ids", "must name at least one decision")
	}
	found, err := s.Audit.ByID(ctx, sc, from.DecisionIDs)
	if err != nil {
		return nil, err
	}
	byID := map[string]audit.Decision{}
	for _, d := range found {
		byID[d.DecisionID] = d
	}
	var out []audit.Decision
	var offences []fault.Detail
	for i, id := range from.DecisionIDs {
		d, ok := byID[id]
		if !ok {
			offences = append(offences, fault.Detail{Pointer: fmt.Sprintf("/decision_ids/%d", i), Message: "no such decision is in the log"})
			continue
		}
		out = append(out, d)
	}
	return out, refuse(offences)
}

func (s *Service) filtered(ctx context.Context, sc scope.Scope, p Picked) ([]audit.Decision, error) {
	env := p.Environment
	if env == scope.AnyEnv {
		env = sc.EnvOr(scope.Production)
	}
	if err := sc.May(env); err != nil {
		return nil, err
	}
	p.WindowHours = cmp.Or(p.WindowHours, DefaultWindow)
	p.Limit = cmp.Or(p.Limit, 20)
	f := audit.Filter{
		Environment: env, Decision: p.Decision, PolicyID: p.PolicyID, UserID: p.UserID,
		Start: s.Now().Add(-time.Duration(p.WindowHours) * time.Hour),
	}
	if p.ResourceID != 0 {
		f.ResourceID = strconv.FormatInt(p.ResourceID, 10)
	}
	s.Audit.WaitShipped(ctx)
	var out, some []audit.Decision
	takeInputs := func() error {
		err := s.Audit.FillInputs(ctx, sc, some)
		for _, d := range some {
			if len(d.Input) > 0 && len(out) < p.Limit {
				out = append(out, d)
			}
		}
		if some = some[:0]; err == nil && len(out) == p.Limit {
			err = errEnough
		}
		return err
	}
	err := s.Audit.Each(ctx, within(sc, env), f, func(d *audit.Decision) error {
		if some = append(some, *d); len(some) < inputsAtOnce {
			return nil
		}
		return takeInputs()
	})
	if err == nil {
		err = takeInputs()
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

// inputsAtOnce is the number of decisions whose inputs one query reads.
const inputsAtOnce = 100

// errEnough ends a walk over the log.
var errEnough = errors.New("replay: enough decisions")

// caseOf makes a case from a decision. If it cannot, why is the reason.
func (s *Service) caseOf(ctx context.Context, sc scope.Scope, d audit.Decision) (c policy.TestCase, why string, err error) {
	req, why := request(d)
	if why != "" {
		return c, why, nil
	}
	set, err := s.Snapshots.Get(ctx, sc.Tenant, d.Environment)
	if err != nil {
		return c, "", err
	}
	full, err := set.Input(&req)
	if err != nil {
		return c, "unreadable", nil
	}
	doc, _ := full.Any().(map[string]any)
	return policy.TestCase{Input: doc, Expected: granted(d), Source: policy.FromDecision}, "", nil
}

// granted reports whether the controls granted access. In shadow mode it is what they would have
// done.
func granted(d audit.Decision) bool {
	if d.Effect == "SHADOW_WOULD_DENY" {
		return false
	}
	return d.Decision == audit.Permit
}

func caseName(d audit.Decision) string {
	what := "permits"
	if !granted(d) {
		what = "denies"
	}
	name := []rune(fmt.Sprintf("decision %s %s %s", d.DecisionID, what, d.Action))
	return strings.TrimSpace(string(name[:min(len(name), maxName)]))
}
