package spool

import (
	"runtime"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestCompany checks that a single appender does not wait for others. After a batch that others joined,
// a number of batches wait.
func TestCompany(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir(), Sync: SyncNever})
	add(t, l, "alone", "alone again")
	if l.company != 0 {
		t.Fatalf("%d batches wait for others after single appends, want 0", l.company)
	}
	pending := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.pending.count
	}
	ended := make(chan error, 2)
	l.writing.Lock() // the first append waits for it, and the second joins its batch
	for n := 1; n <= 2; n++ {
		go func() { ended <- l.Append([]byte("together")) }()
		for late := time.Now().Add(30 * time.Second); pending() < n; runtime.Gosched() {
			if time.Now().After(late) {
				t.Fatalf("%d records are pending, want %d", pending(), n)
			}
		}
	}
	l.writing.Unlock()
	for range 2 {
		errtest.Must(t, <-ended)
	}
	if l.company != companyLasts {
		t.Errorf("%d batches wait for others after a shared one, want %d", l.company, companyLasts)
	}
	for range companyLasts {
		add(t, l, "alone")
	}
	if l.company != 0 {
		t.Errorf("%d batches wait for others after as many single appends, want 0", l.company)
	}
	if recs, _ := drain(t, l, 10); len(recs) != 4+companyLasts {
		t.Errorf("%d records, want %d", len(recs), 4+companyLasts)
	}
}
