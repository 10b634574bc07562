package controls_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/db/dbtest"
)

// BenchmarkReplay replays decisions out of the store of the real program, on
// each backend, and prints how many a second, and the most memory that the
// server and the worker take while it goes on:
//
//	go test ./internal/app/controls -run xxx -bench Replay -benchtime 1x
func BenchmarkReplay(b *testing.B) {
	for _, backend := range []string{dbtest.SQLite, dbtest.Postgres} {
		b.Run(backend, func(b *testing.B) {
			const decisions = 40_000
			s := apptest.StartServer(b, backend)
			_, policy := apptest.RecordDecisions(b, s.Admin, "production", decisions, 12)
			ask := body{"environment": "production", "candidates": []body{{"policy_id": policy, "rego_code": stricter}}}
			apptest.Eventually(b, 2*time.Minute, func() error {
				if got := preview(b, s.Admin, ask); got.Evaluated != decisions {
					return fmt.Errorf("%d decisions are in the log", got.Evaluated)
				}
				return nil
			})
			// The highest memory is reset, so that it is the replay's.
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Pid()), []byte("5"), 0o200)
			before := memory(s.Pid(), "VmRSS")
			var child float64
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
						for _, pid := range apptest.Children(b, s.Pid()) {
							child = max(child, memory(pid, "VmHWM"))
						}
					}
				}
			}()
			var rate float64
			for b.Loop() {
				r := s.Admin.Do(b, "POST", "/compliance/impact-preview", ask).Want(200)
				if r.Get("changed") != 12.0 {
					b.Fatalf("%s", r.Body)
				}
				rate = max(rate, r.Get("decisions_per_second").(float64))
			}
			close(stop)
			<-stopped
			b.ReportMetric(rate, "decisions/s")
			b.ReportMetric(child, "worker-peak-MiB")
			b.ReportMetric(memory(s.Pid(), "VmHWM")-before, "server-growth-MiB")
		})
	}
}

// memory reads a figure of a process in MiB; 0 where there is none.
func memory(pid int, name string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(l, name+": %f kB", &kib); err == nil {
			return kib / 1024
		}
	}
	return 0
}
