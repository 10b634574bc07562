// Package apptest runs the real program for tests: a process with its own store, called over HTTP.
// So tests see what users see. A test can kill the process and start it again with the same data.
package apptest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
	"github.com/gatehouse-dev/gatehouse/internal/timetest"
)

// Password is that of the first administrator.
const Password = "correct horse battery staple 9"

// Binary builds the program, once for each test process, and returns its path. `go build` only
// links it if it has changed since the last build in this checkout. Each process has its own link
// to the file, so that the next build does not remove it.
func Binary(t testing.TB) string {
	t.Helper()
	skipInInnerLoop(t)
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("gatehouse-test-bin-%d-%x", os.Getuid(), sha256.Sum256([]byte(root)))[:48]
	args := []string{"build", "-ldflags=-s -w"} // without debug information, linking takes half the time
	if Race {
		args, name = append(args, "-race"), name+"-race"
	}
	kept := filepath.Join(os.TempDir(), name)
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	cmd := exec.Command("go", append(args, "-o", kept, "github.com/gatehouse-dev/gatehouse/cmd/gatehouse")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, text)
	}
	if err := statSources(); err != nil {
		return "", err
	}
	removeOld()
	dir, err := os.MkdirTemp("", ownDir)
	if err != nil {
		return "", err
	}
	own = dir
	out := filepath.Join(dir, "gatehouse")
	return out, os.Link(kept, out)
})

// statSources stats each source file of the program. `go test` reuses a cached result until a file
// changes that the tests have opened or inspected. It does not know that the tests build the
// program, so without this it would answer "(cached)" after a change.
func statSources() error {
	const files = `{{if not .Standard}}{{$dir := .Dir}}{{$dir}}
{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}`
	text, err := exec.Command("go", "list", "-deps", "-f", files, "github.com/gatehouse-dev/gatehouse/cmd/gatehouse").Output()
	if err != nil {
		return fmt.Errorf("list the sources: %w", err)
	}
	for file := range strings.Lines(string(text)) {
		if file = strings.TrimSpace(file); file != "" {
			if _, err := os.Stat(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// Root returns the folder of the repository: the nearest one with a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// ownDir is the prefix of the folder with a test process's program.
const ownDir = "gatehouse-apptest-"

var own string

// Main runs the tests of a package, and then removes this process's program.
func Main(m *testing.M) {
	code := m.Run()
	if own != "" {
		_ = os.RemoveAll(own)
	}
	os.Exit(code)
}

// removeOld removes the programs of test processes that were killed.
func removeOld() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), ownDir+"*")) // the pattern is valid
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 2*time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
}

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

// Stop interrupts the process and waits at most ten seconds for its end.
func (p *Process) Stop() {
	if _, ended := p.Exited(); ended {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(12 * time.Second):
		p.t.Errorf("the program did not stop within ten seconds\n%s", p.Log)
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
