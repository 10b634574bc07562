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

// desiredBundle is the bundle that a bouncer should run.
type desiredBundle struct {
	revision    int64
	publishedAt time.Time
	hash        string
	packed      *bundle.Packed // shared
	meta        value.Value
	masks       maskKey
	signed      bool
	items       []bouncer.Item // shared
	resources   []int64        // the resources that it protects, by id
	denies      bool           // paths without a control
}

// desk is the state of one bouncer in one replica. Polls wait at it.
type desk struct {
	id int64

	mu           sync.Mutex
	token        string        // digest
	awaited      bool          // the token is new, and no request has used it yet
	changed      chan struct{} // closed when target or token changes, then renewed
	gone         bool          // the bouncer was deleted, or its tenant is not served
	target       *desiredBundle
	active       int64 // the revision that it runs, as far as known
	waitingPolls int

	// The delivery of the target: the connection that got all of it.
	sentTo string
	// suspected is set if the bouncer requested the target again over the connection on which it
	// had been sent. refused is set if the bouncer refused it, as its status or its ETags showed.
	suspected, refused time.Time

	report report // the content of its last status

	// The last poll of a client that does not wait, and the gaps before it.
	polled time.Time
	gaps   [3]time.Duration
	gap    int
}

// How long a suspected refusal holds back a bundle, and how long a refusal does so if the bouncer
// has no bundle at all: it may have been updated since.
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
	return d.waitingPolls
}

// wake lets waiting polls check again. The caller holds mu.
func (d *desk) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// install applies the result of a refresh. It reports whether the token of a known
// bouncer has changed.
func (d *desk) install(b *bouncer.Bouncer, t *desiredBundle, stored bouncer.Bundle) (rotated bool) {
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
		if stored.Refused == t.revision && t.revision != 0 && slices.ContainsFunc(stored.Errors, hasPlace) {
			d.refused = stored.PublishedAt
		}
	}
	if moved || rotated {
		d.wake()
	}
	return rotated
}

// hasPlace reports whether a refusal locates the error in the bundle.
func hasPlace(r bouncer.Refusal) bool { return r.PolicyID != 0 || r.File != "" }

func (d *desk) close() {
	d.mu.Lock()
	d.gone = true
	d.wake()
	d.mu.Unlock()
}

// pollRequest is the part of a poll that decides its answer.
type pollRequest struct {
	token  string
	remote string  // the connection
	tags   []int64 // revisions in If-None-Match, in order; -1 for an unknown ETag
}

// pollAction is what to do with a poll.
type pollAction uint8

const (
	waitForChange pollAction = iota // nothing has changed yet
	sendBundle                      // send the target
	refusePoll                      // the token was revoked or the bouncer deleted
	raiseFirst                      // the bouncer has a revision that was never issued: raise the revision above it
)

// answer decides how to answer a poll, and records what the poll reveals: its first
// ETag is the revision that the bouncer runs, and a target among the others is one that
// it refused.
func (d *desk) answer(q *pollRequest, now time.Time) (v pollAction, note entry, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed = d.changed
	if d.gone || d.token != q.token {
		return refusePoll, note, changed
	}
	cur := d.target.revision
	switch {
	case len(q.tags) > 0 && q.tags[0] > cur && q.tags[0] < 1<<50:
		return raiseFirst, note, changed
	case len(q.tags) > 0 && q.tags[0] == cur:
		d.setActive(cur, &note)
		return waitForChange, note, changed
	}
	for _, tag := range q.tags {
		if tag == cur && d.refused.IsZero() {
			d.refuse(now, &note)
		}
	}
	switch {
	case !d.refused.IsZero():
		if len(q.tags) > 0 || now.Sub(d.refused) < refusalLasts {
			return waitForChange, note, changed
		}
	case !d.suspected.IsZero():
		if now.Sub(d.suspected) < suspicionLasts {
			return waitForChange, note, changed
		}
	case d.sentTo != "" && d.sentTo == q.remote:
		// A client uses a connection again only after it has read the last answer to
		// its end: the bundle arrived, but it is not the one that runs.
		d.suspected = now
		return waitForChange, note, changed
	}
	return sendBundle, note, changed
}

// setActive records that the bouncer runs its target. The caller holds mu.
func (d *desk) setActive(revision int64, note *entry) {
	again := !d.refused.IsZero() || !d.suspected.IsZero() // a refusal or suspicion must be cleared in the store too
	d.sentTo, d.suspected, d.refused, d.report.bundle = "", time.Time{}, time.Time{}, ""
	if d.active != revision || again {
		d.active, note.activated = revision, revision
	}
}

// refuse records that the bouncer does not accept its target, and so does not run it
// even if it did before. The caller holds mu.
func (d *desk) refuse(now time.Time, note *entry) {
	if d.refused.IsZero() {
		d.refused = now
	}
	if note.refused = d.target.revision; d.active == note.refused {
		d.active = 0
	}
}

// noteDelivery records that a chunk of the bouncer's decision log arrived.
func (d *desk) noteDelivery() {
	d.mu.Lock()
	d.report.logs = ""
	d.mu.Unlock()
}

// delivered records that all of the target was sent over a connection.
func (d *desk) delivered(revision int64, remote string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.target != nil && d.target.revision == revision {
		d.sentTo = remote
		d.suspected = time.Time{}
	}
}

func (d *desk) startWaiting() {
	d.mu.Lock()
	d.waitingPolls++
	d.mu.Unlock()
}

func (d *desk) stopWaiting() {
	d.mu.Lock()
	d.waitingPolls--
	d.mu.Unlock()
}

func (d *desk) currentTarget() *desiredBundle {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target
}

// tokenRotated is the detail of a bouncer that has not used its new token yet.
const tokenRotated = "its token was rotated, and it has not connected with the new one"

// status returns the state of a bouncer that is in touch.
func (d *desk) status() (status, detail string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.awaited: // requests with the old token were still in progress
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

// problem returns the reason for an alert; empty: none.
func (d *desk) problem() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report.trouble
}

// tagOf returns the ETag of a revision.
func tagOf(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// parseTags reads If-None-Match: revisions in their order.
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
