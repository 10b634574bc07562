package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fold"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// spoolBytes returns the size of the files of a spool, in bytes.
func spoolBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	errtest.Must(t, err)
	return n
}

// TestFloodOfRefusals: a flood of refusals, equal, alike and different, small and large, takes little
// space on disk. Each is counted, no permit is folded, and the log is valid.
func TestFloodOfRefusals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		dir := t.TempDir()
		s := openSpool(t, dir)
		var clock atomic.Int64
		clock.Store(noon.UnixNano())
		limits := fold.Limits{
			Burst: 200, Rate: 1, EqualBurst: 50, EqualRate: 1, ByteBurst: 512 << 10, ByteRate: 1 << 10, Window: time.Hour, Sums: 16, PerOrigin: 4,
		}
		l := newLog(t, Config{Cluster: c, Spool: s, Fold: &limits, Now: func() time.Time { return time.Unix(0, clock.Load()).UTC() }})
		stop := running(t, l)
		waitOpen(t, l)
		const n = 6000
		name := "control"
		large := []byte(`{"x":"` + strings.Repeat("y", 20<<10) + `"}`)
		refused, permitted := int64(0), int64(0)
		for i := range n {
			clock.Add(int64(time.Millisecond))
			d := Decision{
				DecisionID: fmt.Sprint("flood-", i), Timestamp: time.Unix(0, clock.Load()), Decision: Deny, Effect: "DENY", Environment: scope.Production, PolicyID: 7, PolicyName: &name,
				Reason: "no", IPAddress: "10.0.0.1", Resource: Resource{Type: "api", Path: "/x"}, AuditLevel: Basic, ResourceID: 3,
			}
			switch i % 6 {
			case 1:
				d.Resource.Path = fmt.Sprint("/", i)
			case 2:
				d.IPAddress, d.Resource.Path = fmt.Sprint("10.1.", i/250, ".", i%250), fmt.Sprint("/", i)
			case 3:
				d.Input, d.AuditLevel, d.ResourceID = large, Comprehensive, 4
			case 4:
				d.Decision, d.Effect = Permit, "ALLOW"
			case 5:
				d.Effect = "SHADOW_WOULD_DENY"
			}
			if i%6 >= 4 {
				permitted++
			} else {
				refused++
			}
			var err error
			if i%2 == 0 {
				err = l.Record(scope.DefaultTenant, &d)
			} else {
				err = l.RecordAll(scope.DefaultTenant, []Decision{d})
			}
			errtest.Must(t, err)
		}
		waitShipped(t, s)
		stop() // writes the counts
		runUntilShipped(t, l)
		if size := spoolBytes(t, dir); size > 8<<20 {
			t.Errorf("%d refusals take %d bytes of the spool, want at most %d", refused, size, 8<<20)
		}
		own, counted, seen, bytes := int64(0), int64(0), int64(0), 0
		cursor := ""
		for {
			page, err := l.Query(context.Background(), admin, Filter{Limit: 1000, Cursor: cursor})
			errtest.Must(t, err)
			for _, d := range page.Logs {
				switch {
				case d.Decision == Permit || d.Effect == "SHADOW_WOULD_DENY":
					seen++
					if d.Folded != nil {
						t.Errorf("a permit or a shadow refusal is folded: %+v", d)
					}
				case d.Folded == nil:
					own++
					bytes += len(d.Input) + len(d.Resource.Path) + 300
				default:
					counted += d.Folded.Count
					if d.Folded.Last.Before(d.Folded.First) || len(d.Folded.Digest) != 2*sha256.Size || d.Folded.By == "" || d.Timestamp.After(d.Folded.Last) {
						t.Errorf("folded entry of %s at %s = %+v", d.DecisionID, d.Timestamp, d.Folded)
					}
				}
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if own+counted != refused || seen != permitted || own > 210 || bytes > 520<<10 {
			t.Errorf("%d refusals have an entry (%d bytes), %d are folded, of %d; %d of %d permits have an entry", own, bytes, counted, refused, seen, permitted)
		}
		if n := l.FoldedTotal(); n != counted {
			t.Errorf("FoldedTotal = %d, want %d as in the log", n, counted)
		}
		wantValid(t, l, admin)
		errtest.Must(t, c.Read(context.Background(), scope.DefaultTenant, func(tx *db.Tx) error {
			total, err := db.One[int64](context.Background(), tx, `SELECT CAST(COALESCE(sum(counted), 0) AS BIGINT) FROM decision_counts WHERE key = ''`)
			if total != n {
				t.Errorf("the counters hold %d decisions, want %d", total, n)
			}
			return err
		}))
	})
}

// waitOpen waits until Run runs.
func waitOpen(t *testing.T, l *DecisionLog) {
	t.Helper()
	for range 1_000_000 {
		if l.folders.folder(source{}) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		<-ctx.Done()
		cancel()
	}
	t.Fatal("Run does not start")
}

// TestFoldAfterStoring: if decisions that are answered together cannot be stored, none of them is
// counted as folded, because they are decided again or counted as missing.
func TestFoldAfterStoring(t *testing.T) {
	for _, bestEffort := range []bool{false, true} {
		c := dbtest.Open(t, dbtest.SQLite)
		s := openSpool(t, t.TempDir())
		limits := fold.Limits{Burst: 100, EqualBurst: 1, ByteBurst: 1 << 20, Window: time.Hour, Sums: 4, PerOrigin: 4}
		l := newLog(t, Config{Cluster: c, Spool: s, Fold: &limits, Now: at(noon), BestEffort: bestEffort})
		l.beginFolding()
		batch := func(name string) []Decision {
			out := []Decision{{DecisionID: name + " permitted", Decision: Permit, Environment: scope.Production}}
			for i := range 4 {
				out = append(out, Decision{DecisionID: fmt.Sprint(name, i), Timestamp: noon, Decision: Deny, Environment: scope.Production, Reason: "no"})
			}
			return out
		}
		if err := l.RecordAll(scope.DefaultTenant, batch("first")); err != nil || l.FoldedTotal() != 3 || s.Depth() != 2 {
			t.Fatalf("%d folded, %d entries: %v", l.FoldedTotal(), s.Depth(), err)
		}
		errtest.Must(t, s.Close())
		missing := map[bool]int64{false: 0, true: 5}[bestEffort]
		if err := l.RecordAll(scope.DefaultTenant, batch("second")); (err == nil) != bestEffort || l.FoldedTotal() != 3 || l.MissingTotal() != missing {
			t.Errorf("without a spool: %d folded, %d missing, want 3 and %d: %v", l.FoldedTotal(), l.MissingTotal(), missing, err)
		}
	}
}

// TestFoldedDigest: the digest of a folded entry is that of the ids of its refusals.
func TestFoldedDigest(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		s := openSpool(t, t.TempDir())
		limits := fold.Limits{Burst: 3, EqualBurst: 3, ByteBurst: 1 << 20, Window: time.Hour, Sums: 4, PerOrigin: 4}
		l := newLog(t, Config{Cluster: c, Spool: s, Fold: &limits, Now: at(noon)})
		stop := running(t, l)
		waitOpen(t, l)
		h := sha256.New()
		for i := range 10 {
			d := Decision{DecisionID: fmt.Sprint("d", i), Timestamp: noon, Decision: Deny, Environment: scope.Production, Reason: "no"}
			if i >= 3 {
				fmt.Fprintln(h, d.DecisionID)
			}
			// A bouncer sends a request again if it got no answer.
			for range 2 {
				errtest.Must(t, errtest.Of(l.Ingest(context.Background(), scope.DefaultTenant, []Decision{d})))
				if i < 3 {
					break
				}
			}
		}
		waitShipped(t, s)
		stop()
		runUntilShipped(t, l)
		page, err := l.Query(context.Background(), admin, Filter{})
		errtest.Must(t, err)
		for _, d := range page.Logs {
			if d.Folded != nil && (d.Folded.Count != 7 || d.Folded.Digest != hex.EncodeToString(h.Sum(nil)) || d.DecisionID != "d3" || d.Reason != "no") {
				t.Errorf("folded entry = %+v, %+v, want 7 refusals from d3 with the digest of their ids", d, d.Folded)
			}
		}
		if len(page.Logs) != 4 {
			t.Errorf("%d entries, want 4", len(page.Logs))
		}
	})
}
