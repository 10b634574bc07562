package live

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// hub reads the changes of one tenant, once for all its streams.
type hub struct {
	service *Service
	tenant  scope.TenantID
	stop    context.CancelFunc
	ended   <-chan struct{}
	wakeup  chan struct{} // of capacity 1
	members int           // guarded by Service.mu

	reading sync.Mutex // held while changes are read and distributed

	mu      sync.Mutex
	at      position
	loaded  bool // at has been read
	streams map[*Stream]struct{}
}

// changeRevision is a Change with its revision and its gauge.
type changeRevision struct {
	revision int64
	gauge    gauge // the value gauges: the change comes from the log
}

// update is the result of one read. of has the revisions of changes.
type update struct {
	changes   []Change
	revisions []changeRevision
	reload    bool
}

func (n *update) add(c Change, of changeRevision) {
	n.changes, n.revisions = append(n.changes, c), append(n.revisions, of)
}

func (h *hub) wake() {
	select {
	case h.wakeup <- struct{}{}:
	default:
	}
}

// run reads at each tick and after each wake, until the hub ends.
func (h *hub) run(ctx context.Context) {
	every := h.service.Tick
	if every <= 0 {
		every = 2 * time.Second
	}
	clock := time.NewTicker(every)
	defer clock.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	failing := false
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
			all = true
		case <-h.wakeup:
		}
		err := h.refresh(ctx, all)
		if err != nil && !failing && ctx.Err() == nil {
			h.service.Log.Warn("reading changes for open consoles failed", "tenant", h.tenant, "error", err)
		}
		failing = err != nil
		pause.Reset(pauseAfterRead)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// refresh reads what changed and adds it to the streams. It reads the gauges of decisions only if
// all is true, because they change all the time.
func (h *hub) refresh(ctx context.Context, all bool) error {
	h.reading.Lock()
	defer h.reading.Unlock()
	h.mu.Lock()
	from, loaded := h.at, h.loaded
	h.mu.Unlock()
	to := position{}
	var found update
	err := h.service.Stores.Read(ctx, h.tenant, func(tx *db.Tx) (err error) {
		to = position{gauges: from.gauges}
		found = update{}
		if to.seq, err = lastEntry(ctx, tx); err != nil {
			return err
		}
		if err := readGauges(ctx, tx, &to); err != nil {
			return err
		}
		if all || !loaded {
			if err := readDecisions(ctx, tx, h.service.Now(), &to); err != nil {
				return err
			}
		}
		if loaded {
			found, err = between(ctx, tx, from, to)
		}
		return err
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.loaded = to, true
	for st := range h.streams {
		st.add(found, to)
	}
	return nil
}

// between returns what changed from one position to another.
func between(ctx context.Context, tx *db.Tx, from, to position) (update, error) {
	var n update
	if from.seq > to.seq { // the store was restored from a backup
		n.reload = true
		return n, nil
	}
	for g, now := range to.gauges {
		if from.gauges[g] != now {
			n.add(gaugeChanges[g], changeRevision{revision: now, gauge: gauge(g)})
		}
	}
	if from.seq == to.seq {
		return n, nil
	}
	entries, err := entriesBetween(ctx, tx, from.seq, to.seq, maxEntries+1)
	if err != nil {
		return n, err
	}
	if len(entries) > maxEntries || len(entries) == 0 || entries[0].Seq != from.seq+1 { // some entries were deleted
		n.reload = true
		return n, nil
	}
	libs, err := libraries(ctx, tx)
	if err != nil {
		return n, err
	}
	for _, e := range entries {
		for _, c := range e.changes(e.Object == "policy" && libs[e.ObjectID]) {
			n.add(c, changeRevision{revision: e.Seq, gauge: gaugeCount})
		}
	}
	return n, nil
}

// join adds a stream. id is the position of its client; empty: the current position.
func (h *hub) join(ctx context.Context, st *Stream, sc scope.Scope, id string) error {
	if err := h.refresh(ctx, false); err != nil {
		return err
	}
	h.reading.Lock() // so that at does not change
	defer h.reading.Unlock()
	h.mu.Lock()
	at := h.at
	h.mu.Unlock()
	st.scope, st.at, st.latest = sc, at, at
	if id != "" {
		missed := update{reload: true}
		if from, ok := parsePosition(id); ok {
			var err error
			missed, err = db.Read(ctx, h.service.Stores, h.tenant, func(tx *db.Tx) (update, error) { return between(ctx, tx, from, at) })
			if err != nil {
				return err
			}
			st.at.gauges = from.gauges
		}
		st.add(missed, at)
	}
	h.mu.Lock()
	h.streams[st] = struct{}{}
	h.mu.Unlock()
	return nil
}

func (h *hub) remove(st *Stream) {
	h.mu.Lock()
	delete(h.streams, st)
	h.mu.Unlock()
}
