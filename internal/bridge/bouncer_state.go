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
	agents      *sentAgents // nil: none
	masks       maskKey
	signed      bool
	items       []bouncer.Item // shared
	resources   []int64        // the resources that it protects, by id
	denies      bool           // paths without a control
}

// bouncerState is the state of one bouncer in one replica. Polls wait at it.
type bouncerState struct {
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

func newBouncerState(id int64) *bouncerState {
	return &bouncerState{id: id, changed: make(chan struct{})}
}

// useToken reports whether a request has the token of the bouncer. The first such request ends the
// wait for a new token.
func (bs *bouncerState) useToken(token string) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	known := bs.token == token
	bs.awaited = bs.awaited && !known
	return known
}

func (bs *bouncerState) waiting() int {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.waitingPolls
}

// wake lets waiting polls check again. The caller holds mu.
func (bs *bouncerState) wake() {
	close(bs.changed)
	bs.changed = make(chan struct{})
}

// install applies the result of a refresh. It reports whether the token of a known
// bouncer has changed.
func (bs *bouncerState) install(b *bouncer.Bouncer, t *desiredBundle, stored bouncer.Bundle) (rotated bool) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	rotated = bs.token != "" && bs.token != b.TokenDigest
	bs.awaited = bs.awaited || rotated
	bs.token = b.TokenDigest
	moved := bs.target == nil || bs.target.revision != t.revision
	bs.target = t
	if stored.Active > bs.active {
		bs.active = stored.Active
	}
	if moved {
		bs.sentTo = ""
		bs.suspected, bs.refused = time.Time{}, time.Time{}
		if stored.Refused == t.revision && t.revision != 0 && slices.ContainsFunc(stored.Errors, hasLocation) {
			bs.refused = stored.PublishedAt
		}
	}
	if moved || rotated {
		bs.wake()
	}
	return rotated
}

// hasLocation reports whether a refusal locates the error in the bundle.
func hasLocation(r bouncer.Refusal) bool { return r.PolicyID != 0 || r.File != "" }

func (bs *bouncerState) close() {
	bs.mu.Lock()
	bs.gone = true
	bs.wake()
	bs.mu.Unlock()
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
	raiseRevision                   // the bouncer has a revision that was never issued: raise the revision above it
)

// answer decides how to answer a poll, and records what the poll reveals: its first
// ETag is the revision that the bouncer runs, and a target among the others is one that
// it refused.
func (bs *bouncerState) answer(q *pollRequest, now time.Time) (v pollAction, note activity, changed <-chan struct{}) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	changed = bs.changed
	if bs.gone || bs.token != q.token {
		return refusePoll, note, changed
	}
	cur := bs.target.revision
	switch {
	case len(q.tags) > 0 && q.tags[0] > cur && q.tags[0] < 1<<50:
		return raiseRevision, note, changed
	case len(q.tags) > 0 && q.tags[0] == cur:
		bs.setActive(cur, &note)
		return waitForChange, note, changed
	}
	for _, tag := range q.tags {
		if tag == cur && bs.refused.IsZero() {
			bs.refuse(now, &note)
		}
	}
	switch {
	case !bs.refused.IsZero():
		if len(q.tags) > 0 || now.Sub(bs.refused) < refusalLasts {
			return waitForChange, note, changed
		}
	case !bs.suspected.IsZero():
		if now.Sub(bs.suspected) < suspicionLasts {
			return waitForChange, note, changed
		}
	case bs.sentTo != "" && bs.sentTo == q.remote:
		// A client uses a connection again only after it has read the last answer to
		// its end: the bundle arrived, but it is not the one that runs.
		bs.suspected = now
		return waitForChange, note, changed
	}
	return sendBundle, note, changed
}

// setActive records that the bouncer runs its target. The caller holds mu.
func (bs *bouncerState) setActive(revision int64, note *activity) {
	again := !bs.refused.IsZero() || !bs.suspected.IsZero() // a refusal or suspicion must be cleared in the store too
	bs.sentTo, bs.suspected, bs.refused, bs.report.bundle = "", time.Time{}, time.Time{}, ""
	if bs.active != revision || again {
		bs.active, note.activated = revision, revision
	}
}

// refuse records that the bouncer does not accept its target, and so does not run it
// even if it did before. The caller holds mu.
func (bs *bouncerState) refuse(now time.Time, note *activity) {
	if bs.refused.IsZero() {
		bs.refused = now
	}
	if note.refused = bs.target.revision; bs.active == note.refused {
		bs.active = 0
	}
}

// noteDelivery records that a chunk of the bouncer's decision log arrived.
func (bs *bouncerState) noteDelivery() {
	bs.mu.Lock()
	bs.report.logs = ""
	bs.mu.Unlock()
}

// delivered records that all of the target was sent over a connection.
func (bs *bouncerState) delivered(revision int64, remote string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	if bs.target != nil && bs.target.revision == revision {
		bs.sentTo = remote
		bs.suspected = time.Time{}
	}
}

func (bs *bouncerState) startWaiting() {
	bs.mu.Lock()
	bs.waitingPolls++
	bs.mu.Unlock()
}

func (bs *bouncerState) stopWaiting() {
	bs.mu.Lock()
	bs.waitingPolls--
	bs.mu.Unlock()
}

func (bs *bouncerState) currentTarget() *desiredBundle {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.target
}

// tokenRotated is the detail of a bouncer that has not used its new token yet.
const tokenRotated = "its token was rotated, and it has not connected with the new one"

// status returns the state of a bouncer that is in touch.
func (bs *bouncerState) status() (status, detail string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	switch {
	case bs.awaited: // requests with the old token were still in progress
		return bouncer.Degraded, tokenRotated
	case !bs.refused.IsZero():
		return bouncer.Degraded, "it refused revision " + strconv.FormatInt(bs.target.revision, 10)
	case bs.report.bundle != "":
		return bouncer.Degraded, bs.report.bundle
	case bs.report.trouble != "":
		return bouncer.Degraded, bs.report.trouble
	case bs.report.logs != "":
		return bouncer.Degraded, bs.report.logs
	case bs.report.other != "":
		return bouncer.Degraded, bs.report.other
	}
	return bouncer.Connected, ""
}

// problem returns the reason for an alert; empty: none.
func (bs *bouncerState) problem() string {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.report.trouble
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
