package lockout

import (
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The limits on sign-ins in progress, whose callers are unknown.
const (
	// maxInProgress is how many a Limiter admits in total.
	maxInProgress = 512
	// MaxInNetwork is how many one network may have.
	MaxInNetwork = 64
)

// TooManySignIns returns the fault for a sign-in that a Limiter does not admit.
func TooManySignIns() error {
	return fault.New(fault.RateLimited, "too_many_sign_ins", "too many people are signing in; try again shortly").After(time.Second)
}

// Limiter counts the sign-ins in progress, in total and by a key such as their network. The zero value
// is ready to use.
type Limiter struct {
	mu    sync.Mutex // guards both counts
	taken int
	by    map[string]int
}

// Acquire takes a slot; false: no slot is left in total, or the key has most slots already.
func (l *Limiter) Acquire(key string, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken >= maxInProgress || l.by[key] >= most {
		return false
	}
	if l.by == nil {
		l.by = map[string]int{}
	}
	l.taken++
	l.by[key]++
	return true
}

// Release returns a slot of the key.
func (l *Limiter) Release(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	if l.by[key]--; l.by[key] == 0 {
		delete(l.by, key)
	}
}

// InUse returns how many slots are taken in total.
func (l *Limiter) InUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}
