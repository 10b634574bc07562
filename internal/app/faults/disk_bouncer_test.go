package faults_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
)

// logPart is the decision log's part of a bouncer's readiness.
type logPart struct {
	Audit struct {
		Posture  string `json:"posture"`
		Writable bool   `json:"writable"`
		Trouble  string `json:"trouble"`
		Refused  int64  `json:"refused"`
		Missing  int64  `json:"missing"`
	} `json:"audit"`
}

// TestBouncerDiskFull: a bouncer whose disk is full goes on with the room that was
// held back; when that is used up its posture says what requests do, readiness
// and status say so, and the log says how many decisions are missing.
func TestBouncerDiskFull(t *testing.T) {
	for _, posture := range []string{"required", "best_effort"} {
		t.Run(posture, func(t *testing.T) {
			t.Parallel()
			dir := apptest.SmallDisk(t, "24m")
			s, _, c := alone(t, posture, dir, "GATEHOUSE_BOUNCER_DISK_RESERVE=4194304")
			sent := 0
			ask := func() int {
				sent++
				return c.With("X-Request-Id", fmt.Sprint("full-", sent)).Do(t, "GET", "/open", nil).Status
			}
			ready := func() (int, logPart) {
				t.Helper()
				var out logPart
				res := c.Do(t, "GET", "/_bouncer/ready", nil)
				res.Into(&out)
				return res.Status, out
			}
			if status, part := ready(); status != 200 || part.Audit.Posture != posture || !part.Audit.Writable || part.Audit.Trouble != "" {
				t.Fatalf("with room: %d %+v", status, part)
			}
			free := apptest.FillDisk(t, dir)
			apptest.Eventually(t, 30*time.Second, func() error {
				if status, part := ready(); status != 200 || !strings.Contains(part.Audit.Trouble, "uses the reserve") {
					return fmt.Errorf("the reserve in use: %d %+v", status, part)
				}
				return nil
			})
			for range 10 {
				if status := ask(); status != 200 {
					t.Errorf("with the reserve in use: %d", status)
				}
			}
			apptest.Eventually(t, 30*time.Second, func() error {
				apptest.FillDisk(t, dir)
				got := ask()
				if _, part := ready(); part.Audit.Writable || part.Audit.Refused == 0 || (posture == "required") != (got == 503) {
					return fmt.Errorf("the reserve used up: %d %+v", got, part)
				}
				return nil
			})
			want := map[string]int{"required": 503, "best_effort": 200}[posture]
			for range 5 {
				if got := ask(); got != want {
					t.Errorf("without a log: %d, want %d", got, want)
				}
			}
			if status, _ := ready(); status != want {
				t.Errorf("ready without a log: %d, want %d", status, want)
			}
			free()
			apptest.Eventually(t, 30*time.Second, func() error {
				if status, part := ready(); status != 200 || !part.Audit.Writable || part.Audit.Trouble != "" {
					return fmt.Errorf("with room again: %d %+v", status, part)
				}
				return nil
			})
			if got := ask(); got != 200 {
				t.Errorf("with room again: %d", got)
			}
			_, part := ready()
			s.Start()
			apptest.Eventually(t, 30*time.Second, func() error {
				log := apptest.DecisionLog(t, s.Admin, "sandbox")
				said := int64(0)
				for _, e := range log {
					var n int64
					if _, err := fmt.Sscanf(e.Reason, "%d decisions are missing", &n); err == nil {
						said += n
					}
				}
				absent, known := int64(0), apptest.ByRequest(log)
				for i := range sent {
					switch n := len(known[fmt.Sprint("full-", i+1)]); n {
					case 0:
						absent++
					case 1:
					default:
						return fmt.Errorf("request %d is in the log %d times", i+1, n)
					}
				}
				if said == 0 || said != part.Audit.Missing || said != absent {
					return fmt.Errorf("of %d requests %d are absent; the log says %d, the bouncer %d", sent, absent, said, part.Audit.Missing)
				}
				return nil
			})
			apptest.Eventually(t, 30*time.Second, func() error {
				if alerts := openAlerts(t, s); strings.Contains(alerts, "bouncer_trouble") {
					return errors.New("open still: " + alerts)
				}
				return nil
			})
			// With the server there, a full disk is an alert until it has room again.
			free = apptest.FillDisk(t, dir)
			apptest.Eventually(t, 30*time.Second, func() error {
				if alerts := openAlerts(t, s); strings.Count(alerts, "bouncer_trouble") != 1 || !strings.Contains(alerts, "disk") {
					return errors.New("alerts: " + alerts)
				}
				return nil
			})
			free()
			apptest.Eventually(t, 30*time.Second, func() error {
				if alerts := openAlerts(t, s); strings.Contains(alerts, "bouncer_trouble") {
					return errors.New("open still: " + alerts)
				}
				return nil
			})
		})
	}
}
