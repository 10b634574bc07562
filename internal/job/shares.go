package job

import (
	"sync"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// shares limits how many jobs of one tenant run at once, so that jobs that take long do not delay
// those of other tenants.
type shares struct {
	perTenant int

	mu      sync.Mutex
	running map[scope.TenantID]int
	// refused are the tenants that got nothing. They are checked again when one of their jobs ends.
	refused map[scope.TenantID]bool
}

// take returns how many jobs of a tenant may start now, up to limit.
func (s *shares) take(tenant scope.TenantID, limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(limit, s.perTenant-s.running[tenant])
	if n <= 0 {
		s.refused[tenant] = true
		return 0
	}
	s.running[tenant] += n
	return n
}

// giveBack is called when n jobs of a tenant have ended. It reports whether the tenant must be
// checked again.
func (s *shares) giveBack(tenant scope.TenantID, n int) (check bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[tenant] -= n; s.running[tenant] == 0 {
		delete(s.running, tenant)
	}
	check = n > 0 && s.refused[tenant]
	if check {
		delete(s.refused, tenant)
	}
	return check
}

// Away runs f, which waits for a system that may hang. Meanwhile the task does not occupy a slot of
// its runner, unless very many tasks are away.
func (t Task) Away(f func() error) error {
	if t.leave == nil { // no runner claimed the task
		return f()
	}
	defer t.leave()()
	return f()
}

// leave frees the slot of a task, and returns the function that takes one again.
func (r *Runner) leave() (comeBack func()) {
	select {
	case r.away <- struct{}{}:
	default:
		return func() {}
	}
	<-r.slots
	return func() {
		r.slots <- struct{}{}
		<-r.away
	}
}
