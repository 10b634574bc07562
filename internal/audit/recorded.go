package audit

import (
	"context"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Recording selects the decisions of one environment and period that have an input: those at the
// levels detailed and comprehensive, and those whose input is stored for replay.
type Recording struct {
	Env scope.Env
	// From and To limit the time of the decision; To is exclusive.
	From, To time.Time
}

// Lines is a page of records, newest first, each as stored in the log: one JSON document.
type Lines struct {
	Records [][]byte
	next    position
	more    bool
}

// More reports whether more records follow.
func (l Lines) More() bool { return l.more }

// Recorded returns the page of records that follows the page after; the zero Lines is before the
// newest record. A page has at most n records and little more than maxBytes bytes.
func (rd *Reader) Recorded(ctx context.Context, sc scope.Scope, r Recording, after Lines, n, maxBytes int) (Lines, error) {
	return db.Read(ctx, rd.cluster, sc.Tenant, func(tx *db.Tx) (Lines, error) { return rd.page(ctx, tx, r, after.next, n, maxBytes) })
}

// page merges two lists, newest first: records whose input is in the log, and records whose
// input is stored beside it. If one list was cut off, the page ends where that list ends.
func (rd *Reader) page(ctx context.Context, tx *db.Tx, r Recording, before position, n, maxBytes int) (Lines, error) {
	if before.Seq == 0 {
		before = position{At: r.To}
	}
	logged, more, err := loggedLines(ctx, tx, r, before, n, maxBytes)
	if err != nil {
		return Lines{}, err
	}
	var kept []inputRow
	var moreKept bool
	if still, ok, err := rd.narrowToInputs(ctx, tx, r); err != nil {
		return Lines{}, err
	} else if ok {
		if kept, moreKept, err = keptLines(ctx, tx, still, before, n, maxBytes); err != nil {
			return Lines{}, err
		}
	}
	out := Lines{more: more || moreKept}
	for bytes := 0; ; {
		var line []byte
		switch {
		case len(logged) == 0 && more, len(kept) == 0 && moreKept, len(logged)+len(kept) == 0:
			return out, nil
		case len(out.Records) == n || bytes >= maxBytes:
			out.more = true
			return out, nil
		case len(kept) == 0 || len(logged) > 0 && isLater(logged[0].At, logged[0].Seq, kept[0].At, kept[0].Seq):
			line, out.next = []byte(logged[0].Record), position{At: logged[0].At, Seq: logged[0].Seq}
			logged = logged[1:]
		default:
			line, out.next = withInputOf(kept[0].Record, kept[0].Input), position{At: kept[0].At, Seq: kept[0].Seq}
			kept = kept[1:]
		}
		out.Records = append(out.Records, line)
		bytes += len(line)
	}
}

// isLater reports whether a position comes first in an answer, which begins with the newest.
func isLater(at time.Time, seq int64, than time.Time, thanSeq int64) bool {
	return at.After(than) || at.Equal(than) && seq > thanSeq
}

// CountRecorded returns the number of all decisions in the recording's environment and period,
// and how many of them have an input.
func (rd *Reader) CountRecorded(ctx context.Context, sc scope.Scope, r Recording) (all, withInput int64, err error) {
	err = rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) (err error) {
		q := query{span: span{r.From, r.To}, pairs: pairsOf([]string{string(r.Env)}, "")}
		if all, err = q.count(ctx, tx); err != nil {
			return err
		}
		if withInput, err = countRecorded(ctx, tx, r); err != nil {
			return err
		}
		still, ok, err := rd.narrowToInputs(ctx, tx, r)
		if err != nil || !ok {
			return err
		}
		kept, err := countKept(ctx, tx, still)
		withInput += kept
		return err
	})
	return all, withInput, err
}

// ByID returns the decisions with these ids, in any order, with the inputs that are stored for
// replay. It leaves out ids that are not in the log and decisions of environments that the scope
// does not include.
func (rd *Reader) ByID(ctx context.Context, sc scope.Scope, ids []string) ([]Decision, error) {
	rd.waitShipped(ctx)
	lines, err := db.Read(ctx, rd.cluster, sc.Tenant, func(tx *db.Tx) ([]string, error) { return recordsByID(ctx, tx, ids) })
	if err != nil {
		return nil, err
	}
	out := make([]Decision, 0, len(lines))
	for _, line := range lines {
		d, err := decodeDecision([]byte(line))
		if err != nil {
			return nil, fault.Wrap(err, "reading a stored decision")
		}
		if sc.Sees(d.Environment) {
			out = append(out, d)
		}
	}
	return out, rd.FillInputs(ctx, sc, out)
}

// LastDecided returns the start of the hour in which each of these controls last decided in the
// environment. Controls that have never decided are missing.
func (rd *Reader) LastDecided(ctx context.Context, sc scope.Scope, env scope.Env, policies []int64) (map[int64]time.Time, error) {
	rd.waitShipped(ctx)
	out := map[int64]time.Time{}
	err := rd.cluster.Read(ctx, sc.Tenant, func(tx *db.Tx) error {
		for _, id := range policies {
			at, err := lastBucket(ctx, tx, policyKey(id), env)
			if err != nil {
				return err
			}
			if at != nil {
				out[id] = *at
			}
		}
		return nil
	})
	return out, err
}
