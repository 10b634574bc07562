package ide

import (
	"context"
	"errors"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/memory"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// A list of refs of the largest size takes about largeFetch bytes, and a pack less. largeOfTenant and
// largeAtOnce bound how many fetches with a large answer run at once, of one tenant and of all.
const (
	largeFetch    = 64 << 20
	largeOfTenant = 2
	largeAtOnce   = 8
)

// codeBusy is the error code of tooBusy.
const codeBusy = "busy"

// NewLarge returns the memory for the large answers of repositories.
func NewLarge() *memory.Pool {
	return memory.New(largeAtOnce*largeFetch, largeOfTenant*largeFetch, fetchTime)
}

// largeAnswer is the memory that one fetch takes if an answer is large.
type largeAnswer struct {
	pool    *memory.Pool
	tenant  scope.TenantID
	release func()
	// refused is true if there was no memory in time.
	refused bool
}

// take takes the memory once. The host waits meanwhile.
func (l *largeAnswer) take(ctx context.Context) (err error) {
	if l == nil || l.pool == nil || l.release != nil {
		return nil
	}
	l.release, err = l.pool.Take(ctx, string(l.tenant), largeFetch, false)
	l.refused = err != nil
	return err
}

// isRefused reports whether the fetch failed for lack of memory, and not because of the host.
func (l *largeAnswer) isRefused() bool { return l != nil && l.refused }

// tooBusy returns the fault for work that other work keeps waiting for too long. It may be repeated.
func tooBusy(err error) error {
	return fault.New(fault.Unavailable, codeBusy, "too many repositories are being fetched").After(time.Minute).Because(err)
}

// isBusy reports whether an error is that of tooBusy.
func isBusy(err error) bool {
	f, ok := errors.AsType[*fault.Error](err)
	return ok && f.Code == codeBusy
}

// free frees the memory. Call it when the pack is not needed any more.
func (l *largeAnswer) free() {
	if l.release != nil {
		l.release()
	}
}
