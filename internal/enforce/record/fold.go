package record

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/pause"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
	"github.com/gatehouse-dev/gatehouse/internal/truncate"
)

// foldEvery is how often counted refusals are written.
const foldEvery = time.Second

// briefText is the maximum length of a text in a short event, in bytes.
const briefText = 256

// foldRefusal decides whether a refusal gets an event of its own. Events of requests that
// pass are never folded.
func (r *Recorder) foldRefusal(st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict) fold.Verdict {
	if v.Pass || v.Permits() {
		return fold.Own
	}
	d := &v.Decision
	resource, level := int64(0), ""
	if d.Resource != nil {
		resource, level = d.Resource.ID, d.Resource.AuditLevel
	}
	user := ""
	if who != nil && who.IsKnown() {
		user = who.ID + " " + st.Agents().Acting(who.Doc)
	}
	what := strconv.FormatInt(d.PolicyID, 10) + "/" + strconv.FormatInt(d.PolicyVersion, 10) + "/" + strconv.FormatInt(resource, 10) + "/" + level + "/" + v.Refusal.Code
	return r.folder.Add(r.now(), fold.Refusal{
		ID: v.ID, First: in.At, Last: in.At,
		Equal:  fold.Key(what, st.Environment, in.Client, user, in.Method, in.Host, in.Path, d.Reason, v.Refusal.Message, v.Failure),
		Alike:  fold.Key(what, st.Environment, in.Client),
		Origin: fold.Key(in.Client),
		Bytes:  eventBytes + len(in.Path) + len(in.Query) + len(d.Reason) + len(v.Explanation) + len(v.Trace) + bodyBytes(in.Seen),
	}, func(by fold.Grade) []byte { return r.exampleEvent(st, in, who, v, by) })
}

// eventBytes is roughly the size of an event without its texts.
const eventBytes = 900

// bodyBytes returns roughly how much of the body an event may repeat, in bytes.
func bodyBytes(s *request.Inspection) int {
	if s == nil {
		return 0
	}
	return len(s.Body)
}

// shorten copies a request and a verdict without their documents, and cuts their texts.
func shorten(in *request.Inbound, v *judge.Verdict) (*request.Inbound, *judge.Verdict) {
	req, verdict := *in, *v
	req.Seen, req.Query, req.Path, req.ID = nil, "", brief(in.Path), brief(in.ID)
	verdict.Explanation, verdict.Trace = nil, nil
	verdict.Decision.Reason, verdict.Refusal.Message, verdict.Failure = brief(v.Decision.Reason), brief(v.Refusal.Message), brief(v.Failure)
	return &req, &verdict
}

func brief(s string) string {
	return truncate.Text(s, briefText, "…")
}

// exampleEvent returns the event of refusals that are counted together. It holds what they have in
// common.
func (r *Recorder) exampleEvent(st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict, by fold.Grade) []byte {
	req, verdict := shorten(in, v)
	if by != fold.Equal {
		who, req.Path, req.Host, req.Method, req.ID, verdict.Failure = nil, "", "", "", "", ""
		verdict.Decision.Reason = "refusals of one address, counted together"
		verdict.Refusal.Message = verdict.Decision.Reason
	}
	if by == fold.Rest {
		req.Client = ""
		verdict.Decision = rego.Decision{Effect: rego.Deny, Reason: "refusals of many kinds, counted together"}
	}
	return r.appendEvent(nil, st, req, who, verdict, true)
}

// Run writes counted refusals until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for pause.For(ctx, foldEvery) {
		r.WriteFolded(false)
	}
	r.WriteFolded(true)
}

// WriteFolded writes the counts that are due, or all of them. A count that cannot be
// written is kept, and grows.
func (r *Recorder) WriteFolded(all bool) {
	now := r.now()
	sums := r.folder.Due(now, all)
	for i := range sums {
		if err := r.journal.Spool.AppendIfRoom(foldedEvent(&sums[i])); err != nil {
			r.folder.PutBack(now, sums[i:])
			return
		}
	}
	if len(sums) > 0 {
		r.log.Warn("too many refusals to log each one: they were counted together", "entries", len(sums))
	}
}

// foldedEvent returns the example event of a sum, with the count.
func foldedEvent(s *fold.Sum[[]byte]) []byte {
	event := strings.TrimSuffix(string(s.Example), "}}")
	return fmt.Appendf(nil, `%s,"folded":{"count":%d,"first":%q,"last":%q,"by":%q,"digest":%q}}}`, event, s.Count,
		s.First.UTC().Format(time.RFC3339Nano), s.Last.UTC().Format(time.RFC3339Nano), s.Grade, hex.EncodeToString(s.Digest[:]))
}
