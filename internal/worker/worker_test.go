package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value/valuetest"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// TestMain lets the test binary act as the worker that the pool starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == "worker-for-test" || os.Args[1] == brokenWorker) {
		if os.Args[1] == brokenWorker {
			breakMD5()
		}
		memory, err := strconv.ParseInt(strings.TrimPrefix(os.Args[2], "--memory="), 10, 64)
		if err == nil {
			err = Main(context.Background(), os.Stdin, os.Stdout, memory)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pool returns a pool whose children are this test binary.
func pool(t testing.TB) *Pool {
	t.Helper()
	return poolWith(t, "worker-for-test", func(*Config) {})
}

// poolWith returns a pool of children of a kind, with a changed configuration.
func poolWith(t testing.TB, child string, change func(*Config)) *Pool {
	t.Helper()
	self, err := os.Executable()
	errtest.Must(t, err)
	cfg := Defaults(self, child)
	change(&cfg)
	p := NewPool(cfg)
	t.Cleanup(func() { p.Close() })
	return p
}

// wantLimit reports an error that does not name a limit.
func wantLimit(t *testing.T, what string, err error) {
	t.Helper()
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != "evaluation_limit" {
		t.Errorf("%s: %v, want evaluation_limit", what, err)
	}
}

// endless is a test of a control that does not end by itself.
func endless(t *testing.T) TestRequest {
	t.Helper()
	one := suite.TestCase{Input: valuetest.Decode(t, `{"x":1}`)}
	return TestRequest{Source: "package loop\n\n" + hostile["nested loops"] + "\n", Cases: []suite.TestCase{one, one, one, one}}
}

const fine = `package fine

allow if input.user.role == "admin"
`

// A validation finds the errors of a control with their places.
func TestValidate(t *testing.T) {
	p := pool(t)
	v, err := p.Validate(t.Context(), "default", fine)
	if err != nil || !v.Valid || len(v.Errors) != 0 {
		t.Fatalf("a valid control: %+v, %v, want no errors", v, err)
	}
	v, err = p.Validate(t.Context(), "default", "package broken\n\nallow if undefined_function(1)\n")
	if err != nil || v.Valid || len(v.Errors) == 0 || v.Errors[0].Line != 3 || v.Errors[0].Column == 0 {
		t.Fatalf("an undefined function: %+v, %v, want an error in line 3", v, err)
	}
}

// A test finds which cases a control meets.
func TestTest(t *testing.T) {
	p := pool(t)
	in := func(role string) value.Value { return valuetest.Decode(t, `{"user":{"role":"`+role+`"}}`) }
	got, err := p.Test(t.Context(), "default", TestRequest{Name: "fine", Source: fine, Cases: []suite.TestCase{
		{Name: "admin", Input: in("admin"), Expected: true}, {Name: "guest", Input: in("guest"), Expected: true},
	}})
	if err != nil || len(got) != 2 || !got[0].Passed || got[1].Passed {
		t.Fatalf("the results are %+v, %v, want only the first passed", got, err)
	}
	if _, err = p.Test(t.Context(), "default", TestRequest{Source: "package x\nallow if nope()"}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("a control that does not compile: %v, want Invalid", err)
	}
}

// TestDeadChild checks that a child that died while it was idle is replaced, and that the next source is
// not refused.
func TestDeadChild(t *testing.T) {
	p := pool(t)
	for range 3 {
		if v, err := p.Validate(t.Context(), "default", fine); err != nil || !v.Valid {
			t.Fatalf("after the end of a child: %+v, %v, want a valid control", v, err)
		}
		p.mu.Lock()
		for _, proc := range p.idle {
			if err := proc.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
		p.mu.Unlock()
	}
}

// hostile are programs with which an author could harm the server. With a deadline alone, each of
// them ended late or used more memory than a server has.
var hostile = map[string]string{
	"reachable paths": `g := {n: [m | some m in numbers.range(1, 11)] | some n in numbers.range(1, 11)}
allow if count(graph.reachable_paths(g, {1})) > 0`,
	"shift":             `allow if bits.lsh(1, 10000000) > 0`,
	"patch":             `allow if count(json.patch([x | some x in numbers.range(1, 20000)], [{"op": "add", "path": "0", "value": i} | some i in numbers.range(1, 20000)])) > 0`,
	"marshal":           `big := numbers.range(1, 200000)` + "\n" + `allow if count(json.marshal([big | some _ in numbers.range(1, 300)])) > 0`,
	"split":             `allow if count(split(concat("", ["aaaaaaaaaaaaaaaaaaaa" | some _ in numbers.range(1, 1000000)]), "")) > 0`,
	"squares":           `a := bits.lsh(3, 4000000)` + "\n" + `allow if ((a * a) * (a * a)) > 0`,
	"find":              `allow if count(regex.find_n("a?", concat("", [sprintf("aaaaaaaa%d", [x]) | some x in numbers.range(1, 1000000)]), -1)) > 0`,
	"doubling":          doubling(30),
	"nested loops":      `allow if count([1 | some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); some c in numbers.range(1, 3000); a + b + c < 0]) > 0`,
	"memory":            `allow if count([[a, b] | some a in numbers.range(1, 5000); some b in numbers.range(1, 5000)]) > 0`,
	"references":        references(8),
	"walk":              `allow if count([1 | walk(numbers.range(1, 3000000), _)]) > 0`,
	"expand":            `allow if count(net.cidr_expand("10.0.0.0/8")) > 0`,
	"many elses":        elses(5000),
	"many rules":        rules(20000),
	"deep nesting":      "allow if " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + " != 1",
	"a source of 2 MiB": "# " + strings.Repeat("x", 2<<20),
}

func doubling(n int) string {
	var b strings.Builder
	b.WriteString("s0 := \"aaaaaaaaaaaaaaaa\"\n")
	for i := range n {
		fmt.Fprintf(&b, "s%d := concat(\"\", [s%d, s%d])\n", i+1, i, i)
	}
	fmt.Fprintf(&b, "allow if count(s%d) > 0\n", n)
	return b.String()
}

func references(n int) string {
	var b strings.Builder
	b.WriteString("a0 := [1, 2, 3, 4, 5, 6, 7, 8]\n")
	for i := range n {
		fmt.Fprintf(&b, "a%d := [a%d, a%d, a%d, a%d, a%d, a%d, a%d, a%d]\n", i+1, i, i, i, i, i, i, i, i)
	}
	fmt.Fprintf(&b, "reason := json.marshal(a%d)\nallow if count(reason) > 0\n", n)
	return b.String()
}

func elses(n int) string {
	var b strings.Builder
	b.WriteString("allow := false if input.x == 0\n")
	for i := range n {
		fmt.Fprintf(&b, "else := true if input.x == %d\n", i+1)
	}
	return b.String()
}

func rules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r%d if input.x == %d\n", i, i)
	}
	return b.String()
}

// TestHostile checks that every program ends within its limit and 250 ms of processor time, in
// validations and tests, and that the pool keeps working.
func TestHostile(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	cfg := p.cfg
	for name, body := range hostile {
		t.Run(name, func(t *testing.T) {
			source := "package hostile\n\n" + body + "\n"
			began := childrenTime(t, p)
			v, err := p.Validate(t.Context(), "default", source)
			wantWithin(t, "validate", began, p, cfg.ValidateDeadline+cfg.LintDeadline, err)
			if err != nil || !v.Valid {
				return
			}
			began = childrenTime(t, p)
			got, err := p.Test(t.Context(), "default", TestRequest{Source: source, Cases: []suite.TestCase{{Name: "one", Input: valuetest.Decode(t, `{"x":1}`), Expected: true}}})
			wantWithin(t, "test", began, p, cfg.TestDeadline, err)
			if err == nil && got[0].Passed && strings.Contains("shift split squares marshal expand memory", name) {
				t.Errorf("the test passed: %+v, want a limit", got[0])
			}
		})
	}
	if v, err := p.Validate(t.Context(), "default", fine); err != nil || !v.Valid {
		t.Fatalf("after all programs: %+v, %v, want a valid control", v, err)
	}
}

// wantWithin reports more processor time than a limit, and an internal error.
func wantWithin(t *testing.T, what string, began time.Duration, p *Pool, limit time.Duration, err error) {
	t.Helper()
	if took := childrenTime(t, p) - began; took > limit+250*time.Millisecond {
		t.Errorf("%s took %s of processor time, want at most %s and 250 ms", what, took, limit)
	}
	if f, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || f.Kind == fault.Internal) {
		t.Errorf("%s: %v, want no internal error", what, err)
	}
}

// childrenTime returns the processor time of all children of an idle pool.
func childrenTime(t *testing.T, p *Pool) time.Duration {
	t.Helper()
	var ended unix.Rusage
	errtest.Must(t, unix.Getrusage(unix.RUSAGE_CHILDREN, &ended))
	all := time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.idle {
		all += proc.cpuTime()
	}
	return all
}

// TestBusyMachine checks that, if a child gets no processor time, the call waits longer than its limit, and the
// source is not refused.
func TestBusyMachine(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	errtest.Must(t, errtest.Of(p.Check(t.Context(), "default", fine)))
	p.cfg.ValidateDeadline = 200 * time.Millisecond
	child := p.idle[0].cmd.Process
	errtest.Must(t, child.Signal(unix.SIGSTOP))
	wake := time.AfterFunc(3*p.cfg.ValidateDeadline, func() { _ = child.Signal(unix.SIGCONT) })
	defer wake.Stop()
	began := time.Now()
	if v, err := p.Check(t.Context(), "default", fine); err != nil || !v.Valid {
		t.Fatalf("a check while the child rests: %+v, %v, want a valid control", v, err)
	}
	if time.Since(began) < p.cfg.ValidateDeadline {
		t.Error("the check ended before the limit, want it to wait for the stopped child")
	}
	if len(p.idle) != 1 || p.idle[0].cmd.Process != child {
		t.Error("another child answered, want the stopped one")
	}
}

// TestKilledAtDeadline checks that a child that cannot stop itself is killed.
func TestKilledAtDeadline(t *testing.T) {
	p := poolWith(t, "worker-for-test", func(c *Config) { c.ValidateDeadline = time.Millisecond }) // less than the start takes
	_, err := p.Validate(t.Context(), "default", fine)
	wantLimit(t, "a deadline of a millisecond", err)
}

// TestMemoryCap checks that a child that exceeds its memory limit exits, and that the error names a
// limit.
func TestMemoryCap(t *testing.T) {
	p := poolWith(t, "worker-for-test", func(c *Config) { c.Memory = 8 << 20 }) // less than the program itself needs
	var err error
	for range 20 { // the child checks its memory every few milliseconds
		if _, err = p.Validate(t.Context(), "default", fine); err != nil {
			break
		}
	}
	wantLimit(t, "8 MiB of memory", err)
}

// TestNoEnvironment checks that a child does not see the server's environment.
func TestNoEnvironment(t *testing.T) {
	t.Setenv("GATEHOUSE_CANARY", "a secret of the server")
	proc, err := start(pool(t).cfg, oneThread)
	errtest.Must(t, err)
	defer proc.kill()
	if len(proc.cmd.Env) != 1 || proc.cmd.Env[0] != "GOMAXPROCS=1" {
		t.Fatalf("the environment of the child is %v, want GOMAXPROCS alone", proc.cmd.Env)
	}
	source := "package env\n\nallow if opa.runtime().env.GATEHOUSE_CANARY\n"
	rep, err := proc.call(t.Context(), time.Minute, request{Op: opValidate, Source: source})
	if err != nil || len(rep.Issues) == 0 {
		t.Fatalf("a control that reads the environment: %+v, %v, want issues", rep, err)
	}
}

// TestFairShare checks that a burst of one tenant only delays that tenant, and calls over its queue limit are
// refused. Another tenant is served.
func TestFairShare(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	loop := endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	refused := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			_, err := p.Test(ctx, "noisy", loop)
			refused <- err
		})
	}
	if v, err := p.Validate(ctx, "quiet", fine); err != nil || !v.Valid {
		t.Errorf("another tenant: %+v, %v, want a valid control", v, err)
	}
	cancel()
	wg.Wait()
	close(refused)
	limited := 0
	for err := range refused {
		if fault.Is(err, fault.RateLimited) {
			limited++
		}
	}
	if limited == 0 {
		t.Error("no call of a burst of 64 is RateLimited")
	}
}

// TestValidateHasASlot checks that calls with endless programs never use the last slot, so a check of
// another tenant's control does not wait for them.
func TestValidateHasASlot(t *testing.T) {
	p := pool(t)
	loop := endless(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * p.cfg.Size {
		wg.Go(func() {
			_, _ = p.Test(ctx, scope.TenantID(fmt.Sprint("noisy-", i)), loop)
		})
	}
	for len(p.long) < cap(p.long) {
		runtime.Gosched() // until all calls are running
	}
	v, err := p.Validate(ctx, "quiet", fine)
	if err != nil || !v.Valid {
		t.Errorf("another tenant: %+v, %v, want a valid control", v, err)
	}
	if len(p.slots) > p.cfg.Size-1 {
		t.Errorf("%d of %d children are in use, want one free", len(p.slots), p.cfg.Size)
	}
	cancel()
	wg.Wait()
}

// TestLeavesAProcessor checks that the children of one tenant never use all processors, if there is more
// than one.
func TestLeavesAProcessor(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 64: 2} {
		if got := perTenant(processors); got != want {
			t.Errorf("perTenant(%d) = %d, want %d", processors, got, want)
		}
	}
}
