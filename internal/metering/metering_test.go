package metering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/counterfile"
	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// clock is a clock that a test sets.
type clock struct{ at atomic.Int64 }

func clockAt(t time.Time) *clock {
	c := &clock{}
	c.at.Store(t.UnixMicro())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMicro(c.at.Load()).UTC() }
func (c *clock) pass(d time.Duration) { c.at.Add(int64(d / time.Microsecond)) }

var noon = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

func newCalls(t testing.TB, c *db.Cluster, dir string, now func() time.Time) *Calls {
	t.Helper()
	book, err := counterfile.Open(dir, slog.New(slog.DiscardHandler))
	errtest.Must(t, err)
	t.Cleanup(func() { book.Close() })
	return NewCalls(c, book, now, slog.New(slog.DiscardHandler))
}

// stored returns the calls in a tenant's store, by operation.
func stored(t testing.TB, c *db.Cluster, id scope.TenantID) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := c.Read(context.Background(), id, func(tx *db.Tx) error {
		list, err := selectCalls(context.Background(), tx, time.Unix(0, 0), noon.AddDate(10, 0, 0))
		for _, one := range list {
			out[one.Operation] += one.N
		}
		return err
	})
	errtest.Must(t, err)
	return out
}

// want fails unless the calls by operation are as expected.
func want(t testing.TB, got map[string]int64, want string) {
	t.Helper()
	if text := fmt.Sprint(got); text != "map["+want+"]" {
		t.Errorf("calls = %s, want map[%s]", text, want)
	}
}

// TestCallsAreCountedOnceInTheirTenant: concurrent calls are counted once each, also while they are copied.
func TestCallsAreCountedOnceInTheirTenant(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), clockAt(noon)
		s := newCalls(t, c, t.TempDir(), now.now)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 500 {
					s.Meter(scope.DefaultTenant, "evaluate")(now.now())
				}
				s.Meter(dbtest.Second, "list")(now.now())
			})
		}
		for range 20 { // copy while the counts still grow
			errtest.Must(t, s.Copy(ctx))
		}
		all.Wait()
		s.Meter("gone", "list")(now.now()) // an unknown tenant
		for range 2 {
			errtest.Must(t, s.Copy(ctx))
		}
		want(t, stored(t, c, scope.DefaultTenant), "evaluate:4000")
		want(t, stored(t, c, dbtest.Second), "list:8")
	})
}

// TestCallsOutliveTheirProcess: the counts of a killed process are complete, whether or not they were
// copied into the store, and the next process continues them.
func TestCallsOutliveTheirProcess(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now, dir := context.Background(), clockAt(noon), t.TempDir()
		total := 0
		for round := range 4 {
			s := newCalls(t, c, dir, now.now)
			for range 5 {
				s.Meter(scope.DefaultTenant, "evaluate")(now.now())
				if total++; total%3 == 0 {
					errtest.Must(t, s.Copy(ctx))
				}
			}
			if round == 1 {
				now.pass(3 * time.Hour)
			}
		} // nothing is closed, as after a kill
		errtest.Must(t, newCalls(t, c, dir, now.now).Copy(ctx))
		want(t, stored(t, c, scope.DefaultTenant), fmt.Sprint("evaluate:", total))
	})
}

// TestCallsOfAStoreThatIsDownAreKept: counts that cannot be stored wait until they can be.
func TestCallsOfAStoreThatIsDownAreKept(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	now := clockAt(noon)
	s := newCalls(t, c, t.TempDir(), now.now)
	s.Meter(scope.DefaultTenant, "evaluate")(now.now())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Copy(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("Copy that cannot write: got %v, want context.Canceled", err)
	}
	now.pass(5 * time.Hour)
	s.Meter(scope.DefaultTenant, "evaluate")(now.now())
	errtest.Must(t, s.Copy(context.Background()))
	want(t, stored(t, c, scope.DefaultTenant), "evaluate:2")
}

// TestCountersEndWithTheirHour: the counters of past hours are freed, and late requests still count.
func TestCountersEndWithTheirHour(t *testing.T) {
	c := dbtest.Open(t, dbtest.SQLite)
	ctx, now := context.Background(), clockAt(noon)
	s := newCalls(t, c, t.TempDir(), now.now)
	count := s.Meter(scope.DefaultTenant, "evaluate")
	for range 50 {
		count(now.now())
		count(now.now().Add(-time.Hour)) // began in the hour before
		errtest.Must(t, s.Copy(ctx))
		now.pass(time.Hour)
	}
	want(t, stored(t, c, scope.DefaultTenant), "evaluate:100")
	if len(s.live) > 4 {
		t.Errorf("%d counters remain, want at most 4", len(s.live))
	}
}

// TestOldCallsAreFoldedIntoDays: after two months, the counts of hours become counts of days.
func TestOldCallsAreFoldedIntoDays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now := context.Background(), clockAt(noon)
		s := newCalls(t, c, t.TempDir(), now.now)
		for _, back := range []time.Duration{0, time.Hour, 61 * 24 * time.Hour, 70 * 24 * time.Hour, 70*24*time.Hour + 3*time.Hour, 300 * 24 * time.Hour} {
			s.Meter(scope.DefaultTenant, "evaluate")(noon.Add(-back))
		}
		errtest.Must(t, s.Copy(ctx))
		for range 2 {
			errtest.Must(t, s.Fold(ctx))
		}
		want(t, stored(t, c, scope.DefaultTenant), "evaluate:6")
		err := c.Read(ctx, scope.DefaultTenant, func(tx *db.Tx) error {
			rows, err := selectCalls(ctx, tx, time.Unix(0, 0), noon.Add(time.Hour))
			if len(rows) != 5 || rows[1].N != 2 || rows[1].Bucket.Hour() != 0 || rows[2].Bucket.Hour() != 12 {
				t.Errorf("rows after Fold = %v", rows)
			}
			return err
		})
		errtest.Must(t, err)
	})
}

// TestLateProcessCountsNothingTwice: a process that starts again after the hours of its last counters
// were added up does not store them once more. Younger counters are complete.
func TestLateProcessCountsNothingTwice(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, c *db.Cluster) {
		ctx, now, dir := context.Background(), clockAt(noon), t.TempDir()
		s := newCalls(t, c, dir, now.now)
		for range 5 {
			s.Meter(scope.DefaultTenant, "evaluate")(now.now())
		}
		errtest.Must(t, s.Copy(ctx))
		now.pass(30 * 24 * time.Hour)
		s.Meter(scope.DefaultTenant, "list")(now.now()) // not copied: the process is killed
		now.pass(keepHours - 29*24*time.Hour)
		other := newCalls(t, c, t.TempDir(), now.now)
		errtest.Must(t, other.Fold(ctx))
		for range 2 {
			again := newCalls(t, c, dir, now.now)
			errtest.Must(t, again.CopyTenant(ctx, scope.DefaultTenant))
			errtest.Must(t, again.Copy(ctx))
			want(t, stored(t, c, scope.DefaultTenant), "evaluate:5 list:1")
		}
	})
}

// TestPeriodsBeginOnTheDayOfTheSubscription: billing periods begin on the day of the month on which the
// subscription began, or on the last day of a shorter month.
func TestPeriodsBeginOnTheDayOfTheSubscription(t *testing.T) {
	date := func(text string) time.Time {
		at, err := time.Parse("2006-01-02T15:04", text)
		errtest.Must(t, err)
		return at
	}
	for _, c := range []struct{ began, now, from, to string }{
		{"2026-01-15T09:30", "2026-01-15T09:30", "2026-01-15", "2026-02-15"},
		{"2026-01-15T09:30", "2026-02-14T23:59", "2026-01-15", "2026-02-15"},
		{"2026-01-15T09:30", "2026-02-15T00:00", "2026-02-15", "2026-03-15"},
		{"2026-01-31T09:30", "2026-02-27T12:00", "2026-01-31", "2026-02-28"},
		{"2026-01-31T09:30", "2026-02-28T00:00", "2026-02-28", "2026-03-31"},
		{"2026-01-31T09:30", "2026-03-30T23:59", "2026-02-28", "2026-03-31"},
		{"2026-01-31T09:30", "2028-02-29T00:00", "2028-02-29", "2028-03-31"},
		{"2024-02-29T00:00", "2025-02-28T00:00", "2025-02-28", "2025-03-29"},
		{"2025-12-31T23:59", "2026-01-01T00:00", "2025-12-31", "2026-01-31"},
	} {
		from, to := period(date(c.began), date(c.now))
		if from.Format(time.DateOnly) != c.from || to.Format(time.DateOnly) != c.to {
			t.Errorf("period(%s, %s) = %s to %s, want %s to %s", c.began, c.now, from, to, c.from, c.to)
		}
	}
	// For every day of creation, periods have no gaps, and every now is in one.
	for began := date("2024-01-01T00:00"); began.Year() < 2025; began = began.AddDate(0, 0, 1) {
		for at, end := began, began.AddDate(2, 0, 0); at.Before(end); {
			from, to := period(began, at)
			if at.Before(from) || !at.Before(to) || to.Sub(from) < 28*24*time.Hour || to.Sub(from) > 31*24*time.Hour {
				t.Fatalf("period(%s, %s) = %s to %s", began, at, from, to)
			}
			if _, after := period(began, to); !after.After(to) {
				t.Fatalf("period(%s, %s) ends at %s", began, to, after)
			}
			at = to
		}
	}
}

// TestSeriesCoverTheirPeriod: a series has a point for each hour, day, week or month of a time.
func TestSeriesCoverTheirPeriod(t *testing.T) {
	for _, c := range []struct {
		start, end, granularity string
		points                  int
		first                   string
	}{
		{"2026-03-31T12:00:00Z", "2026-03-31T12:00:00Z", byHour, 1, "2026-03-31T12:00:00Z"},
		{"2026-03-31T12:00:00Z", "2026-03-31T14:00:01Z", byHour, 3, "2026-03-31T12:00:00Z"},
		{"2026-03-31T12:00:00Z", "2026-04-02T00:00:00Z", byDay, 2, "2026-03-31T00:00:00Z"},
		{"2026-03-31T12:00:00Z", "2026-04-05T23:59:59Z", byWeek, 1, "2026-03-30T00:00:00Z"},
		{"2026-04-05T12:00:00Z", "2026-04-06T00:00:01Z", byWeek, 2, "2026-03-30T00:00:00Z"},
		{"2026-01-31T12:00:00Z", "2026-03-01T00:00:01Z", ByMonth, 3, "2026-01-01T00:00:00Z"},
	} {
		start, _ := time.Parse(time.RFC3339, c.start)
		end, _ := time.Parse(time.RFC3339, c.end)
		got, err := cut(start, end, c.granularity)
		if err != nil || len(got) != c.points || got[0].Start.Format(time.RFC3339) != c.first {
			t.Errorf("cut(%s, %s, %s) = %v, %v, want %d points from %s", c.start, c.end, c.granularity, got, err, c.points, c.first)
		}
	}
	if _, err := cut(noon, noon.AddDate(1, 0, 0), byHour); err == nil {
		t.Error("cut of a year into hours succeeds, want an error")
	}
}

// TestPricesAreExact: a bill is computed without rounding errors, and wrong prices are refused.
func TestPricesAreExact(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.json")
	text := `{"currency": "EUR", "plans": {"pro": {"base": "49.90",
		"api_calls": {"included": 100, "per": 1000, "price": "0.35"}, "users": {"price": 2.005}, "storage_gb": {"included": "0.5", "price": "0.10"}}}}`
	errtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	for _, source := range []string{text, file} {
		p, err := LoadPrices(source)
		errtest.Must(t, err)
		b := p.bill("pro", BillUsage{Users: 3, APICalls: 1_000_100, Policies: 7}, 1_500_000_000)
		// 3 people cost 6.015, rounded half up; 1,000,000 calls cost 350; 1 GB costs 0.10.
		if b.Currency != "EUR" || b.BaseCost != 49.90 || b.UsageCost != 6.02+350+0.10 || b.TotalCost != 406.02 || len(b.Lines) != 3 {
			t.Errorf("bill = %+v", b)
		}
		if b := p.bill("standard", BillUsage{Users: 3}, 0); b.TotalCost != 0 || b.Lines == nil {
			t.Errorf("bill of a plan without prices = %+v, want 0", b)
		}
		if b := p.bill("pro", BillUsage{APICalls: 100}, 500_000_000); b.UsageCost != 0 {
			t.Errorf("bill of included usage = %+v, want 0", b)
		}
	}
	for _, bad := range []string{
		`{`, `{} {}`, `{"plan": {}}`, `{"currency": "euro"}`, `{"plans": {"gold": {}}}`, `{"plans": {"pro": {"base": -1}}}`, `{"plans": {"pro": {"base": "1e3"}}}`,
		`{"plans": {"pro": {"users": {"per": 0, "price": 1}}}}`, `{"plans": {"pro": {"seats": {}}}}`, filepath.Join(file, "missing"),
	} {
		if _, err := LoadPrices(bad); err == nil {
			t.Errorf("LoadPrices(%s) succeeds, want an error", bad)
		}
	}
	if p, err := LoadPrices(""); err != nil || p.bill("pro", BillUsage{Users: 3}, 1).Currency != defaultCurrency {
		t.Errorf("LoadPrices without prices = %+v, %v", p, err)
	}
}

// TestCentsAreRoundedHalfUp: half a cent is a cent.
func TestCentsAreRoundedHalfUp(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "0.004": 0, "0.005": 1, "1.994999999": 199, "1.995": 200, "123456789012.345": 12345678901235} {
		r, _ := new(big.Rat).SetString(text)
		if got := cents(r); got.Int64() != want {
			t.Errorf("cents(%s) = %d, want %d", text, got, want)
		}
	}
}

// TestLargeBillsAddUp: even with the largest prices and counts, more usage never costs less.
func TestLargeBillsAddUp(t *testing.T) {
	const most = "999999999999999999.999999999"
	for _, per := range []string{"0.000000001", "1", most} {
		p, err := LoadPrices(fmt.Sprintf(`{"plans": {"pro": {"base": %q, "users": {"per": %q, "price": %q}, "api_calls": {"per": %q, "price": %q}}}}`, most, per, most, per, most))
		errtest.Must(t, err)
		before := Bill{}
		for n := int64(1); n > 0; n *= 8 {
			for _, u := range []int64{n - 1, n, n + n - 1} {
				b := p.bill("pro", BillUsage{Users: u, APICalls: u}, 0)
				if b.BaseCost < 999999999999999999 || b.UsageCost < before.UsageCost || b.TotalCost < b.BaseCost || b.TotalCost < b.UsageCost || b.UsageCost != b.Lines[0].Cost+b.Lines[1].Cost {
					t.Fatalf("bill of %d each at a price per %s = %+v, after %+v", u, per, b, before)
				}
				if before = b; u > 1000 && b.UsageCost < float64(u) {
					t.Fatalf("bill of %d each at a price per %s = %v", u, per, b.UsageCost)
				}
			}
		}
	}
}

// TestNumbersOfCardsAreSeen: the number of a card is recognised in any spelling.
func TestNumbersOfCardsAreSeen(t *testing.T) {
	for text, want := range map[string]bool{
		"4242424242424242": true, "4242 4242 4242 4242": true, "4242-4242-4242-4242": true, "4242.4242.4242.4242": true,
		"card: 4111111111111111": true, "pm_378282246310005": true, "４２４２４２４２４２４２４２４２": true, "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢": true,
		"4242\u200b424242424242": true, "4242424242424241": true, "123456789012": true,
		"pm_1NtwsC2eZvKYlo2C": false, "tok_visa": false, "4242": false, "12345678901": false, "12345678901234567890": false,
		"3f2c9c1e-5a7d-4c58-9f0e-6f8f0e1b2a3c": false, "": false, "seti_4242424242424241": false,
	} {
		if got := looksLikeCard(text); got != want {
			t.Errorf("looksLikeCard(%q) = %t, want %t", text, got, want)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	c := dbtest.Open(b, dbtest.SQLite)
	count := newCalls(b, c, b.TempDir(), clockAt(noon).now).Meter(scope.DefaultTenant, "evaluate")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			count(noon)
		}
	})
}
