package guess

import (
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// Limits on the sign-ins of strangers that are in progress, in total and from one network.
const (
	seats = 512
	// SeatsNetwork is how many one network may have in progress.
	SeatsNetwork = 64
)

// TooManySignIns is the answer for a network with too many sign-ins at once.
func TooManySignIns() error {
	return fault.New(fault.RateLimited, "too_many_sign_ins", "too many people are signing in; try again shortly").After(time.Second)
}

// Lobby counts the sign-ins of strangers in progress, in total and by a key such as their
// network. The zero value is empty.
type Lobby struct {
	mu    sync.Mutex
	taken int
	by    map[string]int
}

// Enter takes a seat; false: there is none left in total, or the key has most of them.
func (l *Lobby) Enter(key string, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken >= seats || l.by[key] >= most {
		return false
	}
	if l.by == nil {
		l.by = map[string]int{}
	}
	l.taken++
	l.by[key]++
	return true
}

// Leave gives the seat back.
func (l *Lobby) Leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	if l.by[key]--; l.by[key] == 0 {
		delete(l.by, key)
	}
}

// Taken is how many seats are taken in total.
func (l *Lobby) Taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}
