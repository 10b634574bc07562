package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Report is the result of Verify for both logs.
type Report struct {
	Valid     bool        `json:"valid" doc:"True when every chain is intact."`
	CheckedAt time.Time   `json:"checked_at"`
	Chains    []ChainInfo `json:"chains"`
}

// ChainInfo is the part of a report about one chain: the administrative log is one chain, the
// decision log has one for each audit level.
type ChainInfo struct {
	Name    string `json:"name" doc:"events, or decisions.<audit level>."`
	Valid   bool   `json:"valid"`
	Checked int64  `json:"checked" doc:"Number of rows read."`
	// Head is the hash of the newest row. A copy kept elsewhere later proves that no row up to
	// it was changed.
	Head   string  `json:"head"`
	Breaks []Break `json:"breaks" doc:"Entries where the chain is broken; at most 100."`
}

// Break is a place where a chain is broken.
type Break struct {
	// Kind is edited (the content or position of this row has changed), removed (rows before it
	// are missing) or head (the newest rows are missing or have changed).
	Kind string `json:"kind" enum:"edited,removed,head"`
	// Position counts the rows of the chain from 1.
	Position int64  `json:"position"`
	ID       string `json:"id" doc:"The decision_id or the event's id of the row."`
	Message  string `json:"message"`
}

const maxBreaks = 100

// Verify reads both logs of the tenant from end to end, in small transactions, and recomputes
// every hash. It ignores rows that arrive meanwhile.
func (rd *Reader) Verify(ctx context.Context, sc scope.Scope) (Report, error) {
	store, err := rd.cluster.Tenant(ctx, sc.Tenant)
	if err != nil {
		return Report{}, err
	}
	v := &verifier{store: store, chains: map[string]*chainCheck{}}
	if err := v.begin(ctx); err != nil {
		return Report{}, err
	}
	if err := v.decisions(ctx); err != nil {
		return Report{}, err
	}
	if err := v.events(ctx); err != nil {
		return Report{}, err
	}
	rep := Report{Valid: true, CheckedAt: rd.now().UTC(), Chains: []ChainInfo{}}
	for _, name := range slices.Sorted(maps.Keys(v.chains)) {
		c := v.chains[name]
		c.end()
		rep.Valid = rep.Valid && c.info.Valid
		rep.Chains = append(rep.Chains, c.info)
	}
	return rep, nil
}

type verifier struct {
	store  *db.DB
	chains map[string]*chainCheck
	last   int64 // seq of the newest decision when Verify began
}

// chainCheck verifies one chain.
type chainCheck struct {
	chain
	info ChainInfo
	pos  int64
	prev string
}

func (v *verifier) begin(ctx context.Context) error {
	return v.store.Read(ctx, func(tx *db.Tx) error {
		chains, err := loadChains(ctx, tx)
		for name, c := range chains {
			v.chains[name] = &chainCheck{
				chain: c, pos: c.FirstPos - 1, prev: c.Base,
				info: ChainInfo{Name: name, Valid: true, Head: c.Head, Breaks: []Break{}},
			}
			if name != EventsChain {
				v.last = max(v.last, c.LastSeq)
			}
		}
		return err
	})
}

func (v *verifier) decisions(ctx context.Context) error {
	return checkRows(ctx, v, func(ctx context.Context, tx *db.Tx, seq int64) ([]row, error) {
		return decisionsAfter(ctx, tx, seq, v.last, maxBatch/5)
	}, func(r *row) int64 {
		c := v.chains[DecisionsChain(r.Level)]
		if c == nil {
			c = v.checkUnchained(DecisionsChain(r.Level))
		}
		c.check(r.Pos, r.DecisionID, r.Hash, r.hashAfter(c.prev))
		return r.Seq
	})
}

func (v *verifier) events(ctx context.Context) error {
	c := v.chains[EventsChain]
	if c == nil {
		return nil
	}
	return checkRows(ctx, v, func(ctx context.Context, tx *db.Tx, seq int64) ([]eventRow, error) {
		return eventsAfter(ctx, tx, seq, c.LastSeq, maxBatch/5)
	}, func(r *eventRow) int64 {
		c.check(r.Seq, strconv.FormatInt(r.Seq, 10), r.Hash, r.hashAfter(c.prev))
		return r.Seq
	})
}

// checkRows checks all rows of a log. after reads some of the rows after a sequence number. check
// checks one row and returns its sequence number.
func checkRows[R any](ctx context.Context, v *verifier, after func(ctx context.Context, tx *db.Tx, seq int64) ([]R, error), check func(*R) int64) error {
	for seq := int64(0); ; {
		var rows []R
		var bases map[string]chain
		err := v.store.Read(ctx, func(tx *db.Tx) (err error) {
			if bases, err = loadChains(ctx, tx); err == nil {
				rows, err = after(ctx, tx, seq)
			}
			return err
		})
		if err != nil {
			return err
		}
		v.skipPruned(bases)
		for i := range rows {
			seq = check(&rows[i])
		}
		if len(rows) == 0 {
			return nil
		}
	}
}

// skipPruned moves the check forward if retention has removed rows that were not checked yet.
func (v *verifier) skipPruned(now map[string]chain) {
	for name, c := range v.chains {
		if n, ok := now[name]; ok && n.FirstPos > c.pos+1 {
			c.pos, c.prev = n.FirstPos-1, n.Base
		}
	}
}

// checkUnchained begins the check of rows whose level has no chain: somebody inserted them.
func (v *verifier) checkUnchained(name string) *chainCheck {
	c := &chainCheck{chain: newChain(name), info: ChainInfo{Name: name, Valid: true, Breaks: []Break{}}}
	v.chains[name] = c
	return c
}

// check processes the next row: its position, the hash that it carries, and the hash computed
// from its content and the previous row.
func (c *chainCheck) check(pos int64, id, stored, computed string) {
	c.info.Checked++
	switch {
	case pos > c.pos+1:
		c.addBreak("removed", pos, id, fmt.Sprintf("rows %d to %d are missing before this one", c.pos+1, pos-1))
	case pos < c.pos+1:
		c.addBreak("edited", pos, id, "this row is not where it was written")
	case stored != computed:
		c.addBreak("edited", pos, id, "this row or its position has changed")
	}
	c.pos, c.prev = max(c.pos, pos), stored
}

func (c *chainCheck) end() {
	switch {
	case c.pos < c.LastPos:
		c.addBreak("head", c.LastPos, "", fmt.Sprintf("rows %d to %d at the end are missing", c.pos+1, c.LastPos))
	case c.pos > c.LastPos || c.prev != c.Head:
		c.addBreak("head", c.pos, "", "the newest row is not the one that was written last")
	}
}

func (c *chainCheck) addBreak(kind string, pos int64, id, message string) {
	c.info.Valid = false
	if len(c.info.Breaks) < maxBreaks {
		c.info.Breaks = append(c.info.Breaks, Break{Kind: kind, Position: pos, ID: id, Message: message})
	}
}
