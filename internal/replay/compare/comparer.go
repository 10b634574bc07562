package compare

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Comparer replays records. Only one goroutine may use it.
type Comparer struct {
	spec     Spec
	clock    func() time.Time
	controls []compiled
	isNew    map[int64]bool
	pip      value.Value
	grants   value.Value
	sets     sets
	samples  int // samples kept so far
	told     int // flips explained so far
}

// compiled is a control that is compiled at its first use. Control is nil if it does not compile.
type compiled struct {
	*rego.Control
	tried bool
}

// maxExplained is how many flips are traced to their rule.
const maxExplained = 2000

// New compiles the controls of a replay. It returns those that do not compile, and then no
// comparer. clock measures evaluations.
func New(spec Spec, clock func() time.Time) (*Comparer, []Refused, error) {
	m := &Comparer{spec: spec, clock: clock, isNew: map[int64]bool{}}
	m.controls = make([]compiled, len(spec.Controls))
	var refused []Refused
	for i, c := range spec.Controls {
		if c.New {
			m.isNew[c.ID] = true
		}
		if c.Old {
			continue // compiled only if a record needs it; most are not needed
		}
		if issues := m.compile(i); len(issues) > 0 {
			refused = append(refused, Refused{i, issues})
		}
	}
	if len(refused) > 0 {
		return nil, refused, nil
	}
	if len(spec.Grants) > 0 {
		var err error
		if m.grants, err = decodeInput(spec.Grants); err != nil {
			return nil, nil, err
		}
	}
	if len(spec.PIP) > 0 {
		var err error
		if m.pip, err = decodeInput(spec.PIP); err != nil {
			return nil, nil, err
		}
	}
	m.sets = newSets(m)
	return m, nil, nil
}

// compile compiles the control at an index of Spec.Controls with its libraries. It returns its
// errors.
func (m *Comparer) compile(at int) []lang.Issue {
	c := &m.spec.Controls[at]
	libs := make([]lang.Library, len(c.Libraries))
	for i, l := range c.Libraries {
		libs[i] = m.spec.Libraries[l]
	}
	ctl, issues := rego.Compile(c.Meta, c.Source, libs...)
	if len(issues) > 0 {
		ctl = nil
	}
	m.controls[at] = compiled{ctl, true}
	return issues
}

// control returns the control at an index of Spec.Controls. If an old one does not compile, it
// returns the control that replaces it, or nil.
func (m *Comparer) control(at int) *rego.Control {
	if !m.controls[at].tried {
		instead := m.spec.Controls[at].Instead - 1
		if issues := m.compile(at); len(issues) > 0 && instead >= 0 && instead < at {
			m.controls[at].Control = m.control(instead)
		}
	}
	return m.controls[at].Control
}

// Run replays records, newest first. Each is a line of the decision log. It stops early after the
// time most or when ctx ends, but replays at least one record. Part.Lines is the number of records
// read.
func (m *Comparer) Run(ctx context.Context, lines [][]byte, most time.Duration) *Part {
	p := &Part{ByControl: map[int64]*Tally{}, ByResource: map[int64]*Tally{}, BySubject: map[string]*Tally{}, ByRule: map[Rule]int64{}}
	var r record
	began := m.clock()
	for i, line := range lines {
		// The clock is read for each record. That costs about a tenth of a decision.
		if i > 0 && (m.clock().Sub(began) > most || ctx.Err() != nil) {
			break
		}
		p.Lines++
		if parse(line, &r) != nil {
			p.countSkipped(Unreadable, 1)
			continue
		}
		if why := m.judge(ctx, &r, p); why != "" {
			p.countSkipped(why, 1)
		}
	}
	p.list()
	return p
}

// outcome is the result for one record: the decisions of both sides and how they differ.
type outcome struct {
	before, after               rego.Decision
	beforeBlocked, afterBlocked bool
	afterMasked                 bool
	change                      string
}

// judge decides one record with both sides. If it cannot, it returns the reason, such as NoInput.
func (m *Comparer) judge(ctx context.Context, r *record, p *Part) (why string) {
	if len(r.input) == 0 || string(r.input) == "null" || bytes.HasPrefix(r.input, []byte(`{"truncated":true,"bytes":`)) {
		return NoInput
	}
	input, err := decodeInput(r.input)
	if err != nil || input.Kind() != value.ObjectKind {
		return Unreadable
	}
	req, offences := rego.ParseOpen(input)
	if len(offences) > 0 {
		return Unreadable
	}
	s := m.sets.of(r)
	if req.ResourceID == 0 && !req.ByID && r.mode != "" && input.Get("gateway").Defined() {
		req.ResourceID = r.resourceID // the gateway's route named the resource
	}
	if why := s.missingInput(r, &req, input); why != "" {
		return why
	}
	opt := rego.Options{Now: r.at, Deadline: m.spec.Deadline, Clock: m.clock, Caught: m.spec.Caught}
	o := outcome{before: s.base.Decide(ctx, &req, opt)}
	if o.after = o.before; s.cand != s.base {
		o.after = s.cand.Decide(ctx, &req, opt)
	}
	passes := r.mode != "" && !s.deny // a gatehouse bouncer that passes requests that no control covers
	o.beforeBlocked, o.afterBlocked = blocked(&o.before, passes), blocked(&o.after, passes)
	o.afterMasked = o.after.Effect == rego.Mask
	switch {
	case o.afterBlocked && !o.beforeBlocked:
		o.change = NewlyBlocked
	case o.beforeBlocked && !o.afterBlocked:
		o.change = NewlyAllowed
	case !o.afterBlocked && !slices.Equal(o.before.Mask, o.after.Mask):
		o.change = MaskChanged
	}
	m.count(p, r, s, o)
	if o.change != "" {
		m.recordFlip(ctx, p, r, s, &req, opt, o)
	}
	return ""
}

// blocked reports whether a decision blocks its request. passes means that the bouncer passes
// requests that no control covers.
func blocked(d *rego.Decision, passes bool) bool {
	return d.Effect == rego.Deny || d.Effect == rego.NoMatch && (d.Considered > 0 || !passes)
}

// missingInput returns Redacted or Incomplete if a record's input lacks something that a control
// reads, and otherwise an empty string.
func (s *controlPair) missingInput(r *record, req *rego.Request, input value.Value) string {
	secret := bytes.Contains(r.input, []byte(redactedMark))
	if !secret && r.mode == "" {
		return ""
	}
	base, cand := s.base.Needs(req), s.cand.Needs(req)
	if secret {
		places := redactedPaths(input)
		if touches(base.Input, places) || touches(cand.Input, places) {
			return Redacted
		}
	}
	if r.mode == "" {
		return ""
	}
	// A bouncer reads a body, and counts usage, only for controls that need it. If the baseline
	// needs it, the bouncer did so at the time.
	for _, n := range []struct {
		name       string
		then, asks bool
	}{{"mcp", base.MCP, cand.MCP}, {"llm", base.LLM, cand.LLM}, {"usage", base.Usage, cand.Usage}} {
		if n.asks && !n.then && !input.Get(n.name).Defined() {
			return Incomplete
		}
	}
	return ""
}

// count adds an outcome to all sums.
func (m *Comparer) count(p *Part, r *record, s *controlPair, o outcome) {
	p.Counts.count(o)
	if o.afterBlocked && o.after.Effect == rego.NoMatch {
		p.NoMatch++
	}
	if drifts(r, &o) {
		p.Drifted++
		switch {
		case !s.has(r.policyID, r.policyVersion):
			p.ControlDrift++
		case s.unknown:
			p.UnknownDrift++
		}
	}
	if id := o.after.PolicyID; id != 0 && o.change == "" {
		tally(p.ByControl, m.idOf(id), o.after.PolicyName).count(o)
	} else if o.change != "" {
		who := o.behind()
		tally(p.ByControl, m.idOf(who.PolicyID), who.PolicyName).count(o)
	}
	if res := o.after.Resource; res != nil {
		tally(p.ByResource, res.ID, res.Name).count(o)
	}
	if o.change == "" {
		return
	}
	if len(p.BySubject) < maxSubjects || p.BySubject[r.userID] != nil {
		tally(p.BySubject, r.userID, "").count(o)
	}
}

// behind returns the decision whose control caused a flip: the new one or, if no control
// matches any more, the old one.
func (o *outcome) behind() *rego.Decision {
	if o.after.PolicyID != 0 {
		return &o.after
	}
	return &o.before
}

// drifts reports whether the baseline differs from what was recorded.
func drifts(r *record, o *outcome) bool {
	effect := strings.TrimPrefix(r.effect, "SHADOW_WOULD_")
	stopped := effect == "DENY" || effect != "ALLOW" && effect != "MASK" && r.decision == "DENY"
	if stopped != o.beforeBlocked {
		return true
	}
	return !stopped && effect != "" && (effect == "MASK") != (o.before.Effect == rego.Mask)
}

// idOf returns the id of a control for answers: 0 if the control is not stored.
func (m *Comparer) idOf(id int64) int64 {
	if m.isNew[id] {
		return 0
	}
	return id
}
