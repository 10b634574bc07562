// Package tail reads both logs of a tenant in order from a given place on, for forwarders that
// send a copy to other systems.
package tail

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Line is an entry of one of the logs as forwarders send it, with its place in its hash chain.
// Within a chain, positions are consecutive, and previous_hash is the hash of the line before.
// A missing line is therefore visible.
type Line struct {
	Chain        string    `json:"chain"`
	Position     int64     `json:"position"`
	Hash         string    `json:"hash"`
	PreviousHash string    `json:"previous_hash"`
	Tenant       string    `json:"tenant"`
	Environment  scope.Env `json:"environment,omitempty"`
	At           time.Time `json:"timestamp"`
	// Decision or Event is the entry. Neither is set if the entry belongs to another environment.
	Decision json.RawMessage `json:"decision,omitempty"`
	Event    *audit.Event    `json:"event,omitempty"`
}

// Place is the position of a follower in both logs.
type Place struct {
	Decisions int64 `json:"decisions"`
	Events    int64 `json:"events"`
	// Ends are the last lines that the follower has received, by chain.
	Ends map[string]End `json:"ends"`
}

// End is the position and the hash of a line.
type End struct {
	Position int64  `json:"position"`
	Hash     string `json:"hash"`
}

// NewPlace returns the place of a new follower, which begins with the oldest stored entries or
// with the next new ones.
func NewPlace(ctx context.Context, tx *db.Tx, oldest bool) (Place, error) {
	// With the locks, no other transaction adds to the chains until this one ends.
	for _, name := range []string{audit.DecisionLock, audit.Lock} {
		if err := tx.Lock(ctx, name); err != nil {
			return Place{}, err
		}
	}
	p := Place{Ends: map[string]End{}}
	chains, err := loadChains(ctx, tx)
	for name, c := range chains {
		if oldest {
			p.Ends[name] = End{c.FirstPos - 1, c.Base}
			continue
		}
		p.Ends[name] = End{c.LastPos, c.Head}
		if name == audit.EventsChain {
			p.Events = c.LastSeq
		} else {
			p.Decisions = max(p.Decisions, c.LastSeq)
		}
	}
	return p, err
}

// Behind reports whether there are entries after a place.
func Behind(ctx context.Context, tx *db.Tx, p Place) (bool, error) {
	chains, err := loadChains(ctx, tx)
	for name, c := range chains {
		if name == audit.EventsChain && c.LastSeq > p.Events || name != audit.EventsChain && c.LastSeq > p.Decisions {
			return true, err
		}
	}
	return false, err
}

// Read returns the entries after a place, and the place after those. It returns at most n entries
// and little more than maxBytes bytes of each log, each log in order. Entries of another
// environment than env have no content, but are returned so that the chains have no gaps. AnyEnv
// selects both environments.
func Read(ctx context.Context, tx *db.Tx, tenant scope.TenantID, env scope.Env, from Place, n, maxBytes int) ([]Line, Place, error) {
	next := Place{from.Decisions, from.Events, maps.Clone(from.Ends)}
	if next.Ends == nil {
		next.Ends = map[string]End{}
	}
	chains, err := loadChains(ctx, tx)
	if err != nil {
		return nil, from, err
	}
	f := &follower{tenant: tenant, env: env, chains: chains, place: next, bytes: maxBytes}
	err = followLog(f, n, func(n int) ([]decision, error) { return decisionsAfter(ctx, tx, f.place.Decisions, n) }, f.decision)
	if err == nil {
		f.bytes = maxBytes // a separate limit, so that many decisions do not delay the events
		err = followLog(f, n, func(n int) ([]event, error) { return eventsAfter(ctx, tx, f.place.Events, n) }, f.event)
	}
	if err != nil {
		return nil, from, err
	}
	return f.lines, f.place, nil
}

// fewRows is how many rows one query reads: a row may be hundreds of kilobytes long.
const fewRows = 50

// followLog reads at most n rows of one log after the place of f, a few at a time, and passes
// them to take.
func followLog[R any](f *follower, n int, read func(n int) ([]R, error), take func(*R)) error {
	for n > 0 && f.bytes > 0 {
		rows, err := read(min(n, fewRows))
		if err != nil || len(rows) == 0 {
			return err
		}
		n -= len(rows)
		for i := range rows {
			if f.bytes <= 0 {
				return nil
			}
			take(&rows[i])
		}
	}
	return nil
}

// overhead is the approximate size of a line without its entry, in bytes.
const overhead = 400

// follower converts rows to lines.
type follower struct {
	tenant scope.TenantID
	env    scope.Env
	chains map[string]chain
	place  Place
	lines  []Line
	bytes  int // how many bytes of this log may still be read
}

func (f *follower) decision(r *decision) {
	l := f.line(audit.DecisionsChain(r.Level), r.Position, r.Hash, r.Environment, r.At)
	if f.env == scope.AnyEnv || l.Environment == f.env {
		l.Decision = json.RawMessage(r.Record)
	}
	f.place.Decisions = r.Seq
	f.bytes -= len(r.Record) + overhead
	f.lines = append(f.lines, l)
}

func (f *follower) event(r *event) {
	l := f.line(audit.EventsChain, r.ID, r.Hash, r.Environment, r.Timestamp)
	if f.env == scope.AnyEnv || l.Environment == scope.AnyEnv || l.Environment == f.env {
		l.Event = &r.Event
	}
	f.place.Events = r.ID
	f.bytes -= r.Bytes + overhead
	f.lines = append(f.lines, l)
}

// line returns the line of a row, without its content. If retention has removed the row before
// it, the previous hash is the base of the chain.
func (f *follower) line(name string, position int64, hash string, env scope.Env, at time.Time) Line {
	end := f.place.Ends[name]
	if c := f.chains[name]; end.Position != position-1 && c.FirstPos == position {
		end.Hash = c.Base
	}
	f.place.Ends[name] = End{position, hash}
	return Line{Chain: name, Position: position, Hash: hash, PreviousHash: end.Hash, Tenant: string(f.tenant), Environment: env, At: at.UTC()}
}
