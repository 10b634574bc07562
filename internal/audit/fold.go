package audit

import (
	"context"
	"encoding/hex"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// FoldedCount is set in an entry that stands for many refusals. The log writes such entries when
// refusals come too fast to log each one (package fold).
type FoldedCount struct {
	Count  int64     `json:"count" doc:"Number of refusals that this entry stands for."`
	First  time.Time `json:"first" doc:"Time of the first of these decisions."`
	Last   time.Time `json:"last" doc:"Time of the last of these decisions."`
	By     string    `json:"by" enum:"equal,alike,rest" doc:"What the refusals have in common. equal: everything but time and ids. alike: address, control and resource. rest: nothing."`
	Digest string    `json:"digest" doc:"SHA-256 of the decision ids, each followed by a newline, in the order in which they were counted."`
}

// source identifies who makes decisions: this service (bouncer 0) or a bouncer, in one
// environment.
type source struct {
	tenant  scope.TenantID
	bouncer int64
	env     scope.Env
}

// folders holds the folders of all sources. They fold only while Run runs, because it writes the
// counts.
type folders struct {
	limits *fold.Limits // nil: nothing is folded

	total atomic.Int64 // refusals that were counted with others since the process started

	mu   sync.Mutex
	open bool
	of   map[source]*fold.Folder[Decision]
}

// folder returns the source's folder; nil: nothing is folded now.
func (f *folders) folder(s source) *fold.Folder[Decision] {
	if f.limits == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.open {
		return nil
	}
	one := f.of[s]
	if one == nil {
		one = fold.New[Decision](*f.limits)
		f.of[s] = one
	}
	return one
}

// foldable reports whether a decision is a refusal that may be folded. Permitted requests (also
// in shadow mode) and notes about missing decisions are never folded.
func (d *Decision) foldable() bool {
	return d.Decision != Permit && !strings.HasPrefix(d.Effect, "SHADOW_WOULD_") && !d.Gap
}

// offer is a refusal that may be folded.
type offer struct {
	to *fold.Folder[Decision] // nil: the decision gets its own entry
	r  fold.Refusal
	d  *Decision
}

// fold decides whether a decision gets its own entry, and counts it if it does not. resent says that
// the sender may send the same decision again.
func (l *DecisionLog) fold(tenant scope.TenantID, d *Decision, resent bool) fold.Verdict {
	if !d.foldable() { // most decisions
		return fold.Own
	}
	now := l.cfg.Now()
	o := l.folders.offer(tenant, d, resent, now)
	if o.to == nil {
		return fold.Own
	}
	verdict := o.to.Add(now, o.r, d.example)
	if verdict == fold.Folded {
		l.folders.total.Add(max(o.r.Count, 1))
	}
	return verdict
}

// admit decides whether a decision gets its own entry, and does not count it: count does.
func (o *offer) admit(now time.Time) fold.Verdict {
	if o.to == nil {
		return fold.Own
	}
	return o.to.Admit(now, o.r)
}

// count counts refusals that admit found to be folded.
func (f *folders) count(now time.Time, folded []offer) {
	for _, o := range folded {
		o.to.Count(now, o.r, o.d.example)
		f.total.Add(max(o.r.Count, 1))
	}
}

// offer describes a decision for the folder of its source. A decision without a time was made now.
func (f *folders) offer(tenant scope.TenantID, d *Decision, resent bool, now time.Time) offer {
	if f.limits == nil || !d.foldable() {
		return offer{}
	}
	to := f.folder(source{tenant, d.BouncerID, d.Environment})
	if to == nil {
		return offer{}
	}
	at := d.Timestamp
	if at.IsZero() {
		at = now
	}
	control, resource := strconv.FormatInt(d.PolicyID, 10)+"/"+strconv.FormatInt(d.PolicyVersion, 10), strconv.FormatInt(d.ResourceID, 10)
	r := fold.Refusal{
		ID: d.DecisionID, Resent: resent, First: at, Last: at,
		Equal: fold.Key(control, resource, string(d.AuditLevel), d.Effect, d.Mode, d.Reason, d.Error, d.IPAddress, d.Action,
			d.User.ID, d.User.Email, d.Resource.ID, d.Resource.Type, d.Resource.Path),
		Alike:  fold.Key(control, resource, string(d.AuditLevel), d.Effect, d.Mode, d.IPAddress),
		Origin: fold.Key(d.IPAddress),
		Bytes:  len(d.Input) + len(d.Trace) + len(d.Explanation) + len(d.Reason) + len(d.Resource.Path) + len(d.Error) + entryBytes,
	}
	if a := d.Agent; a != nil {
		r.Equal = fold.Key(strconv.FormatUint(r.Equal, 16), a.ID, a.Tool)
	}
	if c := d.Folded; c != nil {
		r.Count, r.First, r.Last = c.Count, c.First, c.Last
	}
	return offer{to, r, d}
}

// FoldedTotal returns how many refusals since the process started have no entry of their own
// because they were counted together.
func (l *DecisionLog) FoldedTotal() int64 { return l.folders.total.Load() }

// entryBytes is the approximate size of an entry without its texts, in bytes.
const entryBytes = 600

// briefText is the length, in bytes, to which brief cuts an entry's texts.
const briefText = 256

// brief returns the entry without its documents and with its texts cut.
func (d *Decision) brief() Decision {
	out := *d
	if n := len(d.Input); n > 0 && out.AuditLevel != Basic {
		out.Input = []byte(`{"truncated":true,"bytes":` + strconv.Itoa(n) + `}`)
	} else {
		out.Input = nil
	}
	out.Trace, out.Explanation = nil, nil
	for _, s := range []*string{&out.Reason, &out.Error, &out.Resource.Path, &out.Resource.ID, &out.User.ID, &out.User.Email, &out.Action, &out.RequestID} {
		*s = truncate.Text(*s, briefText, "…")
	}
	return out
}

// example returns an entry with only the members that the refusals of this grade have in common.
func (d *Decision) example(by fold.Grade) Decision {
	out := d.brief()
	out.Input, out.RequestID, out.CallerID = nil, "", ""
	if by == fold.Equal {
		return out
	}
	out.User, out.Resource, out.Action, out.Error, out.Agent = User{}, Resource{Type: d.Resource.Type}, "", "", nil
	out.Reason = "refusals of one address, counted together"
	if by == fold.Rest {
		out = Decision{
			DecisionID: d.DecisionID, Environment: d.Environment, Decision: Deny, Effect: d.Effect, BouncerID: d.BouncerID, AuditLevel: Basic,
			Reason: "refusals of many kinds, counted together",
		}
	}
	return out
}

// foldEvery is how often the log checks for counts that are due.
const foldEvery = time.Second

// foldLoop writes the counts that are due until ctx ends.
func (l *DecisionLog) foldLoop(ctx context.Context) {
	for pause.For(ctx, foldEvery) {
		l.writeFolded(false)
	}
}

// beginFolding allows folding. Run calls it at its start.
func (l *DecisionLog) beginFolding() {
	l.folders.mu.Lock()
	defer l.folders.mu.Unlock()
	l.folders.open, l.folders.of = true, map[source]*fold.Folder[Decision]{}
}

// endFolding stops folding and writes all counts. Run calls it at its end.
func (l *DecisionLog) endFolding() {
	l.folders.mu.Lock()
	l.folders.open = false
	l.folders.mu.Unlock()
	l.writeFolded(true)
}

// writeFolded writes the counts that are due, or all. If the spool does not accept one, the
// count stays and grows.
func (l *DecisionLog) writeFolded(all bool) {
	l.folders.mu.Lock()
	open := maps.Clone(l.folders.of)
	l.folders.mu.Unlock()
	for s, f := range open {
		sums := f.Due(l.cfg.Now(), all)
		if len(sums) == 0 {
			continue
		}
		count := int64(0)
		for i := range sums {
			d := sums[i].Example
			d.DecisionID, d.Timestamp, d.Folded = sums[i].ID, sums[i].Last, folded(&sums[i])
			err := l.spool(false, l.encode(nil, s.tenant, &d))
			if err != nil {
				f.PutBack(l.cfg.Now(), sums[i:])
				break
			}
			count += sums[i].Count
		}
		l.cfg.Logger.Warn("refusals came too fast to log each one and were counted together", "tenant", s.tenant, "bouncer", s.bouncer, "refusals", count)
	}
}

// folded converts a sum to the member of an entry.
func folded(s *fold.Sum[Decision]) *FoldedCount {
	return &FoldedCount{Count: s.Count, First: s.First, Last: s.Last, By: string(s.Grade), Digest: hex.EncodeToString(s.Digest[:])}
}

// appendFolded writes the count of an entry.
func appendFolded(dst []byte, c *FoldedCount) []byte {
	dst = strconv.AppendInt(append(dst, `,"folded":{"count":`...), c.Count, 10)
	dst = c.First.UTC().Truncate(time.Microsecond).AppendFormat(append(dst, `,"first":"`...), time.RFC3339Nano)
	dst = c.Last.UTC().Truncate(time.Microsecond).AppendFormat(append(dst, `","last":"`...), time.RFC3339Nano)
	dst = appendString(append(dst, `","by":`...), c.By)
	dst = appendString(append(dst, `,"digest":`...), c.Digest)
	return append(dst, '}')
}
