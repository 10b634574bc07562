package apptest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Resident returns the current memory of the process in bytes, and resets its peak; 0 if the system
// does not report it.
func (p *Process) Resident(t testing.TB) int64 {
	t.Helper()
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0) // if it fails, the peak is an older one, and the test is stricter
	return p.memory(t, "VmRSS:")
}

// CheckGrowth fails the test if the peak of the process's memory exceeds before by more than limit, both
// in bytes.
func (p *Process) CheckGrowth(t testing.TB, before, limit int64) {
	t.Helper()
	if Race || before == 0 {
		return
	}
	grown := p.memory(t, "VmHWM:") - before
	t.Logf("the server grew by %d MiB at most", grown>>20)
	if grown > limit {
		t.Errorf("the server grew by %d MiB, more than %d", grown>>20, limit>>20)
	}
}

// memory returns one figure from the status of the process, in bytes.
func (p *Process) memory(t testing.TB, name string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0
	}
	_, rest, found := strings.Cut(string(text), name)
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); !found || err != nil {
		t.Fatalf("%s in %s: %v", name, text, err)
	}
	return kilobytes << 10
}
