package live

import (
	"context"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// hub reads what changed in one tenant, once for all its streams.
type hub struct {
	service *Service
	tenant  scope.TenantID
	stop    context.CancelFunc
	ended   <-chan struct{}
	woken   chan struct{} // of capacity 1
	members int           // guarded by Service.mu

	reading sync.Mutex // held for a read and what follows from it

	mu      sync.Mutex
	at      position
	known   bool // whether at was read yet
	streams map[*Stream]struct{}
}

// change is what a stream is told beside which Change it is.
type change struct {
	revision int64
	gauge    gauge // gauges: the log tells of it
}

// news is what one read found.
type news struct {
	changes []Change
	of      []change
	reload  bool
}

func (n *news) add(c Change, of change) {
	n.changes, n.of = append(n.changes, c), append(n.of, of)
}

func (h *hub) wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// run reads at each tick and whenever it is woken, until the hub ends.
func (h *hub) run(ctx context.Context) {
	every := h.service.Tick
	if every <= 0 {
		every = 2 * time.Second
	}
	clock := time.NewTicker(every)
	defer clock.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	failing := false
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
			all = true
		case <-h.woken:
		}
		err := h.refresh(ctx, all)
		if err != nil && !failing && ctx.Err() == nil {
			h.service.Log.Warn("changes cannot be read for open consoles", "tenant", h.tenant, "error", err)
		}
		failing = err != nil
		rest.Reset(lull)
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
	}
}

// refresh reads what changed and tells the streams. Decisions, which change all the
// time, are looked at where all is set.
func (h *hub) refresh(ctx context.Context, all bool) error {
	h.reading.Lock()
	defer h.reading.Unlock()
	h.mu.Lock()
	from, known := h.at, h.known
	h.mu.Unlock()
	to := position{}
	var found news
	err := h.service.Stores.Read(ctx, h.tenant, func(tx *db.Tx) (err error) {
		to = position{gauges: from.gauges}
		found = news{}
		if to.seq, err = lastEntry(ctx, tx); err != nil {
			return err
		}
		if err := readGauges(ctx, tx, &to); err != nil {
			return err
		}
		if all || !known {
			if err := readDecisions(ctx, tx, h.service.Now(), &to); err != nil {
				return err
			}
		}
		if known {
			found, err = between(ctx, tx, from, to)
		}
		return err
	})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.known = to, true
	for st := range h.streams {
		st.add(found, to)
	}
	return nil
}

// between is what happened from one position to another.
func between(ctx context.Context, tx *db.Tx, from, to position) (news, error) {
	var n news
	if from.seq > to.seq { // the store is an older one, of a backup
		n.reload = true
		return n, nil
	}
	for g, now := range to.gauges {
		if from.gauges[g] != now {
			n.add(tells[g], change{revision: now, gauge: gauge(g)})
		}
	}
	if from.seq == to.seq {
		return n, nil
	}
	entries, err := entriesBetween(ctx, tx, from.seq, to.seq, maxEntries+1)
	if err != nil {
		return n, err
	}
	if len(entries) > maxEntries || len(entries) == 0 || entries[0].Seq != from.seq+1 { // some are kept no more
		n.reload = true
		return n, nil
	}
	shelf, err := libraries(ctx, tx)
	if err != nil {
		return n, err
	}
	for _, e := range entries {
		for _, c := range e.changes(e.Object == "policy" && shelf[e.ObjectID]) {
			n.add(c, change{revision: e.Seq, gauge: gauges})
		}
	}
	return n, nil
}

// join adds a stream whose client stands at the position of an id; empty: here.
func (h *hub) join(ctx context.Context, st *Stream, sc scope.Scope, id string) error {
	if err := h.refresh(ctx, false); err != nil {
		return err
	}
	h.reading.Lock() // so that at stays
	defer h.reading.Unlock()
	h.mu.Lock()
	at := h.at
	h.mu.Unlock()
	st.scope, st.at, st.latest = sc, at, at
	if id != "" {
		missed := news{reload: true}
		if from, ok := parsePosition(id); ok {
			err := h.service.Stores.Read(ctx, h.tenant, func(tx *db.Tx) (err error) {
				missed, err = between(ctx, tx, from, at)
				return err
			})
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
