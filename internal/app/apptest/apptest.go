// Package apptest runs the real program for tests: a process with its own store, called over HTTP.
// So tests see what users see. A test can kill the process and start it again with the same data.
package apptest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// Password is that of the first administrator.
const Password = "correct horse battery staple 9"

// Process is a running program.
type Process struct {
	// URL is its address, without a path.
	URL string
	// Log has its output so far.
	Log *Log

	t    testing.TB
	args []string
	env  []string
	wait string
	cmd  *exec.Cmd
	done chan struct{}
}

// Launch starts the program and waits until the path wait answers 200. The program stops when the
// test ends.
func Launch(t testing.TB, url, wait string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{URL: url, Log: &Log{}, t: t, args: args, env: env, wait: wait}
	p.Start()
	t.Cleanup(p.Stop)
	return p
}

// Start starts the program, also again after Kill or Stop.
func (p *Process) Start() {
	p.t.Helper()
	p.cmd = exec.Command(Binary(p.t), p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Log, p.Log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.cmd, p.done)
	if p.wait != "" {
		p.await()
	}
}

func (p *Process) await() {
	p.t.Helper()
	Eventually(p.t, 30*time.Second, func() error {
		select {
		case <-p.done:
			p.t.Fatalf("the program ended:\n%s", p.Log)
		default:
		}
		res, err := http.Get(p.URL + p.wait)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %d\n%s", p.wait, res.StatusCode, p.Log)
		}
		return nil
	})
}

// Env returns the program's environment, for other commands on the same host.
func (p *Process) Env() []string { return slices.Clone(p.env) }

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited reports whether the process has ended, and its exit code.
func (p *Process) Exited() (code int, ended bool) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), true
	default:
		return 0, false
	}
}

// Wait waits for the process to end and returns its exit code.
func (p *Process) Wait(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("the program did not end within %s\n%s", limit, p.Log)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Interrupt sends SIGINT, as Ctrl-C does.
func (p *Process) Interrupt() { _ = p.cmd.Process.Signal(os.Interrupt) }

// Stop interrupts the process and waits at most twelve seconds for its end.
func (p *Process) Stop() {
	if _, ended := p.Exited(); ended {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(12 * time.Second):
		p.t.Errorf("the program did not stop within twelve seconds\n%s", p.Log)
		p.Kill()
	}
}

// Log collects output. It can be read while it is written.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// String returns the output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Eventually calls check until it returns nil. After limit, it fails the test with the last error.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	timetest.Eventually(t, limit, check)
}

// Each runs a test on each backend, as subtests; in the inner loop on SQLite only. If the stores
// differ in a behaviour, test it with Both, or in the packages of the stores. env are settings of
// the server.
func Each(t *testing.T, test func(t *testing.T, s *Server), env ...string) {
	t.Helper()
	skipInInnerLoop(t)
	for _, backend := range dbtest.Backends() {
		t.Run(backend, func(t *testing.T) { test(t, StartServer(t, backend, env...)) })
	}
}

// Both runs a test on each backend, as subtests, also in the inner loop.
func Both(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	skipInInnerLoop(t)
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		t.Run(backend, func(t *testing.T) { test(t, StartServer(t, backend)) })
	}
}
