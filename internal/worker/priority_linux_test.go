package worker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Every thread of a child has a lower priority than the server, including threads that it starts
// later.
func TestLowPriority(t *testing.T) {
	p := pool(t)
	proc, err := start(p.cfg)
	errtest.Must(t, err)
	defer proc.kill()
	for range 2 { // the second time with the threads that the first run started
		errtest.Must(t, errtest.Of(proc.call(t.Context(), p.cfg.ValidateDeadline*10, request{Op: opValidate, Source: fine})))
		threads, err := filepath.Glob("/proc/" + strconv.Itoa(proc.cmd.Process.Pid) + "/task/*/stat")
		if err != nil || len(threads) == 0 {
			t.Fatalf("the child has no threads: %v", err)
		}
		for _, path := range threads {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue // it ended
			}
			// The name in brackets may hold spaces; nice is the 17th field behind it.
			fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			if got := fields[16]; got != strconv.Itoa(niceness) {
				t.Errorf("%s: niceness %s, want %d", path, got, niceness)
			}
		}
	}
}
