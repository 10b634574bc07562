package ide

import (
	"context"

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

// NewLarge returns the memory for the large answers of repositories.
func NewLarge() *memory.Pool {
	return memory.New(largeAtOnce*largeFetch, largeOfTenant*largeFetch, fetchTime)
}

// largeAnswer is the memory that one fetch takes if an answer is large.
type largeAnswer struct {
	pool    *memory.Pool
	tenant  scope.TenantID
	release func()
}

// take takes the memory once. The host waits meanwhile.
func (l *largeAnswer) take(ctx context.Context) (err error) {
	if l == nil || l.pool == nil || l.release != nil {
		return nil
	}
	l.release, err = l.pool.Take(ctx, string(l.tenant), largeFetch, false)
	return err
}

// free frees the memory. Call it when the pack is not needed any more.
func (l *largeAnswer) free() {
	if l.release != nil {
		l.release()
	}
}
