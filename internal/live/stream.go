package live

import (
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// decisionsEvery is the minimum time between two messages about decisions to one client.
const decisionsEvery = 2 * time.Second

// Stream has the changes that wait for one client. Only one goroutine may call its methods.
type Stream struct {
	service *Service
	hub     *hub
	owner   owner
	ready   chan struct{} // of capacity 1
	done    <-chan struct{}
	closing sync.Once

	mu      sync.Mutex
	scope   scope.Scope
	at      position // what the client has received
	latest  position // the position after pending
	order   []Change
	pending map[Change]changeRevision
	reload  bool
	sentAt  [gaugeCount]time.Time // when a change of decisions was last sent
}

// Message is what a client receives at once.
type Message struct {
	// Reload means that the changes are not known: the client must read everything again. Then
	// there are no Changes.
	Reload  bool
	Changes []VersionedChange
	// ID is the position after the message. Open continues from it.
	ID string
}

// VersionedChange is a change with a number that is different for each state of what changed.
type VersionedChange struct {
	Change
	Revision int64
}

// Ready receives a value when there is something to Take.
func (st *Stream) Ready() <-chan struct{} { return st.ready }

// Done is closed when the server stops.
func (st *Stream) Done() <-chan struct{} { return st.done }

// Close ends the stream.
func (st *Stream) Close() {
	st.closing.Do(func() {
		st.hub.remove(st)
		st.service.uncountStream(st.hub, st.owner)
	})
}

// add adds the result of a read, which ended at the position to.
func (st *Stream) add(n update, to position) {
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
		st.pending[c] = n.revisions[i]
		st.reload = len(st.order) > maxPending
	}
	if st.reload {
		clear(st.pending)
		st.order = nil
	}
	if st.reload || len(st.order) > 0 {
		select {
		case st.ready <- struct{}{}:
		default:
		}
	}
}

// Position returns the position of the client, as the id of a message.
func (st *Stream) Position() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.position()
}

func (st *Stream) position() string { return st.at.shownTo(st.scope).String() }

// Take returns the pending changes that the scope may see now; false if there are none. Changes of
// decisions stay pending if the client received some less than decisionsEvery ago.
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
		if c.Topic == Decisions && of.gauge < gaugeCount {
			if since := now.Sub(st.sentAt[of.gauge]); since >= 0 && since < decisionsEvery {
				return false
			}
			st.sentAt[of.gauge] = now
		}
		delete(st.pending, c)
		if of.gauge < gaugeCount {
			st.at.gauges[of.gauge] = of.revision
		}
		if c.seenIn(sc) {
			m.Changes = append(m.Changes, VersionedChange{c, of.revision})
		}
		return true
	})
	m.ID = st.position()
	return m, len(m.Changes) > 0
}
