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

// process is one child and its two pipes.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	log  *tail
	once sync.Once
	err  error
	// rest ends an idle child; it runs only while the child is in the pool.
	rest    *time.Timer
	started time.Time
}

// oneThread keeps a child to one processor. A program has one thread: a second
// one would go to the collection of its garbage, at the cost of others.
const oneThread = "GOMAXPROCS=1"

// start runs a child. Its environment is what is given, and nothing of ours for
// authors' Rego to find.
func start(cfg Config, env ...string) (*process, error) {
	args := append(append([]string{}, cfg.Command[1:]...), "--memory="+strconv.FormatInt(cfg.Memory, 10))
	cmd := exec.Command(cfg.Command[0], args...) //nolint:noctx // it outlives the call that started it; kill ends it
	cmd.Env = append([]string{}, env...)         // never nil, which would be ours
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

// call sends one request and waits for its reply, the deadline or the caller's
// end. On any error the child is not to be used again.
func (p *process) call(ctx context.Context, limit time.Duration, req request) (reply, error) {
	var rep reply
	err := p.bounded(ctx, limit, func() error {
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

// patience is how long a call may take that a busy machine keeps from the processor
// time of its limit.
const patience = 20 * time.Second

// bounded talks to the child within the limit and the caller's time; when either is
// over the child is killed, which ends do. The limit counts processor time: children
// step back for the server, and no source is refused because the machine is busy.
func (p *process) bounded(ctx context.Context, limit time.Duration, do func() error) error {
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
			owed := limit - (p.cpuTime() - before)
			if rest := max(limit, patience) - time.Since(began); owed > 0 && rest > 0 {
				timer.Reset(min(owed, rest))
				continue
			}
			p.kill()
			<-done //nolint:errcheck // what it says comes of the kill
			if owed > 0 && limit < patience {
				return fault.New(fault.Unavailable, "worker_unavailable", "the server is too busy to evaluate this now").After(time.Second)
			}
			return limitFault(fmt.Sprintf("the evaluation did not finish within %s", limit))
		case <-ctx.Done():
			p.kill()
			<-done //nolint:errcheck // what it says comes of the kill
			return fault.New(fault.Unavailable, "cancelled", "the caller disconnected").Because(ctx.Err())
		}
	}
}

// cpuTime is the processor time of the child so far; where the system does not count it,
// the time since it started.
func (p *process) cpuTime() time.Duration {
	if spent, counted := processorTime(p.cmd.Process.Pid); counted {
		return spent
	}
	return time.Since(p.started)
}

// exitCause says why a child broke off: over its memory, or a failure of its own.
func (p *process) exitCause(cause error) error {
	p.kill()
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && (exit.ExitCode() == exitMemory || p.log.contains("out of memory") || p.log.contains("cannot allocate memory") || p.log.contains("failed to allocate")) {
		return limitFault("the evaluation exceeded its memory limit")
	}
	if p.log.contains("stack exceeds") || p.log.contains("stack overflow") {
		return limitFault("the evaluation exceeded its stack limit")
	}
	return fault.New(fault.Internal, "internal_error", "the evaluator stopped unexpectedly").Because(fmt.Errorf("%w: %w: %s", cause, p.err, p.log))
}

func limitFault(message string) error {
	f := fault.New(fault.Invalid, "evaluation_limit", message)
	f.Details = []fault.Detail{{Pointer: "/rego_code", Message: message}}
	return f
}

// kill ends the child and waits for it; again, it does nothing.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.in.Close()
		_ = p.cmd.Process.Kill()
		p.err = p.cmd.Wait()
	})
}

// tail keeps the first 4 KiB of what a child said before it died.
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

// String is what the child said, for the log.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
