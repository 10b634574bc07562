package record

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/judge"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// foldEvery is how often counted refusals are written.
const foldEvery = time.Second

// briefText is how many bytes of a text a short event keeps.
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
	if who != nil && who.Proven() {
		user = who.ID + " " + who.AgentID()
	}
	what := strconv.FormatInt(d.PolicyID, 10) + "/" + strconv.FormatInt(d.PolicyVersion, 10) + "/" + strconv.FormatInt(resource, 10) + "/" + level + "/" + v.Refusal.Code
	return r.folder.Offer(r.now(), fold.Refusal{
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
	told, said := *in, *v
	told.Seen, told.Query, told.Path, told.ID = nil, "", truncate(in.Path), truncate(in.ID)
	said.Explanation, said.Trace = nil, nil
	said.Decision.Reason, said.Refusal.Message, said.Failure = truncate(v.Decision.Reason), truncate(v.Refusal.Message), truncate(v.Failure)
	return &told, &said
}

func truncate(s string) string {
	if len(s) <= briefText {
		return s
	}
	return strings.ToValidUTF8(s[:briefText], "") + "…"
}

// exampleEvent returns the event of refusals that are counted together. It holds what they have in
// common.
func (r *Recorder) exampleEvent(st *settings.State, in *request.Inbound, who *identity.Caller, v *judge.Verdict, by fold.Grade) []byte {
	told, said := shorten(in, v)
	if by != fold.Equal {
		who, told.Path, told.Host, told.Method, told.ID, said.Failure = nil, "", "", "", "", ""
		said.Decision.Reason = "refusals of one address, counted together"
		said.Refusal.Message = said.Decision.Reason
	}
	if by == fold.Rest {
		told.Client = ""
		said.Decision = rego.Decision{Effect: rego.Deny, Reason: "refusals of many kinds, counted together"}
	}
	return r.appendEvent(nil, st, told, who, said, true)
}

// Run writes counted refusals until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for ids.Pause(ctx, foldEvery) {
		r.WriteFolded(false)
	}
	r.WriteFolded(true)
}

// WriteFolded writes the counts that are due, or all of them. If the log does not accept a count,
// it is kept and continues.
func (r *Recorder) WriteFolded(all bool) {
	now := r.now()
	sums := r.folder.Due(now, all)
	for i := range sums {
		if err := r.journal.Spool.AppendIfRoom(foldedEvent(&sums[i])); err != nil {
			r.folder.Return(now, sums[i:])
			return
		}
	}
	if len(sums) > 0 {
		r.log.Warn("refusals came too fast to log each one and were counted together", "entries", len(sums))
	}
}

// foldedEvent returns the example event of a sum, with the count.
func foldedEvent(s *fold.Sum[[]byte]) []byte {
	event := strings.TrimSuffix(string(s.Example), "}}")
	return fmt.Appendf(nil, `%s,"folded":{"count":%d,"first":%q,"last":%q,"by":%q,"digest":%q}}}`, event, s.Count,
		s.First.UTC().Format(time.RFC3339Nano), s.Last.UTC().Format(time.RFC3339Nano), s.Grade, hex.EncodeToString(s.Digest[:]))
}
