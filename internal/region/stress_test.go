package region

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// otherFiles is a second region of files.
const otherFiles = "us-east-1"

// busy is how often in a row a store may be too slow because of other tests on this machine.
const busy = 5

// patiently repeats requests that a busy store did not answer in time, as a client would. It does
// not repeat other failures, such as a move that takes too long.
func patiently(f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if try == busy || !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "store_unavailable") {
			return err
		}
	}
}

// TestMovesToAndFro: a tenant moves repeatedly between stores that had it before, during many reads
// and writes. No caller sees an error, and no acknowledged write is lost.
func TestMovesToAndFro(t *testing.T) {
	fulltest.Only(t)
	for _, home := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(home, func(t *testing.T) {
			if home != dbtest.SQLite {
				skipLong(t)
			}
			ctx := context.Background()
			cfg := config(t, home)
			cfg.Regions[otherFiles] = db.Region{Dir: t.TempDir()}
			s := process(t, cfg, nil)
			s.Keep = 0
			populate(t, s, fileRegion)
			var end atomic.Bool
			var running sync.WaitGroup
			var mu sync.Mutex
			var want []string
			for n := range 4 {
				running.Go(func() {
					for i := 0; !end.Load(); i++ {
						name := fmt.Sprint("writer ", n, " ", i)
						if err := patiently(func() error { return put(s, name) }); err != nil {
							t.Errorf("write: %v", err)
							continue
						}
						mu.Lock()
						want = append(want, name)
						mu.Unlock()
					}
				})
				running.Go(func() {
					for !end.Load() {
						err := patiently(func() error {
							return s.Stores.Read(ctx, dbtest.Second, func(tx *db.Tx) error {
								n, err := db.One[int64](ctx, tx, `SELECT count(*) FROM settings`)
								if err == nil && n < 700 {
									err = fmt.Errorf("%d rows, want at least 700", n)
								}
								return err
							})
						})
						if err != nil {
							t.Errorf("read: %v", err)
						}
					}
				})
			}
			stop := sync.OnceFunc(func() { end.Store(true); running.Wait() })
			defer stop()
			route := []string{otherFiles, serverRegion, fileRegion}
			if !testing.Short() { // also move to stores that had the tenant before
				route = append(route, route...)
			}
			for _, to := range route {
				d, err := s.Start(ctx, root, dbtest.Second, Request{Region: to})
				errtest.Must(t, err)
				began := time.Now()
				d = finish(t, s, d.ID)
				if d.Status != Completed || regionOfTenant(t, s) == "" {
					t.Errorf("deployment to %s = %+v (%s), want it completed", to, d, d.ReasonText)
				}
				t.Logf("to %s in %s: %d changes, a pause of %d ms", to, time.Since(began), d.ChangesCopied, d.WritePauseMS)
				if t.Failed() {
					break
				}
			}
			stop()
			checkAllThere(t, s, want)
		})
	}
}
