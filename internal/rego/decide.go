package rego

import (
	"context"
	"slices"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/rego/masking"
	"github.com/gatehouse-dev/gatehouse/internal/rego/target"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// Options are the settings of one decision.
type Options struct {
	// Cache is read before the evaluation and filled after it; nil means no cache.
	Cache *Cache
	// CacheTTL is the greatest age of an answer from the cache, measured by Now; 0 allows any age.
	CacheTTL time.Duration
	// Now is the time that the controls see.
	Now time.Time
	// Deadline bounds the evaluation of the controls in scope; 0 means DefaultDeadline.
	Deadline time.Duration
	// Clock measures Duration and the deadline; nil leaves Duration 0.
	Clock func() time.Time
	// Place is the result of an earlier Find for this request. If it is nil, or of another
	// request or set, Decide finds the resource itself.
	Place *Place
	// Pause and Caught: see Limits.
	Pause  func() bool
	Caught func(*Panic)
}

// Limits returns the limits of one evaluation.
func (o *Options) Limits() Limits {
	return Limits{Deadline: o.Deadline, Now: o.Now, Clock: o.Clock, Pause: o.Pause, Caught: o.Caught}
}

// Decision is the combined answer of all controls in scope: any DENY, else MASK, else
// ALLOW, else NO_MATCH.
type Decision struct {
	Effect Effect
	// Permit: the effect is ALLOW or MASK.
	Permit bool
	Reason string
	// Authored says that the control that decided gave the reason itself. Otherwise this package
	// generated the text.
	Authored bool
	// PolicyID, PolicyName and PolicyVersion name the control that decided: the one with the
	// lowest id among those with the effect. All are zero with NO_MATCH.
	PolicyID      int64
	PolicyName    string
	PolicyVersion int64
	// Mask is set with the effect MASK: the paths of all controls, united, each
	// with the strictest strategy, sorted by path.
	Mask []masking.MaskRule
	// Resource is the matched resource; nil if none matched.
	Resource *target.Resource
	// Path is the normalised path that was decided on; empty if none was sent.
	Path     string
	Revision int64
	CacheHit bool
	// Considered is the number of controls in scope; 0 means that no active control applies.
	Considered int
	// Ran are the controls that were evaluated, sorted by id: all in scope, or those up to the
	// DENY that ended the evaluation. With a CacheHit, they are those of the cached answer. The
	// slice is shared and must not be changed.
	Ran []*Control
	// Err says why a control, or the request's path, could not be evaluated; the effect is then
	// DENY.
	Err error
	// Stopped says that no control was evaluated, because an AI agent asked that is not active; the
	// effect is then DENY.
	Stopped bool
	// Duration is how long the decision took, if Options.Clock was given.
	Duration time.Duration
}

// reasonPath is the reason for a path that can be read in more than one way; Err says why.
const reasonPath = "Invalid path"

// verdict is the part of a decision that is cached: it does not depend on the set.
type verdict struct {
	effect        Effect
	ran           int32 // how many of the plan's controls were evaluated
	reason        string
	authored      bool
	policyID      int64
	policyName    string
	policyVersion int64
	mask          []masking.MaskRule
	err           error
}

// Decide decides a request. It normalises the path and matches the resource. It denies a request of
// an AI agent that is stopped. Otherwise it looks in the cache. On a miss it evaluates the controls
// in scope in the order of their ids, and combines their outcomes. A DENY ends the evaluation;
// errors and limits count as DENY.
func (s *Set) Decide(ctx context.Context, r *Request, opt Options) Decision {
	var start time.Time
	if opt.Clock != nil {
		start = opt.Clock()
	}
	d := s.decide(ctx, r, opt)
	if r.ByID && d.Resource == nil && d.Effect == NoMatch && d.Err == nil {
		d.Reason = unresolvedReason(r.Resource.Get("id"), d.Considered)
	}
	if opt.Clock != nil {
		d.Duration = opt.Clock().Sub(start)
	}
	return d
}

func (s *Set) decide(ctx context.Context, r *Request, opt Options) Decision {
	var at place
	var err error
	if opt.Place.IsFor(s, r) {
		at, err = opt.Place.at, opt.Place.err
	} else {
		at, err = s.locate(r)
	}
	if err != nil {
		return Decision{Effect: Deny, Reason: reasonPath, Err: err, Revision: s.revision}
	}
	if reason := s.agents.Refuse(r.User); reason != "" {
		p := s.planOf(at.slot)
		return Decision{Effect: Deny, Reason: reason, Stopped: true, Resource: p.res, Path: at.path, Revision: s.revision, Considered: len(p.controls)}
	}
	d := s.decideAt(ctx, r, at.slot, at.path, opt)
	if at.literal == nil || !d.Permit && d.Considered > 0 {
		return d
	}
	// Which of the two resources the application serves is unknown, so both must permit.
	other := s.decideAt(ctx, r, at.literal, at.literal.controlPath(at.sent), opt)
	switch {
	case !other.Permit || d.Considered == 0 || other.Effect > d.Effect:
		return other
	case other.Effect == Mask:
		d.Mask = uniteMasks(slices.Concat(d.Mask, other.Mask))
	}
	return d
}

// decideAt decides with the controls in scope of one resource; a nil slot means no resource.
func (s *Set) decideAt(ctx context.Context, r *Request, sl *slot, path string, opt Options) Decision {
	p := s.planOf(sl)
	d := Decision{Resource: p.res, Path: path, Revision: s.revision, Considered: len(p.controls)}
	if len(p.controls) == 0 {
		d.Reason = noControlReason
		return d
	}
	if opt.Cache == nil || !p.cacheable {
		d.fill(p, p.evaluate(ctx, s, r, path, opt))
		return d
	}
	var buf [512]byte
	id := p.appendKey(buf[:0], r, path)
	h := opt.Cache.hash(id)
	if v := opt.Cache.get(h, id, &opt); v != nil {
		d.fill(p, *v)
		d.CacheHit = true
		return d
	}
	v := p.evaluate(ctx, s, r, path, opt)
	if v.err == nil {
		opt.Cache.put(h, id, v, opt.Now)
	}
	d.fill(p, v)
	return d
}

// Refuse returns the decision on a request for which no time is left: DENY with the reason
// ReasonLimit and the given error, about the resource that the request matches.
func (s *Set) Refuse(r *Request, err error) Decision {
	d := Decision{Effect: Deny, Reason: ReasonLimit, Err: err, Revision: s.revision}
	at, bad := s.locate(r)
	if bad != nil {
		d.Reason, d.Err = reasonPath, bad
		return d
	}
	p := s.planOf(at.slot)
	d.Resource, d.Path, d.Considered = p.res, at.path, len(p.controls)
	return d
}

// fill copies a verdict of the plan into the decision.
func (d *Decision) fill(p *plan, v verdict) {
	d.Ran = p.controls[:v.ran:v.ran]
	d.Effect, d.Permit, d.Reason, d.Mask, d.Err = v.effect, v.effect.Permits(), v.reason, v.mask, v.err
	d.Authored = v.authored
	d.PolicyID, d.PolicyName, d.PolicyVersion = v.policyID, v.policyName, v.policyVersion
}

// place is the resource of a request, and the path that its controls see. The path is empty if
// none was sent.
type place struct {
	matched
	path string
	sent location
}

// locate finds the resource of a request. A path that begins with a slash is the path of a URL:
// it is refused if it can be read in more than one way. Any other path is a name. Controls see a
// name as it was sent; only matching uses its normal form, and a name without one matches no path.
func (s *Set) locate(r *Request) (at place, err error) {
	if r.Path == "" {
		at.matched, err = s.matcher.match(r, location{}, s.linked)
		return at, err
	}
	if r.Path[0] != '/' {
		key, err := target.NormalisePath("/" + r.Path)
		if err != nil {
			key = ""
		}
		l := foldPath(key)
		l.others, l.hidden = nil, false // a name has no segments to hide
		at.matched, err = s.matcher.match(r, l, s.linked)
		return at, err
	}
	key, err := target.NormalisePath(r.Path)
	if err != nil {
		return at, err
	}
	l := foldPath(key)
	if at.matched, err = s.matcher.match(r, l, s.linked); err != nil {
		return at, err
	}
	at.path, at.sent = at.controlPath(l), l
	return at, nil
}

// evaluate runs the controls and combines their outcomes.
func (p *plan) evaluate(ctx context.Context, s *Set, r *Request, path string, opt Options) verdict {
	lim := opt.Limits()
	b := newTimeBudget(ctx, lim)
	defer b.release()
	resource := r.Resource
	if p.readsResource {
		resource = p.mergeResource(resource, path)
	}
	run := newRun(input(r, resource), s, lim)
	if len(p.controls) == 1 {
		c := p.controls[0]
		return c.verdict(c.answer(run, b))
	}
	return p.combine(run, b)
}

// combine evaluates the controls in the order of their ids, up to a DENY.
func (p *plan) combine(run *run, b *timeBudget) verdict {
	var best *Control
	var win Outcome
	var masks []masking.MaskRule
	var ran int32
	for _, c := range p.controls {
		out := c.effect(run, b)
		ran++
		if out.Effect == Mask {
			masks = append(masks, out.Mask...)
		}
		if out.Effect > win.Effect {
			best, win = c, out
		}
		if out.Effect == Deny {
			break
		}
	}
	if best == nil {
		return verdict{ran: ran, reason: noMatchReason}
	}
	best.explain(run, b, &win)
	if win.Effect == Mask {
		win.Mask = uniteMasks(masks)
	}
	v := best.verdict(win)
	v.ran = ran
	return v
}

// verdict returns the verdict if the control decides alone.
func (c *Control) verdict(out Outcome) verdict {
	if out.Effect == NoMatch {
		return verdict{ran: 1, reason: noMatchReason}
	}
	v := verdict{
		effect: out.Effect, ran: 1, reason: out.Reason, authored: out.Authored, err: out.Err,
		policyID: c.meta.ID, policyName: c.meta.Name, policyVersion: c.meta.Version,
	}
	if out.Effect == Mask {
		v.mask = out.Mask
	}
	return v
}

// Place is the result of Set.Find: the resource of a request, found once for several calls.
type Place struct {
	set *Set
	by  placeKey
	at  place
	err error
}

// placeKey holds the parts of a request that a set uses to find the resource.
type placeKey struct {
	id                      int64
	byID                    bool
	typ, host, path, method string
}

func placeKeyOf(r *Request) placeKey {
	return placeKey{r.ResourceID, r.ByID, r.Type, r.Host, r.Path, r.Method}
}

// Find finds the resource of a request.
func (s *Set) Find(r *Request) Place {
	at, err := s.locate(r)
	return Place{set: s, by: placeKeyOf(r), at: at, err: err}
}

// IsFor reports whether p is the place of this request in this set. It is false for a nil place.
func (p *Place) IsFor(s *Set, r *Request) bool {
	return p != nil && p.set == s && p.by == placeKeyOf(r)
}

// Needs returns what the controls in scope read. A bouncer then reads bodies and counts usage
// only for controls that need them.
func (p *Place) Needs() lang.Refs {
	if p.err != nil {
		return lang.Refs{}
	}
	own := p.set.planOf(p.at.slot)
	if p.at.literal == nil {
		return own.refs
	}
	both := plan{controls: slices.Concat(own.controls, p.set.planOf(p.at.literal).controls)}
	both.unite()
	return both.refs
}

// Locate returns the resource, which is nil if none matched, and the path that its controls see:
// without the parameters of its segments, and in the spelling of the resource's pattern where the
// pattern is literal. It fails for a path that can be read in more than one way.
func (p *Place) Locate() (res *target.Resource, path string, err error) {
	if p.err != nil || p.at.slot == nil {
		return nil, p.at.path, p.err
	}
	return p.at.res, p.at.path, nil
}

// Needs returns what the controls in scope of a request read (see Place.Needs).
func (s *Set) Needs(r *Request) lang.Refs {
	p := s.Find(r)
	return p.Needs()
}

// Match returns the resource of a request. It returns nil if none matches, and for a path that
// can be read in more than one way.
func (s *Set) Match(r *Request) *target.Resource {
	p := s.Find(r)
	res, _, err := p.Locate()
	if err != nil {
		return nil
	}
	return res
}

// Readings returns the resource of a request, and a second resource if a server that
// distinguishes spellings of the path would serve another one. Decide then evaluates the controls
// of both. Either may be nil.
func (s *Set) Readings(r *Request) (res, literal *target.Resource) {
	at, err := s.locate(r)
	if err != nil || at.slot == nil {
		return nil, nil
	}
	if at.literal != nil {
		literal = at.literal.res
	}
	return at.res, literal
}

// Scope returns what this set used for a decision on this request: the controls in scope of the
// resource that decided, and their input. It returns no controls for a path that can be read in
// more than one way, and for an AI agent that is stopped.
func (s *Set) Scope(r *Request, d *Decision) ([]*Control, value.Value) {
	at, err := s.locate(r)
	if err != nil || d.Stopped {
		return nil, value.Value{}
	}
	p, path := s.planOf(at.slot), at.path
	if at.literal != nil && d.Resource == at.literal.res { // its controls were stricter
		p, path = s.planOf(at.literal), at.literal.controlPath(at.sent)
	}
	if len(p.controls) == 0 {
		return nil, value.Value{}
	}
	return p.controls, input(r, p.mergeResource(r.Resource, path))
}
