package bridge

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/bouncer"

	"github.com/gatehouse-dev/gatehouse/internal/rego/bundle"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
)

// target is the bundle that a bouncer should run.
type target struct {
	revision    int64
	publishedAt time.Time
	hash        string
	packed      *bundle.Packed // shared
	meta        value.Value
	masks       maskKey
	signed      bool
	items       []bouncer.Item // shared
	resources   []int64        // that it stands before, by id
	denies      bool           // what no control covers
}

// desk is what a replica knows of one bouncer. Polls park at it.
type desk struct {
	id int64

	mu      sync.Mutex
	token   string        // digest
	awaited bool          // token is new, and nobody has come with it yet
	changed chan struct{} // closed when target or token changed, then renewed
	gone    bool          // the bouncer was deleted, or its tenant is not served
	target  *target
	active  int64 // the revision that it runs, as far as we know
	parked  int

	// The delivery of the target: to which connection, whole.
	sentTo string
	// suspected: it was asked for again over the very connection on which it had
	// arrived. refused: the bouncer said so, in its status or by its tags.
	suspected, refused time.Time

	report report // what its status said last

	// The last poll of a client that does not wait, and the gaps before it.
	polled time.Time
	gaps   [3]time.Duration
	gap    int
}

// How long a suspicion keeps a bundle back, and how long a refusal does so from
// a bouncer that has none at all: it may be a newer program by then.
const (
	suspicionLasts = time.Minute
	refusalLasts   = 10 * time.Minute
)

func newDesk(id int64) *desk { return &desk{id: id, changed: make(chan struct{})} }

func (d *desk) hasToken(token string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.token == token
	d.awaited = d.awaited && !known
	return known
}

func (d *desk) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parked
}

// wake lets parked polls look again. Caller holds mu.
func (d *desk) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// install takes over what a refresh found. It reports whether the token of a
// bouncer that is known here is another one now.
func (d *desk) install(b *bouncer.Bouncer, t *target, stored bouncer.Bundle) (rotated bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rotated = d.token != "" && d.token != b.TokenDigest
	d.awaited = d.awaited || rotated
	d.token = b.TokenDigest
	moved := d.target == nil || d.target.revision != t.revision
	d.target = t
	if stored.Active > d.active {
		d.active = stored.Active
	}
	if moved {
		d.sentTo = ""
		d.suspected, d.refused = time.Time{}, time.Time{}
		if stored.Refused == t.revision && t.revision != 0 && slices.ContainsFunc(stored.Errors, placed) {
			d.refused = stored.PublishedAt
		}
	}
	if moved || rotated {
		d.wake()
	}
	return rotated
}

// placed reports whether a refusal names what is wrong in the bundle itself.
func placed(r bouncer.Refusal) bool { return r.PolicyID != 0 || r.File != "" }

func (d *desk) close() {
	d.mu.Lock()
	d.gone = true
	d.wake()
	d.mu.Unlock()
}

// question is what a poll says of itself.
type question struct {
	token  string
	remote string  // the connection
	tags   []int64 // revisions in If-None-Match, in order; -1 where not one of ours
}

// what a poll is to be answered.
type verdict uint8

const (
	park   verdict = iota // there is nothing for it now
	send                  // the target
	leave                 // its token or its bouncer is gone
	behind                // it has a revision that was never given: grow beyond it
)

// answer decides on a poll, and notes what the poll tells: its first tag is the
// revision that the bouncer runs, and a target among the
// others is one that it refused.
func (d *desk) answer(q *question, now time.Time) (v verdict, note entry, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = d.changed
	if d.gone || d.token != q.token {
		return leave, note, changed
	}
	cur := d.target.revision
	switch {
	case len(q.tags) > 0 && q.tags[0] > cur && q.tags[0] < 1<<50:
		return behind, note, changed
	case len(q.tags) > 0 && q.tags[0] == cur:
		d.setActive(cur, &note)
		return park, note, changed
	}
	for _, tag := range q.tags {
		if tag == cur && d.refused.IsZero() {
			d.refuse(now, &note)
		}
	}
	switch {
	case !d.refused.IsZero():
		if len(q.tags) > 0 || now.Sub(d.refused) < refusalLasts {
			return park, note, changed
		}
	case !d.suspected.IsZero():
		if now.Sub(d.suspected) < suspicionLasts {
			return park, note, changed
		}
	case d.sentTo != "" && d.sentTo == q.remote:
		// A connection is asked over again only when its last answer was read to
		// the end: the bundle arrived, and yet it is not what runs.
		d.suspected = now
		return park, note, changed
	}
	return send, note, changed
}

// setActive notes that the bouncer runs its target. Caller holds mu.
func (d *desk) setActive(revision int64, note *entry) {
	again := !d.refused.IsZero() || !d.suspected.IsZero() // what is written of that must go
	d.sentTo, d.suspected, d.refused, d.report.bundle = "", time.Time{}, time.Time{}, ""
	if d.active != revision || again {
		d.active, note.activated = revision, revision
	}
}

// refuse notes that the bouncer takes its target not, and so does not run it even
// if it did before. Caller holds mu.
func (d *desk) refuse(now time.Time, note *entry) {
	if d.refused.IsZero() {
		d.refused = now
	}
	if note.refused = d.target.revision; d.active == note.refused {
		d.active = 0
	}
}

// noteDelivery notes that a chunk of its decision log has come.
func (d *desk) noteDelivery() {
	d.mu.Lock()
	d.report.logs = ""
	d.mu.Unlock()
}

// delivered notes that the target went out whole over a connection.
func (d *desk) delivered(revision int64, remote string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.target != nil && d.target.revision == revision {
		d.sentTo = remote
		d.suspected = time.Time{}
	}
}

func (d *desk) enter() {
	d.mu.Lock()
	d.parked++
	d.mu.Unlock()
}

func (d *desk) exit() {
	d.mu.Lock()
	d.parked--
	d.mu.Unlock()
}

// now gives the target.
func (d *desk) now() *target {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target
}

// tokenRotated is the detail of a bouncer that has yet to come with its new token.
const tokenRotated = "its token was rotated; it has not come back with the new one"

// status is how a bouncer that is in touch does.
func (d *desk) status() (status, detail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.awaited: // what still comes in with the old token was under way
		return bouncer.Degraded, tokenRotated
	case !d.refused.IsZero():
		return bouncer.Degraded, "it refused revision " + strconv.FormatInt(d.target.revision, 10)
	case d.report.bundle != "":
		return bouncer.Degraded, d.report.bundle
	case d.report.trouble != "":
		return bouncer.Degraded, d.report.trouble
	case d.report.logs != "":
		return bouncer.Degraded, d.report.logs
	case d.report.other != "":
		return bouncer.Degraded, d.report.other
	}
	return bouncer.Connected, ""
}

// trouble is what people are alerted to; empty: nothing.
func (d *desk) trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report.trouble
}

// tagOf is the ETag of a revision.
func tagOf(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// parseTags reads If-None-Match: revisions in the order they stand.
func parseTags(header []string) []int64 {
	var out []int64
	for _, line := range header {
		for part := range strings.SplitSeq(line, ",") {
			part = strings.Trim(strings.TrimPrefix(strings.TrimSpace(part), "W/"), `"`)
			n, err := strconv.ParseInt(part, 10, 64)
			if err != nil || n < 0 {
				n = -1
			}
			out = append(out, n)
			if len(out) == 20 {
				return out
			}
		}
	}
	return out
}
