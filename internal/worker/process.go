package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// process is a running child.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	log  *tail
	once sync.Once
	err  error
	// idleTimer ends the child when it has been idle for Config.Idle. It is only active while the child
	// is in the pool.
	idleTimer *time.Timer
	started   time.Time
}

// oneThread limits a child to one processor. Rego uses one thread; a second one would only speed up
// the garbage collection, at the cost of other processes.
const oneThread = "GOMAXPROCS=1"

// start starts a child. Its environment contains only env, because the Rego of authors must not
// read the server's environment.
func start(cfg Config, env ...string) (*process, error) {
	args := append(append([]string{}, cfg.Command[1:]...), "--memory="+strconv.FormatInt(cfg.Memory, 10))
	cmd := exec.Command(cfg.Command[0], args...) //nolint:noctx // the child outlives this call; kill ends it
	cmd.Env = append([]string{}, env...)         // not nil: nil means the server's environment
	cmd.Dir = "/"
	detach(cmd)
	proc := &process{cmd: cmd, log: &tail{}}
	cmd.Stderr = proc.log
	var err error
	if proc.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if proc.out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Command[0], err)
	}
	lowerPriority(cmd.Process.Pid)
	proc.started = time.Now()
	return proc, nil
}

// call sends a request and waits for the reply. After an error, the child must not be used again.
func (p *process) call(ctx context.Context, limit time.Duration, req request) (reply, error) {
	var rep reply
	err := p.runLimited(ctx, limit, func() error {
		if err := writeFrame(p.in, req); err != nil {
			return err
		}
		return readFrame(p.out, &rep)
	})
	if err != nil {
		return reply{}, err
	}
	return rep, nil
}

// maxBusyWait limits how long a call may take if the machine is too busy to give the child the
// processor time of its limit.
const maxBusyWait = 20 * time.Second

// runLimited runs do, which talks to the child. If the limit is exceeded or ctx ends, it kills the
// child, which also ends do. The limit counts processor time: children have a low priority, and a
// busy machine must not cause a source to be refused.
func (p *process) runLimited(ctx context.Context, limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	began, before := time.Now(), p.cpuTime()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return p.exitCause(err)
			}
			return nil
		case <-timer.C:
			remaining := limit - (p.cpuTime() - before)
			if waitLeft := max(limit, maxBusyWait) - time.Since(began); remaining > 0 && waitLeft > 0 {
				timer.Reset(min(remaining, waitLeft))
				continue
			}
			p.kill()
			<-done //nolint:errcheck // an error that kill caused
			if remaining > 0 && limit < maxBusyWait {
				return fault.New(fault.Unavailable, "worker_unavailable", "the server is too busy to evaluate this now").After(time.Second)
			}
			return limitFault(fmt.Sprintf("the evaluation did not finish within %s", limit)).Because(errDeadline)
		case <-ctx.Done():
			p.kill()
			<-done //nolint:errcheck // an error that kill caused
			return fault.New(fault.Unavailable, "cancelled", "the caller disconnected").Because(ctx.Err())
		}
	}
}

// cpuTime returns the processor time that the child has used. If the system does not report it, it
// returns the time since the start.
func (p *process) cpuTime() time.Duration {
	if spent, counted := processorTime(p.cmd.Process.Pid); counted {
		return spent
	}
	return time.Since(p.started)
}

// exitCause returns why a child ended: it exceeded a limit, or failed.
func (p *process) exitCause(cause error) error {
	p.kill()
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok && (exit.ExitCode() == exitMemory || p.log.contains("out of memory") || p.log.contains("cannot allocate memory") || p.log.contains("failed to allocate")) {
		return limitFault("the evaluation exceeded its memory limit")
	}
	if p.log.contains("stack exceeds") || p.log.contains("stack overflow") {
		return limitFault("the evaluation exceeded its stack limit")
	}
	return fault.New(fault.Internal, "internal_error", "the evaluator stopped unexpectedly").Because(fmt.Errorf("%w: %w: %s", cause, p.err, p.log))
}

// errDeadline is the cause of the fault of an evaluation whose child was killed at its deadline.
var errDeadline = errors.New("the child was killed at the deadline")

func limitFault(message string) *fault.Error {
	f := fault.New(fault.Invalid, "evaluation_limit", message)
	f.Details = []fault.Detail{{Pointer: "/rego_code", Message: message}}
	return f
}

// kill ends the child and waits for its end. Further calls do nothing.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.in.Close()
		_ = p.cmd.Process.Kill()
		p.err = p.cmd.Wait()
	})
}

// tail holds the first 4 KiB of a child's standard error.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := 4096 - len(t.buf); room > 0 {
		t.buf = append(t.buf, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (t *tail) contains(s string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Contains(t.buf, []byte(s))
}

// String returns the output, for the log.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
