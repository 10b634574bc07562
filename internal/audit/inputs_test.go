package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// inputLog returns a log that stores inputs according to kept.
func inputLog(t testing.TB, c *db.Cluster, kept *Kept, now func() time.Time) *DecisionLog {
	t.Helper()
	return newLog(t, Config{Cluster: c, Now: now, Kept: func(context.Context, *db.Tx) (Kept, error) { return *kept, nil }})
}

// ship records decisions and moves them into the store, as Run does.
func ship(t testing.TB, l *DecisionLog, ds ...Decision) {
	t.Helper()
	for i := range ds {
		errtest.Must(t, l.Record(scope.DefaultTenant, &ds[i]))
	}
	b, err := l.cfg.Spool.Next(context.Background(), len(ds))
	errtest.Must(t, err)
	if !l.shipAll(context.Background(), b.Records) {
		t.Fatal("shipAll fails")
	}
	errtest.Must(t, l.cfg.Spool.Ack(b))
}

// withInputs returns n decisions with an input, of which half are at level basic and a quarter at none.
func withInputs(from, n int, at time.Time) []Decision {
	out := make([]Decision, n)
	for i := range out {
		id := from + i
		out[i] = Decision{
			DecisionID: fmt.Sprintf("d-%04d", id), Timestamp: at.Add(time.Duration(id/3) * time.Second), Decision: Permit, Environment: scope.Production,
			AuditLevel: []Level{Basic, Detailed, None, Basic}[id%4], Input: fmt.Appendf(nil, `{"n":%d,"password":"hunter2","owner_email":"a@b.example"}`, id),
		}
	}
	return out
}

// recordedInputs reads all pages and returns the ids in order and the inputs by id.
func recordedInputs(t testing.TB, l *DecisionLog, r Recording, n int) (ids []string, inputs map[string]string) {
	t.Helper()
	inputs = map[string]string{}
	var at Lines
	for {
		next, err := l.Recorded(context.Background(), admin, r, at, n, 1<<20)
		errtest.Must(t, err)
		for _, line := range next.Records {
			var d Decision
			if err := json.Unmarshal(line, &d); err != nil {
				t.Fatalf("decode %s: %v", line, err)
			}
			ids, inputs[d.DecisionID] = append(ids, d.DecisionID), string(d.Input)
		}
		if !next.More() {
			return ids, inputs
		}
		at = next
	}
}

// TestInputsForReplay: the inputs of decisions at level basic are stored beside the log, redacted
// and within the limits of time, count and size. At level none nothing is stored. The entries of
// the log do not show the inputs.
func TestInputsForReplay(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		now := noon
		kept := Kept{For: time.Hour, Rows: 1000, Bytes: 1 << 20}
		l := inputLog(t, c, &kept, func() time.Time { return now })
		all := Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)}
		ship(t, l, withInputs(0, 60, noon)...)
		for _, n := range []int{1, 2, 7, 100} {
			ids, inputs := recordedInputs(t, l, all, n)
			if len(ids) != 45 || len(inputs) != 45 {
				t.Fatalf("Recorded by %d: %d records of %d decisions, want 45", n, len(ids), len(inputs))
			}
			for i, id := range ids {
				if want := fmt.Sprintf(`{"n":%s,"password":"[redacted]"}`, strings.TrimLeft(id[2:len(id)-1], "0")+id[len(id)-1:]); inputs[id] != want {
					t.Errorf("input of %s = %s, want %s", id, inputs[id], want)
				}
				if i > 0 && id > ids[i-1] {
					t.Errorf("Recorded: %s comes after %s", id, ids[i-1])
				}
			}
		}
		if n, with, err := l.CountRecorded(context.Background(), admin, all); err != nil || n != 45 || with != 45 {
			t.Errorf("CountRecorded = %d, %d with an input, %v, want 45", n, with, err)
		}
		page, err := l.Query(context.Background(), admin, Filter{Limit: 100})
		errtest.Must(t, err)
		for _, d := range page.Logs {
			if d.AuditLevel == Basic && len(d.Input) > 0 {
				t.Errorf("the entry of %s has the input %s", d.DecisionID, d.Input)
			}
		}
		if found, err := l.ByID(context.Background(), admin, []string{"d-0000"}); err != nil || len(found) != 1 || !bytes.Contains(found[0].Input, []byte(`"n":0`)) {
			t.Errorf("ByID(d-0000) = %+v, %v, want its input", found, err)
		}
		kept.Rows = 10 // of 30 at level basic and 4 that come
		ship(t, l, withInputs(60, 8, noon)...)
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 10+17 {
			t.Errorf("with room for 10 inputs: %d records with an input, want 10 at level basic and 17 at detailed", len(inputs))
		}
		kept.Rows, kept.Bytes = 1000, 100 // room for three
		ship(t, l, withInputs(68, 4, noon)...)
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 3+18 {
			t.Errorf("with room for 100 bytes: %d records with an input, want 3 at level basic and 18 at detailed", len(inputs))
		}
		now = noon.Add(2 * time.Hour) // past the hour, before retention has run
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 18 {
			t.Errorf("after an hour: %d records with an input, want the 18 at detailed", len(inputs))
		}
		wantStoredInputs(t, l, 3)
		errtest.Must(t, errtest.Of(l.Retain(context.Background(), scope.DefaultTenant)))
		wantStoredInputs(t, l, 0)
	})
}

// wantStoredInputs fails unless the store has a number of inputs.
func wantStoredInputs(t *testing.T, l *DecisionLog, want int64) {
	t.Helper()
	errtest.Must(t, l.cfg.Cluster.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
		n, err := countKept(context.Background(), tx, Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)})
		if n != want {
			t.Errorf("the store has %d inputs, want %d", n, want)
		}
		return err
	}))
}

// TestInputsOff: if a tenant switches inputs off, new ones are not stored, including those of
// bouncers, and stored ones are removed. TakeInputQuota returns false from the first shipped record on.
func TestInputsOff(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		kept := Kept{For: time.Hour, Rows: 1000, Bytes: 1 << 20}
		l := inputLog(t, c, &kept, at(noon))
		if !l.TakeInputQuota(scope.DefaultTenant, noon) {
			t.Fatal("TakeInputQuota = false at first, want true")
		}
		ship(t, l, withInputs(0, 4, noon)...)
		wantStoredInputs(t, l, 2)
		kept.Off = true
		ship(t, l, withInputs(4, 4, noon)...)
		if l.TakeInputQuota(scope.DefaultTenant, noon) {
			t.Error("TakeInputQuota = true after the tenant switched inputs off, want false")
		}
		errtest.Must(t, errtest.Of(l.Ingest(context.Background(), scope.DefaultTenant, withInputs(8, 4, noon))))
		if _, inputs := recordedInputs(t, l, Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)}, 10); len(inputs) != 2 {
			t.Errorf("%d records with an input, want the 2 at detailed", len(inputs))
		}
		errtest.Must(t, errtest.Of(l.Retain(context.Background(), scope.DefaultTenant)))
		wantStoredInputs(t, l, 0)
		kept.Off = false
		ship(t, l, withInputs(12, 4, noon)...)
		if !l.TakeInputQuota(scope.DefaultTenant, noon) {
			t.Error("TakeInputQuota = false after the tenant switched inputs on, want true")
		}
	})
}
