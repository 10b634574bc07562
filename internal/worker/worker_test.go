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

	"github.com/gatehouse-dev/gatehouse/internal/fault"

	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
	"github.com/gatehouse-dev/gatehouse/internal/rego/suite"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
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

func pool(t *testing.T) *Pool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := NewPool(Defaults(self, "worker-for-test"))
	t.Cleanup(func() { p.Close() })
	return p
}

const fine = `package fine

allow if input.user.role == "admin"
`

func TestValidate(t *testing.T) {
	p := pool(t)
	v, err := p.Validate(t.Context(), "default", fine)
	if err != nil || !v.Valid || len(v.Errors) != 0 {
		t.Fatalf("a fine control: %+v, %v", v, err)
	}
	v, err = p.Validate(t.Context(), "default", "package broken\n\nallow if undefined_function(1)\n")
	if err != nil || v.Valid || len(v.Errors) == 0 || v.Errors[0].Line != 3 || v.Errors[0].Column == 0 {
		t.Fatalf("an undefined function: %+v, %v", v, err)
	}
}

func TestTest(t *testing.T) {
	p := pool(t)
	in := func(role string) value.Value {
		v, err := value.FromAny(map[string]any{"user": map[string]any{"role": role}})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	got, err := p.Test(t.Context(), "default", TestRequest{Name: "fine", Source: fine, Cases: []suite.TestCase{
		{Name: "admin", Input: in("admin"), Expected: true}, {Name: "guest", Input: in("guest"), Expected: true},
	}})
	if err != nil || len(got) != 2 || !got[0].Passed || got[1].Passed {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err = p.Test(t.Context(), "default", TestRequest{Source: "package x\nallow if nope()"}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("a control that does not compile: %v", err)
	}
}

// TestDeadChild: a child that died while it was idle is replaced, and the next source is not
// refused.
func TestDeadChild(t *testing.T) {
	p := pool(t)
	for range 3 {
		if v, err := p.Validate(t.Context(), "default", fine); err != nil || !v.Valid {
			t.Fatalf("%+v, %v", v, err)
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

// TestHostile: every program ends within its limit and 250 ms of processor time, in validations and
// tests. The pool keeps working.
func TestHostile(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	cfg := p.cfg
	in, err := value.FromAny(map[string]any{"x": 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range hostile {
		t.Run(name, func(t *testing.T) {
			source := "package hostile\n\n" + body + "\n"
			began := childrenTime(t, p)
			v, err := p.Validate(t.Context(), "default", source)
			within(t, "validate", began, p, cfg.ValidateDeadline+cfg.LintDeadline, err)
			if err != nil || !v.Valid {
				return
			}
			began = childrenTime(t, p)
			got, err := p.Test(t.Context(), "default", TestRequest{Source: source, Cases: []suite.TestCase{{Name: "one", Input: in, Expected: true}}})
			within(t, "test", began, p, cfg.TestDeadline, err)
			if err == nil && got[0].Passed && strings.Contains("shift split squares marshal expand memory", name) {
				t.Errorf("%s ran to its end: %+v", name, got[0])
			}
		})
	}
	if v, err := p.Validate(t.Context(), "default", fine); err != nil || !v.Valid {
		t.Fatalf("after all of them: %+v, %v", v, err)
	}
}

func within(t *testing.T, what string, began time.Duration, p *Pool, limit time.Duration, err error) {
	t.Helper()
	if took := childrenTime(t, p) - began; took > limit+250*time.Millisecond {
		t.Errorf("%s took %s of processor time, over %s and 250 ms", what, took, limit)
	}
	var f *fault.Error
	if err != nil && (!errors.As(err, &f) || f.Kind == fault.Internal) {
		t.Errorf("%s: %v", what, err)
	}
}

// childrenTime returns the processor time of all children of an idle pool.
func childrenTime(t *testing.T, p *Pool) time.Duration {
	t.Helper()
	var ended unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ended); err != nil {
		t.Fatal(err)
	}
	all := time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proc := range p.idle {
		all += proc.cpuTime()
	}
	return all
}

// TestBusyMachine: if a child gets no processor time, the call waits longer than its limit, and the
// source is not refused.
func TestBusyMachine(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	if _, err := p.Check(t.Context(), "default", fine); err != nil {
		t.Fatal(err)
	}
	p.cfg.ValidateDeadline = 200 * time.Millisecond
	child := p.idle[0].cmd.Process
	if err := child.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wake := time.AfterFunc(3*p.cfg.ValidateDeadline, func() { _ = child.Signal(unix.SIGCONT) })
	defer wake.Stop()
	began := time.Now()
	if v, err := p.Check(t.Context(), "default", fine); err != nil || !v.Valid {
		t.Fatalf("%+v, %v", v, err)
	}
	if time.Since(began) < p.cfg.ValidateDeadline {
		t.Error("the child did not rest: the test shows nothing")
	}
	if len(p.idle) != 1 || p.idle[0].cmd.Process != child {
		t.Error("another child answered")
	}
}

// TestKilledAtDeadline: a child that cannot stop itself is killed.
func TestKilledAtDeadline(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Defaults(self, "worker-for-test")
	cfg.ValidateDeadline = time.Millisecond // less than it takes to start
	p := NewPool(cfg)
	defer p.Close()
	_, err = p.Validate(t.Context(), "default", fine)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "evaluation_limit" {
		t.Fatalf("want evaluation_limit, got %v", err)
	}
}

// TestMemoryCap: a child that exceeds its memory limit exits, and the caller gets the limit error.
func TestMemoryCap(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Defaults(self, "worker-for-test")
	cfg.Memory = 8 << 20 // less than the program itself needs
	p := NewPool(cfg)
	defer p.Close()
	var f *fault.Error
	for range 20 { // the watcher checks every few milliseconds
		if _, err = p.Validate(t.Context(), "default", fine); err != nil {
			break
		}
	}
	if !errors.As(err, &f) || f.Code != "evaluation_limit" {
		t.Fatalf("want evaluation_limit, got %v", err)
	}
}

// TestNoEnvironment: a child does not see the server's environment.
func TestNoEnvironment(t *testing.T) {
	t.Setenv("GATEHOUSE_CANARY", "a secret of the server")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := start(Defaults(self, "worker-for-test"), oneThread)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.kill()
	if len(proc.cmd.Env) != 1 || proc.cmd.Env[0] != "GOMAXPROCS=1" {
		t.Fatalf("the child inherits an environment: %v", proc.cmd.Env)
	}
	source := "package env\n\nallow if opa.runtime().env.GATEHOUSE_CANARY\n"
	rep, err := proc.call(t.Context(), time.Minute, request{Op: opValidate, Source: source})
	if err != nil || len(rep.Issues) == 0 {
		t.Fatalf("a control that reads the host: %+v, %v", rep, err)
	}
}

// TestFairShare: a burst of one tenant only delays that tenant, and calls over its queue limit are
// refused. Another tenant is served.
func TestFairShare(t *testing.T) {
	fulltest.Only(t)
	p := pool(t)
	loop := "package loop\n\n" + hostile["nested loops"] + "\n"
	in, err := value.FromAny(map[string]any{"x": 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	refused := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			_, err := p.Test(ctx, "noisy", TestRequest{Source: loop, Cases: []suite.TestCase{{Input: in}, {Input: in}, {Input: in}, {Input: in}}})
			refused <- err
		})
	}
	if v, err := p.Validate(ctx, "quiet", fine); err != nil || !v.Valid {
		t.Errorf("the other tenant: %+v, %v", v, err)
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
		t.Error("a burst of 64 was not refused in part")
	}
}

// TestValidateFindsARoom: calls with endless programs never use the last slot, so a check of
// another tenant's control does not wait for them.
func TestValidateFindsARoom(t *testing.T) {
	p := pool(t)
	loop := "package loop\n\n" + hostile["nested loops"] + "\n"
	in, err := value.FromAny(map[string]any{"x": 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * p.cfg.Size {
		wg.Go(func() {
			_, _ = p.Test(ctx, scope.TenantID(fmt.Sprint("noisy-", i)), TestRequest{Source: loop, Cases: []suite.TestCase{{Input: in}, {Input: in}, {Input: in}, {Input: in}}})
		})
	}
	for len(p.long) < cap(p.long) {
		runtime.Gosched() // until all calls are running
	}
	v, err := p.Validate(ctx, "quiet", fine)
	if err != nil || !v.Valid {
		t.Errorf("the other tenant: %+v, %v", v, err)
	}
	if len(p.slots) > p.cfg.Size-1 {
		t.Errorf("%d of %d children try out programs", len(p.slots), p.cfg.Size)
	}
	cancel()
	wg.Wait()
}

// TestLeavesAProcessor: the children of one tenant never use all processors, if there is more than
// one.
func TestLeavesAProcessor(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 64: 2} {
		if got := perTenant(processors); got != want {
			t.Errorf("%d of %d processors, want %d", got, processors, want)
		}
	}
}
