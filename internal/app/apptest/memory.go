package apptest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Resident is the memory of the process in bytes, and from here on the most that it takes is
// counted anew; 0 where the system does not tell.
func (p *Process) Resident(t testing.TB) int64 {
	t.Helper()
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0) // without it the peak is older, and the test stricter
	return p.memory(t, "VmRSS:")
}

// Grew holds the most that the process took since before to a limit.
func (p *Process) Grew(t testing.TB, before, limit int64) {
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

// memory is one figure of the process in bytes.
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
