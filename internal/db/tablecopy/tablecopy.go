// Package tablecopy copies one tenant's tables from one store to another while the tenant
// is in use. The stores may be of different kinds.
//
//	Begin     create triggers that record which rows change from now on
//	Tables    copy all rows of a snapshot
//	CatchUp   copy the rows that changed since, the oldest changes first; call it repeatedly
//	Verify    compare checksums of all rows of both stores
//	Pause     make the source refuse writes; reads continue
//	Finish    copy the last changes, compare counts, set the positions of the ids
//	Detach    remove what the copy added to the target
//
// The log of changes has only keys, not values. CatchUp copies the current rows with these keys,
// compares what it wrote, and then deletes the entries of the log. So Verify and all later calls of
// CatchUp together prove that both stores are equal.
//
// The token stops an earlier copier that hung and was replaced: the stores have the higher token of
// the later one, so each write of the earlier one fails with ErrLost.
package tablecopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// ErrLost means that a later copier has taken over.
var ErrLost = errors.New("tablecopy: another copier has taken over")

// A batch has at most this many rows, and about this many bytes.
const (
	batchRows  = 500
	batchBytes = 4 << 20
)

// chunk is how many changes CatchUp copies at once, unless they conflict.
const chunk = 5000

// Copy copies one tenant. Only one goroutine may use it.
type Copy struct {
	// From and To are handles from db.Cluster.At.
	From, To *db.DB
	// Token is higher than that of every earlier copy of the tenant.
	Token int64
	// Progress, if set, receives how many rows Tables has copied.
	Progress func(ctx context.Context, rows int64) error

	tables  []table
	version string // of the source's schema, at Begin
	// verified is true after Verify. Then CatchUp compares what it wrote.
	verified bool
}

// Begin prepares both stores. The target must be migrated and must not contain the tenant's data.
func (c *Copy) Begin(ctx context.Context) error {
	from, err := catalogue(ctx, c.From)
	if err != nil {
		return fmt.Errorf("the tables of the source: %w", err)
	}
	to, err := catalogue(ctx, c.To)
	if err != nil {
		return fmt.Errorf("the tables of the target: %w", err)
	}
	if c.tables, err = merge(from, to); err != nil {
		return err
	}
	if c.version, err = version(ctx, c.From); err != nil {
		return err
	}
	err = c.To.Write(ctx, func(tx *db.Tx) error {
		if err := tx.Do(ctx, `CREATE TABLE gh_move_target (token BIGINT NOT NULL)`); err != nil {
			return err
		}
		if err := tx.Do(ctx, `INSERT INTO gh_move_target (token) VALUES ($1)`, c.Token); err != nil {
			return err
		}
		for _, t := range c.tables { // migrations insert rows
			if err := tx.Do(ctx, `DELETE FROM `+quote(t.name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.capture(ctx)
}

// Rows counts the rows of the source.
func (c *Copy) Rows(ctx context.Context) (total int64, err error) {
	err = c.From.Read(ctx, func(tx *db.Tx) error {
		counts, err := c.counts(ctx, tx)
		for _, n := range counts {
			total += n
		}
		return err
	})
	return total, err
}

func (c *Copy) counts(ctx context.Context, tx *db.Tx) (map[string]int64, error) {
	out := map[string]int64{}
	for _, t := range c.tables {
		n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM `+quote(t.name))
		if err != nil {
			return nil, err
		}
		out[t.name] = n
	}
	return out, nil
}

// write runs fn in a transaction on the target. It fails with ErrLost if a later copier has taken
// over.
func (c *Copy) write(ctx context.Context, fn func(tx *db.Tx) error) error {
	return c.To.Write(ctx, func(tx *db.Tx) error {
		if err := lockToken(ctx, tx, "gh_move_target", c.Token); err != nil {
			return err
		}
		return fn(tx)
	})
}

// lockToken locks the row with the token until the end of the transaction. Error: ErrLost.
func lockToken(ctx context.Context, tx *db.Tx, name string, token int64) error {
	n, err := tx.Exec(ctx, `UPDATE `+name+` SET token = token WHERE token = $1`, token)
	if err == nil && n != 1 {
		err = ErrLost
	}
	return err
}

// Tables copies all rows of one snapshot of the source.
func (c *Copy) Tables(ctx context.Context) error {
	done := int64(0)
	err := c.From.Read(ctx, func(tx *db.Tx) error {
		for _, t := range c.tables {
			if err := c.copyTable(ctx, tx, t, &done); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		return nil
	})
	if err != nil || c.To.Kind() != postgres {
		return err
	}
	return c.write(ctx, func(tx *db.Tx) error { // without statistics, PostgreSQL scans whole tables to find a row
		for _, t := range c.tables {
			if err := tx.Do(ctx, `ANALYZE `+quote(t.name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyTable copies the rows of one table, and adds their number to done.
func (c *Copy) copyTable(ctx context.Context, from *db.Tx, t table, done *int64) error {
	var batch [][]any
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := c.write(ctx, func(tx *db.Tx) error { return t.insert(ctx, tx, batch) }); err != nil {
			return err
		}
		*done += int64(len(batch))
		batch, size = nil, 0
		if c.Progress != nil {
			return c.Progress(ctx, *done)
		}
		return nil
	}
	for row, err := range t.all(ctx, from) {
		if err != nil {
			return err
		}
		batch = append(batch, row)
		size += rowSize(row)
		if len(batch) >= batchRows || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// CatchUp copies the rows that have changed, the oldest changes first, and after Verify compares
// them. It returns how many changes it copied, and about how many are left.
func (c *Copy) CatchUp(ctx context.Context) (n int, left int64, err error) {
	for most := int64(chunk); ; most *= 8 {
		n, left, err = c.catchUp(ctx, most)
		// Two rows may have exchanged unique values. Then both changes must be copied at once.
		if !fault.Is(err, fault.Conflict) || left == 0 {
			return n, left, err
		}
	}
}

// catchUp copies at most that many changes.
func (c *Copy) catchUp(ctx context.Context, most int64) (n int, left int64, err error) {
	var log changes
	current := map[string][][]any{}
	err = c.From.Read(ctx, func(tx *db.Tx) (err error) {
		if log, err = c.pending(ctx, tx, most); err != nil {
			return err
		}
		for _, t := range c.tables {
			if current[t.name], err = t.find(ctx, tx, log.keys[t.name]); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		return nil
	})
	if err != nil || len(log.ids) == 0 {
		return 0, 0, err
	}
	if err := c.replace(ctx, log, current); err != nil {
		return 0, log.left, err
	}
	return len(log.ids), log.left, c.trimLog(ctx, log.ids)
}

// replace deletes the rows that changed from the target, and inserts their current values.
func (c *Copy) replace(ctx context.Context, log changes, current map[string][][]any) error {
	return c.write(ctx, func(tx *db.Tx) error {
		for _, t := range c.tables {
			if err := t.remove(ctx, tx, log.keys[t.name]); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		for _, t := range c.tables {
			if err := t.insert(ctx, tx, current[t.name]); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
			if !c.verified { // Verify will compare them
				continue
			}
			stored, err := t.find(ctx, tx, log.keys[t.name])
			if err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
			if a, b := t.sumOf(current[t.name]), t.sumOf(stored); a != b {
				return fmt.Errorf("table %s: the checksums of changed rows differ: %d rows written, %d rows read back", t.name, a.rows, b.rows)
			}
		}
		return nil
	})
}

// Verify compares the counts and checksums of all tables. It omits rows that have changed since the
// last CatchUp; the next CatchUp compares them.
func (c *Copy) Verify(ctx context.Context) error {
	var log changes
	var from map[string]sum
	err := c.From.Read(ctx, func(tx *db.Tx) (err error) {
		if log, err = c.pending(ctx, tx, 0); err == nil {
			from, err = c.sums(ctx, tx, log)
		}
		return err
	})
	if err != nil {
		return err
	}
	c.verified = true
	return c.To.Read(ctx, func(tx *db.Tx) error {
		to, err := c.sums(ctx, tx, log)
		if err != nil {
			return err
		}
		for _, t := range c.tables {
			if a, b := from[t.name], to[t.name]; a != b {
				return fmt.Errorf("table %s: the checksums differ: %d rows in the source, %d in the target", t.name, a.rows, b.rows)
			}
		}
		return nil
	})
}

// sums returns the checksums of all tables, without the rows in log.
func (c *Copy) sums(ctx context.Context, tx *db.Tx, log changes) (map[string]sum, error) {
	out := map[string]sum{}
	for _, t := range c.tables {
		var total sum
		for row, err := range t.all(ctx, tx) {
			if err != nil {
				return nil, fmt.Errorf("table %s: %w", t.name, err)
			}
			if _, changed := log.keys[t.name][t.keyOf(row)]; !changed {
				total.add(t.hash(row))
			}
		}
		out[t.name] = total
	}
	return out, nil
}

// Finish copies the remaining changes. Call it after Pause. Then both stores are equal as long as
// the source refuses writes.
func (c *Copy) Finish(ctx context.Context) error {
	for {
		n, _, err := c.CatchUp(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	now, err := version(ctx, c.From)
	if err != nil {
		return err
	}
	if now != c.version {
		return errors.New("the schema of the source was migrated during the copy")
	}
	var from, to map[string]int64
	var next map[string]int64
	err = c.From.Read(ctx, func(tx *db.Tx) (err error) {
		if from, err = c.counts(ctx, tx); err == nil {
			next, err = c.lastIDs(ctx, tx, c.From.Kind())
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.write(ctx, func(tx *db.Tx) error {
		if to, err = c.counts(ctx, tx); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(from)) {
			if from[name] != to[name] {
				return fmt.Errorf("table %s: %d rows in the source, %d in the target", name, from[name], to[name])
			}
		}
		return setLastIDs(ctx, tx, c.To.Kind(), next)
	})
}

// Detach removes what the copy added to the target. Call it once the tenant is placed there.
func Detach(ctx context.Context, to *db.DB) error {
	return to.Write(ctx, func(tx *db.Tx) error { return execAll(ctx, tx, `DROP TABLE IF EXISTS gh_move_target`) })
}

// ErrInUse means that a store contains data that does not come from a copy.
var ErrInUse = errors.New("there is data of the tenant that this deployment did not put there")

// Discard drops a store that is empty, that has an unfinished copy, or that an earlier move has left
// behind. The copy's token must be at most token. Errors: ErrLost if it is higher; ErrInUse if the
// store has other data.
func Discard(ctx context.Context, d *db.DB, token int64) error {
	return d.Discard(ctx, func(tx *db.Tx) error {
		tables, err := names(ctx, tx, d.Kind())
		if err != nil {
			return err
		}
		for name, text := range map[string]string{
			"gh_move_target": `SELECT token FROM gh_move_target`, "gh_move_state": `SELECT token FROM gh_move_state WHERE fenced = 1`,
		} {
			if !slices.Contains(tables, name) {
				continue
			}
			owners, err := db.All[int64](ctx, tx, text)
			if err != nil {
				return err
			}
			if len(owners) == 1 && owners[0] <= token {
				return nil
			}
			if len(owners) > 0 {
				return ErrLost
			}
		}
		for _, name := range tables {
			if isOwnTable(name) {
				continue
			}
			rows, err := db.One[int64](ctx, tx, `SELECT count(*) FROM (SELECT 1 AS one FROM `+quote(name)+` LIMIT 1) AS t`)
			if err != nil {
				return err
			}
			if rows > 0 {
				return ErrInUse
			}
		}
		return nil
	})
}

// revisionJump is added to the revisions of a tenant that starts empty. It is large, so that no
// client takes the new content for an old revision.
const revisionJump = 1_000_000

// CopyTables copies the named tables and the positions of the ids, and nothing else. Call it after Pause,
// instead of Finish. It adds revisionJump to all revisions.
func (c *Copy) CopyTables(ctx context.Context, names ...string) error {
	rows := map[string][][]any{}
	var next map[string]int64
	err := c.From.Read(ctx, func(tx *db.Tx) (err error) {
		for _, t := range c.tables {
			if !slices.Contains(names, t.name) {
				continue
			}
			for row, err := range t.all(ctx, tx) {
				if err != nil {
					return err
				}
				rows[t.name] = append(rows[t.name], row)
			}
		}
		next, err = c.lastIDs(ctx, tx, c.From.Kind())
		return err
	})
	if err != nil {
		return err
	}
	return c.write(ctx, func(tx *db.Tx) error {
		for _, t := range c.tables {
			if err := t.insert(ctx, tx, rows[t.name]); err != nil {
				return fmt.Errorf("table %s: %w", t.name, err)
			}
		}
		if err := tx.Do(ctx, `UPDATE revisions SET value = value + $1`, int64(revisionJump)); err != nil {
			return err
		}
		return setLastIDs(ctx, tx, c.To.Kind(), next)
	})
}
