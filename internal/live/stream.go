package live

import (
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// decisionsEvery is how often a client is told of decisions at most.
const decisionsEvery = 2 * time.Second

// Stream is what waits for one client. Its methods may be called from one goroutine.
type Stream struct {
	service *Service
	hub     *hub
	owner   owner
	woken   chan struct{} // of capacity 1
	done    <-chan struct{}
	closing sync.Once

	mu      sync.Mutex
	scope   scope.Scope
	at      position // what the client was told; the log up to seq
	latest  position // up to where pending tells
	order   []Change
	pending map[Change]change
	reload  bool
	told    [gauges]time.Time // when decisions were told last
}

// Message is what a client is told at once.
type Message struct {
	// Reload is set where more changed than is known: everything is to be read anew.
	// There are no Changes then.
	Reload  bool
	Changes []Told
	// ID is the position after it: Open goes on from there.
	ID string
}

// Told is a change and a number that differs with each state of what changed.
type Told struct {
	Change
	Revision int64
}

// Woken gets a value once there is something to Take.
func (st *Stream) Woken() <-chan struct{} { return st.woken }

// Done is closed once the server ends.
func (st *Stream) Done() <-chan struct{} { return st.done }

// Close ends the stream.
func (st *Stream) Close() {
	st.closing.Do(func() {
		st.hub.remove(st)
		st.service.release(st.hub, st.owner)
	})
}

// add adds what a read found, which tells up to the position to.
func (st *Stream) add(n news, to position) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.latest = to
	st.reload = st.reload || n.reload
	for i, c := range n.changes {
		if st.reload {
			break
		}
		if !c.seenIn(st.scope) {
			continue
		}
		c = c.shownTo(st.scope)
		if _, waits := st.pending[c]; !waits {
			st.order = append(st.order, c)
		}
		st.pending[c] = n.of[i]
		st.reload = len(st.order) > maxPending
	}
	if st.reload {
		clear(st.pending)
		st.order = nil
	}
	if st.reload || len(st.order) > 0 {
		select {
		case st.woken <- struct{}{}:
		default:
		}
	}
}

// Position is where the client stands, as the id of a message.
func (st *Stream) Position() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.position()
}

func (st *Stream) position() string { return st.at.shownTo(st.scope).String() }

// Take gives what waits, as the scope may know it now; false where there is
// nothing. Decisions of which the client was told a moment ago wait on.
func (st *Stream) Take(sc scope.Scope) (Message, bool) {
	now := st.service.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.scope = sc
	st.at.seq = st.latest.seq
	if st.reload {
		st.at, st.reload = st.latest, false
		return Message{Reload: true, ID: st.position()}, true
	}
	var m Message
	st.order = slices.DeleteFunc(st.order, func(c Change) bool {
		of := st.pending[c]
		if c.Topic == Decisions && of.gauge < gauges {
			if since := now.Sub(st.told[of.gauge]); since >= 0 && since < decisionsEvery {
				return false
			}
			st.told[of.gauge] = now
		}
		delete(st.pending, c)
		if of.gauge < gauges {
			st.at.gauges[of.gauge] = of.revision
		}
		if c.seenIn(sc) {
			m.Changes = append(m.Changes, Told{c, of.revision})
		}
		return true
	})
	m.ID = st.position()
	return m, len(m.Changes) > 0
}
