package worker

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/rego/lang"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// Config configures a pool.
type Config struct {
	// Command starts a child: the program and its arguments.
	Command []string
	// Size is the maximum number of children. PerTenant is how many of them one tenant may use at
	// once.
	Size, PerTenant int
	// Queue is how many calls of one tenant may wait. Further calls are refused with 429.
	Queue int
	// Memory is the memory limit of a child, in bytes.
	Memory int64
	// ValidateDeadline, LintDeadline and TestDeadline limit the processor time of one call.
	ValidateDeadline, LintDeadline, TestDeadline time.Duration
	// ModulesDeadline limits the processor time of a run of Rego tests.
	ModulesDeadline time.Duration
	// SimulateDeadline limits the duration of a simulation, including the wait for a child.
	SimulateDeadline time.Duration
	// Idle is how long an idle child is kept.
	Idle   time.Duration
	Logger *slog.Logger
	// Panics counts and logs the panics that children recovered.
	Panics *fault.Panics
}

// Defaults returns the default configuration for the given command.
func Defaults(command ...string) Config {
	return Config{
		Command: command, Size: 3, PerTenant: perTenant(runtime.GOMAXPROCS(0)), Queue: 16, Memory: childMemory,
		ValidateDeadline: 2 * time.Second, LintDeadline: 8 * time.Second, TestDeadline: 5 * time.Second,
		ModulesDeadline: 20 * time.Second, SimulateDeadline: 30 * time.Second,
		Idle:   5 * time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// perTenant returns how many children one tenant may use at once: two, but at least one processor
// stays free for decisions. A low priority of children is not enough: a thread that wakes up waits
// for the time slice of the running thread, whatever its priority, and a slice is longer than a
// decision.
func perTenant(processors int) int { return max(1, min(2, processors-1)) }

// Pool sends requests to children. At most Size of them run at once.
type Pool struct {
	cfg   Config
	slots chan struct{}
	// long limits the calls that may take long. One slot stays free for checks of controls, so that
	// they never wait for such calls of other tenants.
	long chan struct{}

	mu      sync.Mutex
	idle    []*process
	tenants map[scope.TenantID]*share
	closed  bool
	reapers sync.WaitGroup
	replays *replays
}

// share is one tenant's share of the pool.
type share struct {
	slots   chan struct{}
	waiting int
}

// NewPool returns a pool. It starts children when they are needed.
func NewPool(cfg Config) *Pool {
	return &Pool{cfg: cfg, slots: make(chan struct{}, cfg.Size), long: make(chan struct{}, max(1, cfg.Size-1)), tenants: map[scope.TenantID]*share{}, replays: newReplays()}
}

// Validate checks a source: a control that may import libs, or a library (lang.CheckModule). If it
// is valid, the linter runs too; a linter timeout is only a warning. Faults: Invalid
// "evaluation_limit" if the child exceeded its time or memory limit, RateLimited if too many calls
// of the tenant are waiting, Unavailable if no child could be started.
func (p *Pool) Validate(ctx context.Context, tenant scope.TenantID, source string, libs ...lang.Library) (Validation, error) {
	v, err := p.Check(ctx, tenant, source, libs...)
	if err != nil || !v.Valid {
		return v, err
	}
	warnings, err := p.Lint(ctx, tenant, source)
	if err != nil {
		return Validation{}, err
	}
	v.Warnings = append(v.Warnings, warnings...)
	return v, nil
}

// Lint returns the linter's warnings for a source that Check accepted. A timeout is a warning too.
// Faults: RateLimited and Unavailable, as in Validate.
func (p *Pool) Lint(ctx context.Context, tenant scope.TenantID, source string) ([]lang.Issue, error) {
	rep, err := p.call(ctx, tenant, p.cfg.LintDeadline, request{Op: opLint, Source: source})
	if fault.Is(err, fault.Invalid) {
		return []lang.Issue{{Message: "the linter did not finish this source", Severity: lang.SeverityWarning, Rule: "linter"}}, nil
	}
	return rep.Issues, err
}

// Check validates a source without the linter. Creates and updates of policies use it. Faults:
// those of Validate.
func (p *Pool) Check(ctx context.Context, tenant scope.TenantID, source string, libs ...lang.Library) (Validation, error) {
	rep, err := p.call(ctx, tenant, p.cfg.ValidateDeadline, request{Op: opValidate, Source: source, Libraries: libs})
	if err != nil {
		return Validation{}, err
	}
	v := Validation{Valid: len(rep.Issues) == 0, Errors: rep.Issues, Warnings: []lang.Issue{}}
	if v.Errors == nil {
		v.Errors = []lang.Issue{}
	}
	return v, nil
}

// Warm starts a child before the first call and prepares its linter. Run it in the background. It
// ignores errors; the first call reports them.
func (p *Pool) Warm(ctx context.Context) {
	_, _ = p.Validate(ctx, scope.DefaultTenant, "package warm\n")
}

func (p *Pool) call(ctx context.Context, tenant scope.TenantID, limit time.Duration, req request) (reply, error) {
	leave, err := p.acquireSlot(ctx, tenant, req.Op != opValidate && req.Op != opLint)
	if err != nil {
		return reply{}, err
	}
	defer leave()
	return p.callOnce(ctx, limit, req)
}

// callOnce sends a request to an idle child or a new one. The caller holds a slot.
func (p *Pool) callOnce(ctx context.Context, limit time.Duration, req request) (reply, error) {
	rep, err := p.callChild(ctx, limit, req, p.takeIdle())
	if fault.Is(err, fault.Internal) {
		// The child may have died while it was idle, or because of an earlier request. Try a new
		// child before the source is refused.
		rep, err = p.callChild(ctx, limit, req, nil)
	}
	if err != nil {
		return reply{}, err
	}
	if rep.Error != "" {
		return reply{}, fault.New(fault.Invalid, "evaluation_failed", rep.Error)
	}
	return rep, nil
}

// callChild sends a request to proc, or to a new child if proc is nil.
func (p *Pool) callChild(ctx context.Context, limit time.Duration, req request, proc *process) (reply, error) {
	if proc == nil {
		var err error
		if proc, err = start(p.cfg, oneThread); err != nil {
			return reply{}, fault.New(fault.Unavailable, "worker_unavailable", "the evaluator could not be started").After(time.Second).Because(err)
		}
	}
	rep, err := proc.call(ctx, limit, req)
	if err != nil {
		proc.kill()
		return reply{}, err
	}
	p.putIdle(proc)
	reportPanics(ctx, p.cfg.Panics, rep)
	return rep, nil
}

// acquireSlot waits for a slot of the tenant and then for one of the pool. In this order, a burst of one
// tenant does not delay the others. A call that may take long also needs one of the long slots.
func (p *Pool) acquireSlot(ctx context.Context, tenant scope.TenantID, long bool) (leave func(), err error) {
	p.mu.Lock()
	sh := p.tenants[tenant]
	if sh == nil {
		sh = &share{slots: make(chan struct{}, p.cfg.PerTenant)}
		p.tenants[tenant] = sh
	}
	if sh.waiting >= p.cfg.Queue+p.cfg.PerTenant {
		p.mu.Unlock()
		return nil, fault.New(fault.RateLimited, "rate_limit_exceeded", "too many evaluations of this tenant are waiting").After(time.Second)
	}
	sh.waiting++
	p.mu.Unlock()

	need := []chan struct{}{sh.slots, p.slots}
	if long {
		need = []chan struct{}{sh.slots, p.long, p.slots}
	}
	release := func(held []chan struct{}) {
		for _, slots := range slices.Backward(held) {
			<-slots
		}
		p.stopWaiting(tenant, sh)
	}
	for i, slots := range need {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			release(need[:i])
			return nil, fault.Cancelled(ctx.Err())
		}
	}
	return func() { release(need) }, nil
}

func (p *Pool) stopWaiting(tenant scope.TenantID, sh *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sh.waiting--; sh.waiting == 0 {
		delete(p.tenants, tenant)
	}
}

// takeIdle returns an idle child, or nil. The caller holds a slot.
func (p *Pool) takeIdle() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle); n > 0; n = len(p.idle) {
		proc := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if proc.idleTimer.Stop() {
			p.reapers.Done()
			return proc
		}
	}
	return nil
}

// putIdle keeps a child for the next call. A child that stays idle for Config.Idle is ended.
func (p *Pool) putIdle(proc *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		proc.kill()
		return
	}
	p.reapers.Add(1)
	proc.idleTimer = time.AfterFunc(p.cfg.Idle, func() {
		defer p.reapers.Done()
		p.drop(proc)
	})
	p.idle = append(p.idle, proc)
}

func (p *Pool) drop(proc *process) {
	p.mu.Lock()
	for i, q := range p.idle {
		if q == proc {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	proc.kill()
}

// Close ends all idle children and waits for them. A busy child ends after its call.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, proc := range idle {
		if proc.idleTimer.Stop() {
			p.reapers.Done()
		}
		proc.kill()
	}
	p.reapers.Wait()
	return nil
}
