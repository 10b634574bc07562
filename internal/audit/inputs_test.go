package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// keeping makes a log that stores inputs according to kept.
func keeping(t testing.TB, c *db.Cluster, kept *Kept, now func() time.Time) *DecisionLog {
	t.Helper()
	return NewDecisionLog(Config{
		Cluster: c, Spool: openSpool(t, t.TempDir()), SetAside: t.TempDir(), Now: now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Kept: func(context.Context, *db.Tx) (Kept, error) { return *kept, nil },
	})
}

// ship records decisions and moves them into the store, as Run does.
func ship(t testing.TB, l *DecisionLog, ds ...Decision) {
	t.Helper()
	for i := range ds {
		if err := l.Record(scope.DefaultTenant, &ds[i]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := l.cfg.Spool.Next(context.Background(), len(ds))
	if err != nil {
		t.Fatal(err)
	}
	if !l.shipAll(context.Background(), b.Records) {
		t.Fatal("not shipped")
	}
	if err := l.cfg.Spool.Ack(b); err != nil {
		t.Fatal(err)
	}
}

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
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range next.Records {
			var d Decision
			if err := json.Unmarshal(line, &d); err != nil {
				t.Fatalf("%v: %s", err, line)
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
		l := keeping(t, c, &kept, func() time.Time { return now })
		all := Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)}
		ship(t, l, withInputs(0, 60, noon)...)
		for _, n := range []int{1, 2, 7, 100} {
			ids, inputs := recordedInputs(t, l, all, n)
			if len(ids) != 45 || len(inputs) != 45 {
				t.Fatalf("pages of %d: %d records of %d decisions", n, len(ids), len(inputs))
			}
			for i, id := range ids {
				if want := fmt.Sprintf(`{"n":%s,"password":"[redacted]"}`, strings.TrimLeft(id[2:len(id)-1], "0")+id[len(id)-1:]); inputs[id] != want {
					t.Errorf("%s: %s, want %s", id, inputs[id], want)
				}
				if i > 0 && id > ids[i-1] {
					t.Errorf("%s comes after %s", id, ids[i-1])
				}
			}
		}
		if n, with, err := l.CountRecorded(context.Background(), admin, all); err != nil || n != 45 || with != 45 {
			t.Errorf("counted %d of %d, %v", with, n, err)
		}
		page, err := l.Query(context.Background(), admin, Filter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Logs {
			if d.AuditLevel == Basic && len(d.Input) > 0 {
				t.Errorf("the entry of %s has the input %s", d.DecisionID, d.Input)
			}
		}
		if found, err := l.ByID(context.Background(), admin, []string{"d-0000"}); err != nil || len(found) != 1 || !bytes.Contains(found[0].Input, []byte(`"n":0`)) {
			t.Errorf("by id: %+v, %v", found, err)
		}
		kept.Rows = 10 // of 30 at level basic and 4 that come
		ship(t, l, withInputs(60, 8, noon)...)
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 10+17 {
			t.Errorf("%d records with an input, want 10 at level basic and 17 at detailed", len(inputs))
		}
		kept.Rows, kept.Bytes = 1000, 100 // some three of them
		ship(t, l, withInputs(68, 4, noon)...)
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 3+18 {
			t.Errorf("%d records with an input, want 3 at level basic and 18 at detailed", len(inputs))
		}
		now = noon.Add(2 * time.Hour) // past the hour, before retention has run
		if _, inputs := recordedInputs(t, l, all, 100); len(inputs) != 18 {
			t.Errorf("after the time, %d records with an input, want the 18 at detailed", len(inputs))
		}
		stored(t, l, 3)
		if _, err := l.Retain(context.Background(), scope.DefaultTenant); err != nil {
			t.Fatal(err)
		}
		stored(t, l, 0)
	})
}

// stored checks the number of inputs in the store.
func stored(t *testing.T, l *DecisionLog, want int64) {
	t.Helper()
	store, err := l.cfg.Cluster.Tenant(context.Background(), scope.DefaultTenant)
	if err != nil {
		t.Fatal(err)
	}
	n, err := int64(0), store.Read(context.Background(), func(tx *db.Tx) error {
		n, err := countKept(context.Background(), tx, Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)})
		if n != want {
			t.Errorf("%d inputs are stored, want %d", n, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(n, err)
	}
}

// TestInputsOff: if a tenant switches inputs off, new ones are not stored, including those of
// bouncers, and stored ones are removed. KeepsInput returns false from the first shipped record on.
func TestInputsOff(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		kept := Kept{For: time.Hour, Rows: 1000, Bytes: 1 << 20}
		l := keeping(t, c, &kept, at(noon))
		if !l.KeepsInput(scope.DefaultTenant, noon) {
			t.Fatal("nothing is kept from the start")
		}
		ship(t, l, withInputs(0, 4, noon)...)
		stored(t, l, 2)
		kept.Off = true
		ship(t, l, withInputs(4, 4, noon)...)
		if l.KeepsInput(scope.DefaultTenant, noon) {
			t.Error("inputs are still made")
		}
		if _, err := l.Ingest(context.Background(), scope.DefaultTenant, withInputs(8, 4, noon)); err != nil {
			t.Fatal(err)
		}
		if _, inputs := recordedInputs(t, l, Recording{Env: scope.Production, From: noon.Add(-day), To: noon.Add(day)}, 10); len(inputs) != 2 {
			t.Errorf("%d records with an input, want the 2 at detailed", len(inputs))
		}
		if _, err := l.Retain(context.Background(), scope.DefaultTenant); err != nil {
			t.Fatal(err)
		}
		stored(t, l, 0)
		kept.Off = false
		ship(t, l, withInputs(12, 4, noon)...)
		if !l.KeepsInput(scope.DefaultTenant, noon) {
			t.Error("inputs are not made again")
		}
	})
}
