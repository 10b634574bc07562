package enforce

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/identity"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/ids"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/settings"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/rego"
)

// foldEvery is how often we look for counts of refusals that are due.
const foldEvery = time.Second

// briefText is how much of a text, in bytes, an event keeps while bytes are scarce.
const briefText = 256

// foldRefusal says what becomes of a refusal's event. What passes is never folded.
func (b *Bouncer) foldRefusal(st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict) fold.Verdict {
	if v.pass || v.permits() {
		return fold.Own
	}
	d := &v.dec
	resource, level := int64(0), ""
	if d.Resource != nil {
		resource, level = d.Resource.ID, d.Resource.AuditLevel
	}
	user := ""
	if who != nil && who.Proven() {
		user = who.ID
	}
	what := strconv.FormatInt(d.PolicyID, 10) + "/" + strconv.FormatInt(d.PolicyVersion, 10) + "/" + strconv.FormatInt(resource, 10) + "/" + level + "/" + v.no.Code
	return b.folder.Offer(b.cfg.Now(), fold.Refusal{
		ID: v.id, First: in.At, Last: in.At,
		Equal:  fold.Key(what, st.Environment, in.Client, user, in.Method, in.Host, in.Path, d.Reason, v.no.Message, v.failed),
		Alike:  fold.Key(what, st.Environment, in.Client),
		Origin: fold.Key(in.Client),
		Bytes:  eventBytes + len(in.Path) + len(in.Query) + len(d.Reason) + len(v.why) + len(v.trace) + bodyBytes(in.Seen),
	}, func(by fold.Grade) []byte { return b.exampleEvent(st, in, who, v, by) })
}

// eventBytes is about what an event takes without its texts.
const eventBytes = 900

// bodyBytes is about how much of the body an event may repeat, in bytes.
func bodyBytes(s *request.Inspection) int {
	if s == nil {
		return 0
	}
	return len(s.Body)
}

// shorten is a request and a verdict without documents, their texts cut.
func shorten(in *request.Inbound, v *verdict) (*request.Inbound, *verdict) {
	told, said := *in, *v
	told.Seen, told.Query, told.Path, told.ID = nil, "", cut(in.Path), cut(in.ID)
	said.why, said.trace = nil, nil
	said.dec.Reason, said.no.Message, said.failed = cut(v.dec.Reason), cut(v.no.Message), cut(v.failed)
	return &told, &said
}

func cut(s string) string {
	if len(s) <= briefText {
		return s
	}
	return strings.ToValidUTF8(s[:briefText], "") + "…"
}

// exampleEvent is the event of refusals that are counted together: what they have in common.
func (b *Bouncer) exampleEvent(st *settings.State, in *request.Inbound, who *identity.Caller, v *verdict, by fold.Grade) []byte {
	told, said := shorten(in, v)
	if by != fold.Equal {
		who, told.Path, told.Host, told.Method, told.ID, said.failed = nil, "", "", "", "", ""
		said.dec.Reason = "refusals of one address, counted together"
		said.no.Message = said.dec.Reason
	}
	if by == fold.Rest {
		told.Client = ""
		said.dec = rego.Decision{Effect: rego.Deny, Reason: "refusals of many kinds, counted together"}
	}
	return b.appendEvent(nil, st, told, who, said, true)
}

// foldLoop writes the events of refusals that were counted, until ctx ends.
func (b *Bouncer) foldLoop(ctx context.Context) {
	for ids.Pause(ctx, foldEvery) {
		b.writeFolded(false)
	}
	b.writeFolded(true)
}

// writeFolded writes the counts that are due, or all. Where the spool takes none, a
// count stays and grows.
func (b *Bouncer) writeFolded(all bool) {
	now := b.cfg.Now()
	sums := b.folder.Due(now, all)
	for i := range sums {
		if err := b.journal.Spool.AppendIfRoom(foldedEvent(&sums[i])); err != nil {
			b.folder.Return(now, sums[i:])
			return
		}
	}
	if len(sums) > 0 {
		b.log.Warn("refusals came too fast to log each one and were counted together", "entries", len(sums))
	}
}

// foldedEvent is the example of a sum with its count.
func foldedEvent(s *fold.Sum[[]byte]) []byte {
	event := strings.TrimSuffix(string(s.Example), "}}")
	return fmt.Appendf(nil, `%s,"folded":{"count":%d,"first":%q,"last":%q,"by":%q,"digest":%q}}}`, event, s.Count,
		s.First.UTC().Format(time.RFC3339Nano), s.Last.UTC().Format(time.RFC3339Nano), s.Grade, hex.EncodeToString(s.Digest[:]))
}
